"""Shared by the tests of `shardlens record`: the Python that is recorded, the command, and a runner
for a list of cases.

The programs are run by the first Python that exists in SHARDLENS_PYTHONS, a list separated by
colons, or else by the one that runs this; exit code 77 says that it has no PyTorch, or none whose
version begins with SHARDLENS_PYTORCH, or that SHARDLENS_DRAWN_PYTORCH names another version.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE.parents[2] / "build" / "bin" / "shardlens"
NO_PYTORCH = 77
QUICK_CASES = 4  # as kQuickCases in tests/support/sample.h


def find_python():
    """Exits with 77 if none has PyTorch."""
    listed = os.environ.get("SHARDLENS_PYTHONS", sys.executable).split(":")
    python = next((path for path in listed if os.access(path, os.X_OK)), sys.executable)
    wanted = os.environ.get("SHARDLENS_PYTORCH", "")
    drawn = os.environ.get("SHARDLENS_DRAWN_PYTORCH")
    if wanted and drawn and wanted != f"{drawn}.":
        print(f"skipped: PyTorch {drawn} was drawn")
        sys.exit(NO_PYTORCH)
    question = f"import importlib.metadata as m; assert m.version('torch').startswith('{wanted}')"
    if subprocess.run([python, "-c", question], capture_output=True, check=False).returncode != 0:
        print(f"skipped: {python} has no PyTorch {wanted}")
        sys.exit(NO_PYTORCH)
    return python


PYTHON = find_python()


def shardlens(*arguments, env=None):
    command = [PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def report_of(out):
    report = json.loads(shardlens("profile", "report", out, "--json").stdout)
    return report["ranks"][0]


class Recorded:
    """A command that was recorded into the folder's `run`, and what was printed."""

    def __init__(self, folder, *command, flags=(), more=None):
        self.out = pathlib.Path(folder) / "run"
        environment = os.environ | (more or {})
        done = shardlens("record", "--out", self.out, *flags, "--", *command, env=environment)
        self.code, self.text, self.lines = done.returncode, done.stdout, done.stderr

    def expect(self, code, *lines):
        for line in lines:
            if line not in self.lines + self.text:
                raise AssertionError(f"no {line!r} in\n{self.text}{self.lines}")
        if self.code != code:
            raise AssertionError(f"exit code {self.code}, not {code}:\n{self.text}{self.lines}")
        return self


class OnNullDevice(Recorded):
    def __init__(self, folder, *command, flags=(), more=None):
        super().__init__(folder, *command, flags=["--device", "null:h100", *flags], more=more)

    def steps(self):
        return len(report_of(self.out)["steps"])

    def expect_steps(self, steps):
        if self.steps() != steps:
            raise AssertionError(f"{self.steps()} steps were recorded, not {steps}")
        return self


def sampled(cases):
    """Returns the independent cases that `make test` and `make test-long` run: one in QUICK_CASES,
    another part with each SHARDLENS_SEED. SHARDLENS_CASES=all, as in continuous integration, runs
    all, and so does any word but `quick` without SHARDLENS_CASES=some."""
    asked = os.environ.get("SHARDLENS_CASES")
    if asked == "all" or (asked != "some" and sys.argv[1:2] != ["quick"]):
        return cases
    seed = int(os.environ.get("SHARDLENS_SEED", random.randrange(1 << 16)))
    first = seed % min(QUICK_CASES, len(cases))
    chosen = cases[first::QUICK_CASES]
    print(f"SHARDLENS_SEED={seed} chose {len(chosen)} of {len(cases)} cases", flush=True)
    return chosen


def run_cases(cases):
    """Runs the functions check_NAME that the arguments after the first name, or else those of
    `make test`, each with its own folder. Returns the exit code."""
    wanted, failed = sys.argv[2:], 0
    unknown = set(wanted) - {case.__name__.removeprefix("check_") for case in cases}
    if unknown:
        sys.exit(f"there is no case {', '.join(sorted(unknown))}")
    for case in cases if wanted else sampled(cases):
        name = case.__name__.removeprefix("check_")
        if wanted and name not in wanted:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                case(folder)
                print(f"ok      {name} ({time.monotonic() - start:.1f} s)", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  {name}: {error}", flush=True)
    return 1 if failed else 0
