#!/usr/bin/env python3
"""Exports runs to TensorBoard's files, reads them with TensorBoard's own reader, and compares the
scalars with `shardlens profile report`.

    tests/profiler/exchange/tensorboard_cases.py BIN

BIN is the folder of the programs. Exits with 77 if this Python has no tensorboard.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

NO_TENSORBOARD = 77
MIB = 1 << 20
TRAIN = ["train", "--device", "null:h200", "--world", "2", "--data", "synthetic", "--steps", "4",
         "--profile", "on"]


def shardlens(folder, *arguments):
    command = [pathlib.Path(sys.argv[1]).resolve() / "shardlens", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: {done.stdout}{done.stderr}")
    return done.stdout


def scalars_of(folder):
    """Returns {tag: [(step, seconds since 1970, value), ...]} as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(one.step, one.wall_time, one.value) for one in reader.Scalars(tag)]
            for tag in reader.Tags()["scalars"]}


def expect(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: {found}, not {wanted}")


def check_rank(rank, scalars):
    steps = [step["step"] for step in rank["steps"]]
    for tag, series in scalars.items():
        expect([step for step, _, _ in series], steps, tag)
    for tag, key in (("peak MiB/allocated", "peak_allocated_bytes"), ("peak MiB/reserved", "peak_reserved_bytes")):
        expect([value * MIB for _, _, value in scalars[tag]], [step[key] for step in rank["steps"]], tag)
    highest = max(range(len(steps)), key=lambda i: rank["steps"][i]["peak_allocated_bytes"])
    for category, wanted in rank["at_peak"]["categories"].items():
        found = scalars.get(f"peak MiB/{category}")
        expect(found[highest][2] * MIB if found else 0, wanted, category)


def main():
    try:
        import tensorboard  # pylint: disable=unused-import
    except ImportError as error:
        print(f"skipped: {sys.executable}: {error}; pip install tensorboard")
        return NO_TENSORBOARD
    with tempfile.TemporaryDirectory() as folder:
        for rank in (0, 1):
            shardlens(folder, *TRAIN, "--solo-rank", str(rank), "--name", f"run{rank}")
            for _ in range(2):  # a second export replaces the first
                shardlens(folder, "profile", "export", f"runs/run{rank}", "--tensorboard", "board")
            report = json.loads(shardlens(folder, "profile", "report", f"runs/run{rank}", "--json"))
            check_rank(report["ranks"][0], scalars_of(pathlib.Path(folder) / "board" / f"rank{rank}"))
    print("TensorBoard reads the peaks of all steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
