"""Runs the cases of tests/profiler/record with any Python that has PyTorch, and says what
differs."""

import json
import os
import subprocess
import sys

import pins

CASES = pins.ROOT / "tests" / "profiler" / "record" / "record_cases.py"
COMPARED = ("peaks", "events", "doubts", "unclassed")


class Failure(Exception):
    """Says in a line why the cases could not be run."""


def differing(facts):
    """Returns which comparisons failed, a word for each."""
    if "failed" in facts:
        return ["failed"]
    return [name for name in COMPARED if facts[name]]


def name_of(facts):
    return f"{facts['case']}, rank {facts['rank']} of {facts['world']}"


def run_cases(python):
    """Yields what record_cases.py says about each case. Raises Failure."""
    environment = os.environ | {"SHARDLENS_PYTHONS": str(python), "SHARDLENS_PYTORCH": ""}
    command = [sys.executable, str(CASES), "facts"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, text=True) as run:
        for line in run.stdout:
            if not line.startswith("{"):
                raise Failure(f"{CASES.name}: {line.strip()}")
            yield json.loads(line)
    if run.returncode != 0:
        raise Failure(f"{CASES.name} ended with exit code {run.returncode}")
