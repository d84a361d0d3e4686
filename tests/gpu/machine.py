"""The machine on which run.sh runs: its PyTorch, its GPU, and how programs are started there.

Programs of a pack carry no path of LibTorch. They find it by LD_LIBRARY_PATH, which starts with the
pack's own libraries and goes on with those of the PyTorch that python3 imports.
"""

import ctypes
import json
import lzma
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from results import Failed, NotChecked

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build"
BIN = BUILD / "bin"
PROGRAMS = HERE / "programs"
SCRIPTS = ROOT / "tests" / "profiler" / "record" / "scripts"
VARIABLE = "SHARDLENS_GPU_MACHINE"  # passes to a phase what the driver has found
COMMAND_LIMIT_S = 120
FIRST_LIMIT_S = 300  # for PyTorch on a disk that nobody has read from

ASK_TORCH = """
import importlib.metadata, json, pathlib, sys, torch
print(json.dumps({"torch": torch.__version__, "folder": str(pathlib.Path(torch.__file__).parent),
                  "python": sys.version.split()[0], "executable": sys.executable,
                  "wheels": {str(wheel.metadata["Name"]): wheel.version
                             for wheel in importlib.metadata.distributions()
                             if str(wheel.metadata["Name"]).startswith("nvidia-")}}))
"""


_running = set()  # processes that lead a group of their own


def start(command, env=None, cwd=None):
    """Starts a command as the leader of a group of processes, which end_all() ends."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=env,
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        errors="replace",
    )
    _running.add(process)
    return process


def end(process):
    """Kills a process with all that it has started and that has stayed in its group."""
    _running.discard(process)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def end_all():
    for process in list(_running):
        end(process)


def run(command, env=None, limit_s=COMMAND_LIMIT_S, cwd=None):
    """Returns (exit code, stdout, stderr). All that it has started is ended with it when its time
    is over; the exit code is then 124."""
    process = start(command, env, cwd)
    try:
        out, error = process.communicate(timeout=limit_s)
        return process.returncode, out, error
    except subprocess.TimeoutExpired:
        end(process)
        out, error = process.communicate()
        return 124, out, f"{error}\nit did not end in {limit_s} s"
    finally:
        end(process)


def last_line(*texts):
    """Returns the last line that mentions an error, or else the last line."""
    lines = [line for text in texts for line in text.strip().splitlines()]
    errors = [line for line in lines if re.search(r"\w*Error\b|error:", line)]
    return (errors or lines or ["it said nothing"])[-1].strip()[:300]


def last_lines(error):
    """Returns the last lines of a program that a signal has ended, joined."""
    return " / ".join(line.strip() for line in error.strip().splitlines()[-20:])[-2000:]


def output_of(command, **how):
    """Returns what a command prints. Raises Failed with its last line if its exit code is not 0."""
    code, out, error = run(command, **how)
    if code != 0:
        name = pathlib.Path(str(command[0])).name
        said = last_line(out, error) if code > 0 else last_lines(error)
        raise Failed(f"{name} ended with exit code {code}: {said}")
    return out


def rows_of(text):
    """Returns the objects of the lines of JSON in it."""
    return [
        json.loads(line)
        for line in text.splitlines()
        if line.startswith("{") and line.endswith("}")
    ]


def is_loadable(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def unpack_libraries():
    """Unpacks the libraries that a pack has in xz. Raises ValueError if they cannot be written."""
    for packed in (BUILD / "libraries").glob("*.xz"):
        library = packed.with_suffix("")
        if library.exists():
            continue
        try:
            partial = library.with_name(library.name + ".partial")
            partial.write_bytes(lzma.decompress(packed.read_bytes()))
            os.replace(partial, library)
        except (OSError, lzma.LZMAError) as error:
            raise ValueError(
                f"{packed} cannot be unpacked ({error}); copy the pack again, into a "
                "folder that can be written"
            ) from error


def library_folders(torch):
    """Returns the folders of LD_LIBRARY_PATH: the pack's own, then those of the PyTorch that was
    found."""
    torch = pathlib.Path(torch)
    folders = [BUILD / "libraries", torch / "lib"]
    folders += sorted(path for path in torch.parent.glob("nvidia/*/lib") if path.is_dir())
    common = BUILD / "common_libraries"
    if common.is_dir() and not all(is_loadable(path.name) for path in common.iterdir()):
        folders.append(common)
    return [str(folder) for folder in folders if folder.is_dir()]


def preload(gpu):
    """Variables with which every program takes a null device for this machine's GPU."""
    stubs = sorted(str(path) for path in (BUILD / "null_device").glob("*.so.*"))
    return {
        "LD_PRELOAD": ":".join(stubs),
        "SHARDLENS_NULL_GPU": gpu,
        "SHARDLENS_NULL_KEEP_COPIES": "1",
    }


class Machine:
    """`about` has what ASK_TORCH prints, and what find() adds: gpu, stands_for_gpu, few,
    results."""

    def __init__(self, about):
        self.about = about
        self.python = about["executable"]
        self.gpu = about.get("gpu")
        self.few = about.get("few", False)

    @property
    def is_rehearsal(self):
        return self.about["stands_for_gpu"] is not None

    @property
    def null(self):
        """Returns --device of the null device to compare with."""
        return f"null:{self.gpu}"

    def null_environment(self):
        """Returns the environment of programs that enter the null device by themselves, or need
        none."""
        env = {
            key: value
            for key, value in os.environ.items()
            if key != "LD_PRELOAD" and not key.startswith("SHARDLENS_NULL")
        }
        folders = library_folders(self.about["folder"])
        if self.is_rehearsal:  # its PyTorch may have no library of NVIDIA's beside it
            folders.append(str(BUILD / "null_device"))
        given = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = ":".join(folders + ([given] if given else []))
        env["PYTHONUNBUFFERED"] = "1"
        env["PYTHONFAULTHANDLER"] = "1"  # an aborted program says where its threads were
        return env

    def needs_null_device(self):
        """Raises NotChecked where no null device is named after this GPU."""
        if " " in self.gpu:
            raise NotChecked(f"there is no null device of {self.gpu}; add it to base/gpus.cpp")

    def stubbed_environment(self):
        """Returns the environment of programs that run on the null device of this GPU, but enter it
        by nothing else. Raises NotChecked where there is none."""
        self.needs_null_device()
        return self.null_environment() | preload(self.gpu)

    def gpu_environment(self):
        """Returns the environment of programs that run on the GPU."""
        env = self.null_environment()
        return env | preload(self.about["stands_for_gpu"]) if self.is_rehearsal else env

    def on_gpu(self, command, env=None, **how):
        return output_of(command, env=self.gpu_environment() | (env or {}), **how)

    def on_null(self, command, env=None, **how):
        return output_of(command, env=self.null_environment() | (env or {}), **how)

    def python_rows(self, script, *arguments, env=None, **how):
        """Returns the objects that one of our Python programs prints on the GPU."""
        out = self.on_gpu([self.python, PROGRAMS / script, *arguments], env=env, **how)
        return rows_of(out)

    def needs_gpu(self, what):
        """Raises NotChecked where a null device stands for the GPU."""
        if self.is_rehearsal:
            raise NotChecked(f"a null device {what}")

    def encode(self):
        return json.dumps(self.about)


def of_environment():
    return Machine(json.loads(os.environ[VARIABLE]))


def stand_in():
    """Returns the GPU that a null device stands for, or None. Raises ValueError."""
    word = os.environ.get("SHARDLENS_GPU", "")
    if word in ("", "cuda"):
        return None
    if not re.fullmatch(r"null:[a-z0-9-]+", word):
        raise ValueError(
            f"SHARDLENS_GPU={word}: is not known; give null:h200, or nothing where "
            "there is a GPU"
        )
    return word.removeprefix("null:")


def check_files():
    """Raises ValueError where this folder has no programs."""
    for path in (BIN / "shardlens", BIN / "print_allocations", BUILD / "null_device"):
        if not path.exists():
            raise ValueError(
                f"{path} is missing; run make build, or tests/gpu/pack where it was built"
            )


def find(few, out):
    """Raises ValueError with one line: what is missing, and how to get it."""
    stands_for_gpu = stand_in()
    check_files()
    unpack_libraries()
    env = os.environ | (preload(stands_for_gpu) if stands_for_gpu else {})
    code, answer, error = run([sys.executable, "-c", ASK_TORCH], env=env, limit_s=FIRST_LIMIT_S)
    if code != 0:
        raise ValueError(
            f"{sys.executable} has no PyTorch ({last_line(error)}); put the folder of "
            "a python3 that has it into PATH"
        )
    about = json.loads(answer.splitlines()[-1])
    about |= {"stands_for_gpu": stands_for_gpu, "few": few, "results": str(out.resolve())}
    machine = Machine(about)
    check_version(about["torch"])
    about["gpu"] = gpu_name(machine)
    return Machine(about)


def check_version(torch):
    """Refuses another PyTorch than the one for which a pack was made; a build finds its own."""
    wanted = BUILD / "torch_version"
    if not wanted.exists() or torch.split("+")[0] == wanted.read_text().strip():
        return
    raise ValueError(
        f"python3 has PyTorch {torch}, but the pack is for {wanted.read_text().strip()}; "
        "build Shardlens for that version and pack again"
    )


def gpu_name(machine):
    """Returns the GPU's name as --device null:NAME takes it, which one of our programs that
    allocates on the GPU prints."""
    ask = [BIN / "print_allocations", "--device", "cuda", "--batch", "1", "--steps", "1"]
    code, out, error = run(ask, env=machine.gpu_environment())
    if code != 0:
        raise ValueError(
            f"no GPU that can be used ({last_line(error)}): nothing was checked; see "
            "nvidia-smi, or rehearse with SHARDLENS_GPU=null:h200"
        )
    return out.splitlines()[0].removeprefix("gpu ")


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left_s(self):
        return self.end - time.monotonic()
