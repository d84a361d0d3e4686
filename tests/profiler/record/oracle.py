"""Runs a script as Python would, and writes what PyTorch itself says of its memory.

    oracle.py OUT.json SCRIPT ARGUMENTS...

OUT.json has the counters' peaks, and of every event of the allocator's own history, in order, what
it was and of how many bytes.
"""

import gc
import json
import pathlib
import runpy
import sys

import torch


def record_from_the_start():
    """Records once the script has initialised CUDA, not before: until then a device mesh chooses
    the GPU."""
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
    gc.collect()  # else what is part of cycles is freed in the middle of what follows
    trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    said = {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "events": [[entry["action"], entry["size"]] for entry in trace],
    }
    pathlib.Path(out).write_text(json.dumps(said))


main()
