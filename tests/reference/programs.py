"""Runs the programs that are measured and compared: ours, and scripts of this folder.

Standard library only, so that a comparison with recorded figures needs no PyTorch.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build" / "bin" / "shardlens"
DEPS = pathlib.Path(os.environ.get("SHARDLENS_DEPS", ROOT / ".deps"))


class Failure(SystemExit):
    """A command that failed. Ends this program, with all that was printed, unless it is caught."""

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
    """result.json of one training run of ours, in a folder of its own."""
    if not os.access(PROGRAM, os.X_OK):
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {PROGRAM} is not built; run make build")
    with tempfile.TemporaryDirectory() as storage:
        run([PROGRAM, "train", *arguments, "--storage", storage, "--name", "run"], environment)
        return json.loads((pathlib.Path(storage) / "run" / "result.json").read_text())
