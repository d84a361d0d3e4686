"""Tests how `shardlens record` builds the recorder for a PyTorch that is not the build's own, in a
copy of the build's programs that has no such recorder yet.

    recorder_cases.py long [CASE...]

recorded.py says which Python runs them.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from recorded import HERE, PROGRAM, PYTHON, run_cases

SCRIPT = HERE / "scripts" / "misbehave.py"
ONCE = "building the recorder for PyTorch"


def start(program, out, path=None, more=None, **popen):
    command = [program, "--device", "null:h100", "--out", out, "--", PYTHON, SCRIPT, "exit_7"]
    environment = os.environ | (more or {}) | ({} if path is None else {"PATH": path})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **popen)


class Build:
    """Holds the parts of a build folder that `shardlens record` needs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder) / "build"
        built = PROGRAM.parent.parent
        leave_out = shutil.ignore_patterns("pytorch")
        for part in ("record", "null_device"):
            shutil.copytree(built / part, self.folder / part, symlinks=True, ignore=leave_out)
        (self.folder / "bin").mkdir()
        shutil.copy(built / "bin" / "shardlens-record", self.folder / "bin")
        shutil.copy(built / "CMakeCache.txt", self.folder)
        self.runs = 0

    def start(self, **popen):
        self.runs += 1
        out = self.folder / f"run{self.runs}"
        return start(self.folder / "bin" / "shardlens-record", out, **popen)

    def kept(self):
        """Lists names in the folder of recorders; shardlens ignores those that begin with a dot."""
        folder = self.folder / "record" / "pytorch"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def recorders(self):
        return [name for name in self.kept() if not name.startswith(".")]


def expect(run, code, *lines):
    """Waits for its end, and returns what it wrote to stderr."""
    out, error = run.communicate(timeout=1200)
    for line in lines:
        if line not in error:
            raise AssertionError(f"no {line!r} in\n{out}{error}")
    if run.returncode != code:
        raise AssertionError(f"exit code {run.returncode}, not {code}:\n{out}{error}")
    return error


def expect_no_recorder(run, why):
    """Checks that one line says why, and either what the build's stubs lack for this PyTorch or
    what its own history omits; the line is repeated under the verdict."""
    out, error = run.communicate(timeout=1200)
    lines = [line for line in error.splitlines() if why in line]
    check(f"one line: {error}", len(lines) == 1)
    if run.returncode == 2:
        check(f"what the stubs lack: {error}", "which the null device lacks" in lines[0])
        others = [line for line in error.splitlines() if line not in lines and ONCE not in line]
        check(f"nothing else: {others}", not others)
        return error
    check(f"exit code {run.returncode}: {error}", run.returncode == 7)
    check(f"its own history: {out}", "PyTorch's own memory history is recorded" in lines[0])
    check(f"in doubt: {out}", "  in doubt: " + lines[0].removeprefix("shardlens record: ") in out)
    check(f"equal: {out}", "as PyTorch counted: equal" in out)
    return error


def check(what, is_so):
    if not is_so:
        raise AssertionError(what)


def wait_for_compiler(build):
    """Waits until some of the recorder has been compiled."""
    for _ in range(600):
        if list(build.folder.glob("record/pytorch/.*/build/profiler/**/*.o")):
            return
        time.sleep(0.2)
    raise AssertionError(f"nothing is compiled; there are {build.kept()}")


def check_two_at_once(folder):
    build = Build(folder)
    runs = [build.start(), build.start()]
    said = [expect(run, 7, "exit code is 7") for run in runs]
    check(f"built once: {said}", sorted(ONCE in lines for lines in said) == [False, True])
    check(f"one waited: {said}", sum("waiting for the recorder" in lines for lines in said) == 1)
    check(f"one recorder: {build.kept()}", len(build.recorders()) == 1)
    check("kept", ONCE not in expect(build.start(), 7))


def check_killed(folder):
    build = Build(folder)
    run = build.start(start_new_session=True)
    wait_for_compiler(build)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    check(f"nothing half: {build.kept()}", all(name.endswith(".log") for name in build.recorders()))
    expect(build.start(), 7, ONCE)
    check(f"one recorder, no log: {build.kept()}", len(build.recorders()) == 1)


def check_interrupted(folder):
    """Interrupts as Ctrl-C does: by a signal to all processes."""
    build = Build(folder)
    run = build.start(start_new_session=True)
    wait_for_compiler(build)
    os.killpg(run.pid, signal.SIGINT)
    run.communicate()
    check(f"exit code {run.returncode}", run.returncode != 0)
    for _ in range(100):
        left = [name for name in build.kept() if not name.endswith((".log", ".lock"))]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"left are {left}")


def check_broken_compiler(folder):
    build = Build(folder)
    tools = pathlib.Path(folder) / "tools"
    tools.mkdir()
    (tools / "c++").write_text("#!/bin/sh\necho 'a broken compiler' >&2\nexit 1\n")
    (tools / "c++").chmod(0o755)
    run = build.start(path=f"{tools}:{os.environ['PATH']}")
    error = expect_no_recorder(run, "building it failed (see ")
    log = pathlib.Path(error.partition("(see ")[2].partition(")")[0])
    check(f"{log} says why", "a broken compiler" in log.read_text())
    kept = [name for name in build.recorders() if not name.endswith(".checked")]
    check(f"only the log: {build.kept()}", kept == [log.name])


def path_without_compiler(folder):
    """Makes a PATH with what the script that builds recorders needs to say what is missing."""
    tools = pathlib.Path(folder) / "tools"
    tools.mkdir()
    for name in ("awk", "bash", "dirname", "env", "grep", "head", "sed"):
        (tools / name).symlink_to(shutil.which(name))
    return str(tools)


def check_no_cmake(folder):
    build = Build(folder)
    run = build.start(path=path_without_compiler(folder))
    expect_no_recorder(run, "building it needs cmake; install that")


def check_installed(folder):
    """Recorders that were built are installed, and an installation builds none."""
    folder = pathlib.Path(folder)
    built, prefix = PROGRAM.parent.parent, folder / "installed"
    expect(start(built / "bin" / "shardlens-record", folder / "first"), 7)
    install = ["cmake", "--install", built, "--prefix", prefix]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    program = prefix / "bin" / "shardlens-record"
    recorders = prefix / "lib" / "shardlens" / "record" / "pytorch"
    check("installed", ONCE not in expect(start(program, folder / "second"), 7))
    check("only recorders", not any(path.name.startswith(".") for path in recorders.iterdir()))
    shutil.rmtree(recorders)
    expect_no_recorder(start(program, folder / "third"), "is built from its sources")


CASES = [
    check_two_at_once, check_killed, check_interrupted, check_broken_compiler, check_no_cmake,
    check_installed,
]


if __name__ == "__main__":
    sys.exit(run_cases(CASES))
