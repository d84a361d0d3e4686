"""Tests `shardlens record` with a PyTorch for which it has no recorder and cannot build one:
PyTorch's own memory history is recorded, on the null device's stubs, which lack nothing for that
PyTorch.

    history_cases.py quick|long

The PyTorch is the one that runs this, with an unknown version number, without pip's RECORD, and
with a PATH that has no compiler. recorded.py says which Python runs them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import attached_cases
import record_cases
from record_cases import QUICK, as_rank, expect
from recorded import HERE, PYTHON, OnNullDevice, report_of, run_cases
from recorder_cases import ONCE, Build, expect_no_recorder, path_without_compiler

SCRIPT = HERE / "scripts" / "misbehave.py"
HISTORY = "PyTorch's own memory history is recorded, which only identifies "
WHY = "building it needs cmake; install that"


def torch_folder():
    question = "import importlib.util as u; print(u.find_spec('torch').origin)"
    said = subprocess.run([PYTHON, "-c", question], capture_output=True, text=True, check=True)
    return pathlib.Path(said.stdout.strip()).parent


class UnknownPyTorch:
    """Makes a folder with the PyTorch, and the environment in which it is found."""

    def __init__(self, folder, path=None):
        torch = torch_folder()
        self.site = pathlib.Path(folder) / "site"
        package = self.site / "torch"
        package.mkdir(parents=True)
        for entry in torch.iterdir():
            if entry.name not in ("version.py", "__pycache__"):
                (package / entry.name).symlink_to(entry)
        known = (torch / "version.py").read_text()
        own = re.search(r"__version__ = '(.*)'", known)[1]
        self.version = re.sub(r"^\d+\.\d+", "2.99", own)
        version_line = f"__version__ = '{self.version}'"
        (package / "version.py").write_text(re.sub("__version__ = '.*'", version_line, known))
        self.environment = {"PYTHONPATH": str(self.site)}
        self.environment["PATH"] = path or path_without_compiler(folder)

    def take_headers_of_cuda(self):
        """Returns the folders of NVIDIA's packages, which are beside PyTorch's."""
        (self.site / "nvidia").symlink_to(torch_folder().parent / "nvidia")


def record(folder, *arguments, script=SCRIPT, **options):
    return OnNullDevice(folder, PYTHON, script, *arguments, **options,
                        more=UnknownPyTorch(folder).environment)


def expect_line(text, *parts):
    """Expects a line that has all of these texts."""
    if not any(all(part in line for part in parts) for line in text.splitlines()):
        raise AssertionError(f"no line with {parts} in\n{text}")


# --- what it tells --------------------------------------------------------------------------------


def check_peaks(folder):
    """Checks that peaks, counters and every event are PyTorch's own, as with a recorder."""
    pytorch = UnknownPyTorch(folder)
    for arguments, ranks in QUICK:
        for rank, world in ranks:
            place = as_rank(rank, world)
            environment = os.environ | pytorch.environment
            run = record_cases.record_case(arguments, place, env=environment)
            record_cases.check_peaks(run)
            record_cases.check_all_events(run)
            expect_line(run.printed, "  in doubt: ", HISTORY, pytorch.version, WHY)
            expect_line(run.printed, "  in doubt: ", "was not tried")
            expect("history", [run.facts["history"], len(run.facts["doubts"])], [True, 2])
            expect("rank", run.report["rank"], rank)
            expect("steps", len(run.report["steps"]), run.facts["steps"])


def check_as_recorder(folder):
    """Checks that steps, their peaks and the optimizer's blocks are as with the recorder."""

    def told(run):
        report = report_of(run.expect(0, "as PyTorch counted: equal").out)
        classes = report["at_peak"]["categories"]
        known = [classes[name] for name in ("parameter_shard", "optimizer_state")]
        return {key: report[key] for key in ("gpu", "notice", "peak", "steps")} | {"known": known}

    with_recorder, history = (pathlib.Path(folder) / name for name in ("recorder", "history"))
    with_recorder.mkdir()
    history.mkdir()
    wanted = told(OnNullDevice(with_recorder, PYTHON, SCRIPT, "fork"))
    expect("told", told(record(history, "fork")), wanted)


# --- ways to end ----------------------------------------------------------------------------------


def check_fail(folder):
    run = record(folder, "fail").expect(1, "a mistake of the user's", "after 2 steps")
    run.expect_steps(2)
    expect_line(run.lines, HISTORY, WHY)


def check_out_of_memory(folder):
    run = record(folder, "run_out").expect(3, "OutOfMemoryError", "does not fit: out of memory")
    expect_line(run.text, "  in doubt: ", HISTORY)


def check_kill(folder):
    run = record(folder, "kill_itself")
    run.expect(137, "nothing was recorded", "ended by Killed, before its recording was written")
    expect("files", list((run.out / "profiles").iterdir()), [])


def check_end_early(folder):
    run = record(folder, "catch_all", flags=["--steps", "2"])
    run.expect(0, "ended after step 2").expect_steps(2)


def check_own_exit(folder):
    record(folder, "exit_7").expect(7, "exit code is 7").expect_steps(2)


def check_retries(folder):
    """Checks that retries count even if the program resets PyTorch's counter."""
    run = record(folder, "retry_and_reset", script=HERE / "scripts" / "ending.py")
    run.expect(4, "retries 1", "fits with retries", "as PyTorch counted: equal")


def check_attached(folder):
    """Records on the machine's GPUs, where no stubs are needed."""
    attached_cases.become_machine()
    more = UnknownPyTorch(folder).environment
    run = attached_cases.python(folder, "exit_7", more=more).expect(7, HISTORY, "counted: equal")
    run.expect_ranks(1)


# --- why there is no recorder ---------------------------------------------------------------------


def start(build, pytorch):
    return build.start(more=pytorch.environment)


def check_stubs(folder):
    """Checks that without usable stubs nothing is run, and the line names what is missing."""
    pytorch = UnknownPyTorch(folder)
    for library, lack in {
        "libcufft.so.*": "it calls cuf",
        "libcufile.so.*": "it needs libcufile.so.",
    }.items():
        build = Build(pathlib.Path(folder) / library[3:8])
        stub = next((build.folder / "null_device").glob(library))
        stub.unlink()
        if "calls" in lack:
            shutil.copy(next(stub.parent.glob("libcufile.so.*")), stub)
        error = expect_no_recorder(start(build, pytorch), WHY)
        expect_line(error, f"PyTorch {pytorch.version} cannot run on a simulated GPU: ", lack)


def check_folder_of_others(folder):
    """Checks that neither a recorder nor its stubs are loaded from a folder that others can write
    to."""
    build = Build(folder)
    cache = build.folder / "record" / "pytorch"
    cache.mkdir(mode=0o755)
    cache.chmod(0o755)
    why = f"is not loaded: {cache} has mode 0755, not 0700; run chmod 700 {cache}"
    expect_no_recorder(start(build, UnknownPyTorch(folder)), why)


def check_broken_compiler(folder):
    tools = pathlib.Path(folder) / "broken"
    tools.mkdir()
    (tools / "c++").write_text("#!/bin/sh\nexit 1\n")
    (tools / "c++").chmod(0o755)
    pytorch = UnknownPyTorch(folder, f"{tools}:{os.environ['PATH']}")
    expect_no_recorder(start(Build(folder), pytorch), "needs " + str(pytorch.site))
    pytorch.take_headers_of_cuda()
    expect_no_recorder(start(Build(pathlib.Path(folder) / "other"), pytorch), "failed (see ")


def check_without_record(folder):
    """A PyTorch that pip has not installed gets a recorder, built once, if that can be done."""
    build, pytorch = Build(folder), UnknownPyTorch(folder, os.environ["PATH"])
    pytorch.take_headers_of_cuda()
    for is_built in (True, False):
        run = start(build, pytorch)
        out, error = run.communicate(timeout=1200)
        said = [run.returncode, ONCE in error, "as PyTorch counted: equal" in out, HISTORY in error]
        expect("exit code, built, equal, history", said, [7, is_built, True, False])


QUICK_CASES = [check_peaks, check_fail, check_out_of_memory, check_stubs]
LONG_CASES = [
    check_as_recorder, check_kill, check_end_early, check_own_exit, check_retries,
    check_folder_of_others, check_broken_compiler, check_without_record, check_attached,
]


if __name__ == "__main__":
    sys.exit(run_cases({"quick": QUICK_CASES, "long": LONG_CASES}[sys.argv[1]]))
