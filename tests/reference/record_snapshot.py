"""Records PyTorch's own memory snapshots on the null device, as fixtures for reading them.

    .setup/peers && .deps/peers/bin/python tests/reference/record_snapshot.py

writes tests/fixtures/memory_viz/{whole,late}.pickle and expected.json. `whole` has the history from
the first allocation on, a stream beside the main one and memory that is held back for it, freed
segments and a request that fails; `late` begins when much is alive already. expected.json has what
PyTorch's own counters said of both. Files are named from the root of the repository, or of the
folder of PyTorch's package.
"""

import json
import os
import pathlib
import pickle
import sys

import torch

import null_runs
import programs

FOLDER = programs.ROOT / "tests" / "fixtures" / "memory_viz"
PACKAGES = pathlib.Path(torch.__file__).parent.parent


def use_memory():
    """Two training steps of a small model, a second stream, a failure and a return of memory."""
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
    """Without this machine's folders."""
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: shortened(item) for key, item in value.items()}
    if "filename" in value:
        for root in (f"{PACKAGES}/", f"{programs.ROOT}/"):
            value["filename"] = value["filename"].replace(root, "")
    return value


def record(name, protocol):
    snapshot = shortened(torch.cuda.memory._snapshot())
    (FOLDER / f"{name}.pickle").write_bytes(pickle.dumps(snapshot, protocol))
    return {
        "allocated_bytes": torch.cuda.memory_allocated(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "requested_bytes": torch.cuda.memory_stats()["requested_bytes.all.current"],
        "entries": len(snapshot["device_traces"][0]),
    }


def main():
    environment = null_runs.null_device_environment()
    if os.environ.get("LD_PRELOAD") != environment["LD_PRELOAD"]:
        # The libraries count only where they are there before PyTorch is loaded.
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    FOLDER.mkdir(exist_ok=True)
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
    alive = [use_memory()]
    expected = {"whole": record("whole", protocol=4)}
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", clear_history=True)
    alive[0] = use_memory()
    expected["late"] = record("late", protocol=2)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    main()
