"""Records PyTorch's own memory snapshots on the null device, as fixtures for reading them.

    .setup/peers && .deps/peers/bin/python tests/reference/record_snapshot.py [small] [fsdp2]

writes tests/fixtures/memory_viz: snapshots, and in expected.json what PyTorch's own counters said
about each. Without arguments all are made, each kind in its own process:

  small  whole.pickle has the history from the first allocation on, a stream beside the main one and
         memory that is held back for it, freed segments and a request that fails; late.pickle begins
         when much is alive already.
  fsdp2  fsdp2.pickle.gz is the third training step of PyTorch FSDP2: rank 0 of a world of two, the
         tutorial's model, fp32, a batch of 64, reshard_after_forward. The peaks are those of
         fsdp2_null_peaks.json.

Files are named from the root of the repository, or of the folder of PyTorch's package.
"""

import gzip
import json
import os
import pathlib
import pickle
import sys

import torch

import fsdp2_null
import null_runs
import programs

FOLDER = programs.ROOT / "tests" / "fixtures" / "memory_viz"
PACKAGES = pathlib.Path(torch.__file__).parent.parent


def use_memory():
    """Makes two training steps of a small model, uses a second stream, fails, and frees memory."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8))
    model = model.to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for _ in range(2):
        model(torch.empty(64, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        shared = torch.empty(3 << 20, device="cuda")
    shared.record_stream(torch.cuda.current_stream())
    del shared
    try:
        torch.empty(1 << 40, device="cuda")
    except torch.OutOfMemoryError:
        pass
    large = torch.empty(40 << 20, device="cuda")
    del large
    torch.cuda.empty_cache()
    return model, optimizer, torch.empty(777, device="cuda")


def shortened(value):
    """Returns a snapshot's part without this machine's folders in file names."""
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: shortened(item) for key, item in value.items()}
    if "filename" in value:
        for root in (f"{PACKAGES}/", f"{programs.ROOT}/"):
            value["filename"] = value["filename"].replace(root, "")
    return value


def start_history():
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", clear_history=True)


def record(name, protocol):
    """Writes the snapshot and what the counters say about that moment."""
    snapshot = shortened(torch.cuda.memory._snapshot())
    pickled = pickle.dumps(snapshot, protocol)
    # Packing always gives the same bytes.
    packed = gzip.compress(pickled, mtime=0) if name.endswith(".gz") else pickled
    (FOLDER / name).write_bytes(packed)
    counted = {
        "allocated_bytes": torch.cuda.memory_allocated(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "requested_bytes": torch.cuda.memory_stats()["requested_bytes.all.current"],
        "entries": len(snapshot["device_traces"][0]),
    }
    path = FOLDER / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    expected[name.partition(".")[0]] = counted
    path.write_text(json.dumps(expected, indent=2) + "\n")


def record_small():
    start_history()
    alive = [use_memory()]
    record("whole.pickle", protocol=4)
    torch.cuda.memory._record_memory_history(enabled=None)
    start_history()
    alive[0] = use_memory()
    record("late.pickle", protocol=2)


def record_fsdp2():
    options = fsdp2_null.parse_options(["--model", "vit-tutorial", "--world", "2", "--variant", "root"])
    fsdp2_null.join_world(options.rank, options.world)
    step = fsdp2_null.make_step(options)
    start_history()
    step()
    record("fsdp2.pickle.gz", protocol=4)
    os._exit(0)  # see fsdp2_null.measure_in_child


RECORDINGS = {"small": record_small, "fsdp2": record_fsdp2}


def main():
    names = sys.argv[1:] or list(RECORDINGS)
    environment = null_runs.null_device_environment()
    FOLDER.mkdir(exist_ok=True)
    if len(names) > 1:
        for name in names:
            programs.run([sys.executable, sys.argv[0], name], environment)
    elif os.environ.get("LD_PRELOAD") != environment["LD_PRELOAD"]:
        # The libraries only count if they exist before PyTorch is loaded.
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    else:
        RECORDINGS[names[0]]()


if __name__ == "__main__":
    main()
