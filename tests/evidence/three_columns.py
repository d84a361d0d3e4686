#!/usr/bin/env python3
"""Compares the places of all blocks in GPUs' histories by AllocatorModel, by PyTorch's own
allocator on the null device, both with the addresses that the GPUs' drivers gave, and on the GPUs.

    three_columns.py --python PYTHON [--bin FOLDER] [FOLDER...]

PYTHON has PyTorch 2.11 or older. The folders have histories and an index.jsonl; without any they
are tests/fixtures/gpu/h100/allocator and the evidence folder's. Private pools and expandable
segments are left out, since cudaMalloc does not give these. Exits with 1 if any block differs, and
with 77 if something is missing.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 77
PLENTY = 250 << 30  # bytes, for a GPU that did not run full
BESIDE = 2 << 20  # bytes beside PyTorch: a page, the least that the null device takes


def default_folders():
    evidence = pathlib.Path(os.environ.get("SHARDLENS_EVIDENCE", ROOT.parent / "shared/evidence"))
    folders = [ROOT / "tests/fixtures/gpu/h100/allocator", evidence / "allocator"]
    return [folder for folder in folders if (folder / "index.jsonl").exists()]


def read_index(folder):
    rows = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    return [{**row, "path": folder / row["file"]} for row in rows]


def is_replayed(row):
    return not row.get("has_private_pools") and "expandable" not in row.get("settings", "")


def by_settings(rows):
    """Returns the histories in groups that one process can replay."""
    groups = {}
    for row in rows:
        key = (row.get("settings", ""), row["capacity_bytes"] or PLENTY)
        groups.setdefault(key, []).append(row["path"])
    return groups


def replay(settings, capacity, paths, options):
    """Returns what PyTorch's allocator did, by file."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [options.bin / "shardlens", "record", "--device", "null:h100", "--capacity",
             str(capacity + BESIDE), "--beside", str(BESIDE), "--out", folder, "--", options.python,
             HERE / "pytorch_replay.py", options.library, *paths],
            env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings}, capture_output=True, text=True)
    lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines()
             if line.startswith("replayed ")]
    if len(lines) != len(paths):
        sys.exit(f"three_columns: {len(lines)} of {len(paths)} histories were replayed; "
                 f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return {found["file"]: found for found in map(json.loads, lines)}


def model_column(options):
    out = subprocess.run([options.bin / "print_gpu_replays", *options.folders],
                         capture_output=True, text=True, check=True).stdout
    return {found["file"]: found for found in map(json.loads, out.splitlines())}


def problems(model, pytorch):
    """Returns what is not as on the GPU."""
    gpu = {"placed_alike": model["allocations"], "retries": model["retries_of_gpu"],
           "reserved_peak": model["reserved_peak_of_gpu"]}
    # PyTorch counts the retry before each failure, too.
    served = {**pytorch, "retries": pytorch["retries"] - pytorch["failures"]}
    found = [f"{name}'s {key} is {column[key]}, not {value}" for key, value in gpu.items()
             for name, column in (("model", model), ("PyTorch", served)) if column[key] != value]
    for key in ("segments", "last_segments"):
        if pytorch[key] != pytorch[f"{key}_of_gpu"]:
            found.append(f"PyTorch's {key} are {pytorch[key]}, not {pytorch[f'{key}_of_gpu']}")
    if pytorch["failures_alike"] != pytorch["failures"]:
        found.append(f"{pytorch['failures_alike']} of {pytorch['failures']} failures are alike")
    return found if pytorch["start_alike"] else ["the first state could not be laid out"]


def print_row(row, model, pytorch, found):
    print(f"{row['file'].split('.')[0]:22} {model['torch']:22} {model['placed_alike']:6} "
          f"{pytorch['placed_alike']:6} {model['allocations']:6} {model['reserved_peak']:12} "
          f"{pytorch['reserved_peak']:12} {model['reserved_peak_of_gpu']:12}  "
          f"{'; '.join(found) or 'alike'}", flush=True)


def compare(options):
    rows = [row for folder in options.folders for row in read_index(folder) if is_replayed(row)]
    model = model_column(options)
    pytorch = {}
    for (settings, capacity), paths in by_settings(rows).items():
        pytorch |= replay(settings, capacity, paths, options)
    print(f"{'history':22} {'PyTorch':22} {'model':>6} {'torch':>6} {'GPU':>6} "
          f"{'model':>12} {'torch':>12} {'GPU':>12}  (blocks placed alike, reserved peak)")
    unlike = 0
    for row in rows:
        found = problems(model[row["file"]], pytorch[row["file"]])
        unlike += bool(found)
        print_row(row, model[row["file"]], pytorch[row["file"]], found)
    blocks = [sum(found["placed_alike"] for file, found in column.items() if file in pytorch)
              for column in (model, pytorch)]
    total = sum(model[file]["allocations"] for file in pytorch)
    print(f"{len(rows)} histories: {blocks[0]} blocks of the model and {blocks[1]} of PyTorch's "
          f"own allocator are placed as {total} on the GPUs")
    return 1 if unlike else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=pathlib.Path, default=default_folders())
    parser.add_argument("--python", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    options = parser.parse_args()
    options.python = options.python.absolute()
    options.library = options.bin.parent / "tests/evidence/libgiven_addresses.so"
    for path in (options.python, options.bin / "print_gpu_replays", options.library):
        if not path.exists():
            print(f"three_columns: skipped: {path} is missing", file=sys.stderr)
            return SKIPPED
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
