"""Runs a Python program and keeps what PyTorch's own allocator did:

    keep_history.py FILE PROGRAM [ARGUMENT...]

FILE gets one JSON object: every event of PyTorch's memory history with its address, the segments at
the end, the allocator's counters, and the bytes that the device has free and that NVML counts for
this process. The history begins before the program's first allocation and has no stacks."""

import json
import os
import runpy
import sys

import torch

MOST_EVENTS = 4_000_000
COUNTERS = (
    "allocated_bytes.all.peak",
    "allocated_bytes.all.current",
    "requested_bytes.all.peak",
    "reserved_bytes.all.peak",
    "reserved_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
)


def process_bytes():
    """Returns what NVML counts for this process, or None."""
    try:
        import pynvml  # pylint: disable=import-outside-toplevel

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        found = {
            one.pid: one.usedGpuMemory
            for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        return found.get(os.getpid(), max(found.values(), default=None))
    except Exception:  # pylint: disable=broad-except
        return None


def block(one, address):
    found = [one.get("address", address), one["size"], one.get("requested_size"), one["state"]]
    return found, found[0] + one["size"]


def segment(one):
    blocks, address = [], one["address"]
    for each in one["blocks"]:
        row, address = block(each, address)
        blocks.append(row)
    return {
        "address": one["address"],
        "bytes": one["total_size"],
        "stream": one["stream"],
        "type": one["segment_type"],
        "pool": one.get("segment_pool_id"),
        "expandable": one.get("is_expandable", False),
        "blocks": blocks,
    }


def event(one):
    address = one.get("addr", one.get("device_free", 0))
    return [one["action"], address, one["size"], one["stream"], one.get("time_us")]


def history():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    snapshot = torch.cuda.memory._snapshot()  # pylint: disable=protected-access
    stats = torch.cuda.memory_stats()
    device = torch.cuda.current_device()
    return {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "counters": {name: stats.get(name) for name in COUNTERS},
        "free_bytes": free,
        "total_bytes": total,
        "process_bytes": process_bytes(),
        "events": [event(one) for one in snapshot["device_traces"][device]],
        "segments": [segment(one) for one in snapshot["segments"]],
    }


def main():
    out, program, *arguments = sys.argv[1:]
    torch.cuda.memory._record_memory_history(  # pylint: disable=protected-access
        context=None, max_entries=MOST_EVENTS
    )
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    code = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ending:
        code = ending.code
    with open(out, "w", encoding="utf-8") as file:
        json.dump(history(), file)
    sys.exit(code)


if __name__ == "__main__":
    main()
