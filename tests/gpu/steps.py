"""Shared by the phases: what a step is, runs of our own programs, and what recordings say."""

import dataclasses
import json
from collections.abc import Callable

import machine as machines
from results import Failed, events_of_export

SHARDLENS = machines.BIN / "shardlens"


@dataclasses.dataclass(frozen=True)
class Step:
    """`function` takes a folder of its own, and returns a dict with at least `verdict` and `said`.
    Steps with `lanes` above 1 run beside each other, that many at a time."""

    name: str
    function: Callable
    lanes: int = 1


def measured(said, **data):
    return {"verdict": "measured", "said": said, **data}


def mib(count):
    return "unknown" if count is None else f"{count / 2**20:.2f} MiB"


def train_command(folder, name, device, *flags, data="synthetic"):
    """Returns the command of a training run of ours into folder/name."""
    words = ["--device", device, "--data", data, "--storage", folder, "--name", name]
    return [SHARDLENS, "train", *words, *flags]


def export_command(run, rank, path):
    """Writes the allocator's events in a recording as results.events_of_export() reads them."""
    words = ["--rank", str(rank), "--format", "memory-viz-json", "--out", path]
    return [SHARDLENS, "profile", "export", run, *words]


def train(machine, folder, device, *flags, **how):
    """Runs ours into folder/DEVICE, on synthetic data, and returns result.json. Raises Failed."""
    name = device.partition(":")[0]
    start = machine.on_gpu if device == "cuda" else machine.on_null
    start(train_command(folder, name, device, *flags), **how)
    return json.loads((folder / name / "result.json").read_text())


def report(machine, run):
    """Returns what the recording of every rank says."""
    out = machine.on_null([SHARDLENS, "profile", "report", run, "--json"])
    return json.loads(out)["ranks"]


def events(machine, run, rank, folder):
    """Returns the allocator's events in a recording, a line each."""
    path = folder / "events.json"
    machine.on_null(export_command(run, rank, path))
    return events_of_export(path)


def only(rows):
    """Returns the one row that one of our programs printed."""
    if len(rows) != 1:
        raise Failed(f"{len(rows)} lines of JSON, not one")
    return rows[0]
