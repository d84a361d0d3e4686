"""Runs a script as Python would, and writes what PyTorch itself says about its memory.

    oracle.py OUT.json SCRIPT ARGUMENTS...

OUT.json has the counters' peaks, and the kind and bytes of every event of the allocator's own
history, in order.
"""

import gc
import json
import pathlib
import runpy
import sys

import torch


def record_from_the_start():
    """Starts to record after the script has initialised CUDA: a device mesh chooses the GPU
    before."""
    inner = torch._C._cuda_init

    def init():
        inner()
        torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python")

    torch._C._cuda_init = init


def main():
    out, script = sys.argv[1], sys.argv[2]
    del sys.argv[:2]
    sys.path[0] = str(pathlib.Path(script).parent)
    record_from_the_start()
    runpy.run_path(script, run_name="__main__")
    gc.collect()  # else objects in cycles are freed at any later time
    trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    said = {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "events": [[entry["action"], entry["size"]] for entry in trace],
    }
    pathlib.Path(out).write_text(json.dumps(said))


main()
