"""Runs the programs that are measured and compared: ours, and scripts in this folder.

Standard library only, so that a comparison with recorded figures needs no PyTorch.
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build" / "bin" / "shardlens"
DEPS = pathlib.Path(os.environ.get("SHARDLENS_DEPS", ROOT / ".deps"))


class Failure(SystemExit):
    """A failed command. Ends this program with all that the command printed, unless caught."""

    def __init__(self, command, done):
        me = pathlib.Path(sys.argv[0]).name
        command_line = " ".join(map(str, command))
        output = done.stdout + done.stderr
        super().__init__(f"{me}: exit code {done.returncode} of {command_line}\n{output}")
        self.last_line = (output.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def run(command, environment=None):
    """Returns what the command prints. Raises Failure."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise Failure(command, done)
    return done.stdout


def train(arguments, environment=None):
    """Returns result.json of one training run of ours, in its own folder."""
    if not os.access(PROGRAM, os.X_OK):
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {PROGRAM} is not built; run make build")
    with tempfile.TemporaryDirectory() as storage:
        run([PROGRAM, "train", *arguments, "--storage", storage, "--name", "run"], environment)
        return json.loads((pathlib.Path(storage) / "run" / "result.json").read_text())


def _children_s():
    """Returns the processor time of the processes that this one has waited for, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _goes_on(process, slice_s):
    """Lets a stopped process go on for a slice. Returns False if it ended without failing."""
    os.killpg(process.pid, signal.SIGCONT)
    try:
        process.wait(timeout=slice_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGSTOP)
        return True
    if process.returncode != 0:
        me = pathlib.Path(sys.argv[0]).name
        sys.exit(f"{me}: exit code {process.returncode}: {process.stderr.read().decode()}")
    return False


def run_in_turns(processes, slice_s):
    """Lets processes go on one at a time, in turns, until all have ended, so that other work on the
    machine affects all of them. Each leads its own session, and has a pipe for its errors. Returns
    the processor time of each, in seconds. If one fails, this program ends."""
    seconds = {}
    try:
        for process in processes:
            os.killpg(process.pid, signal.SIGSTOP)
        while len(seconds) < len(processes):
            for process in processes:
                before_s = _children_s()
                if process not in seconds and not _goes_on(process, slice_s):
                    seconds[process] = _children_s() - before_s
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return [seconds[process] for process in processes]
