"""Runs a Python program under PyTorch's profiler: trace.py FILE.json.gz PROGRAM [ARGUMENT...]

FILE gets the Chrome trace of the CPU and of the GPU, with the operators' shapes; standard output gets
a line of JSON with the bytes that the device has free and what PyTorch reserves."""

import json
import os
import runpy
import sys

import torch
from torch.profiler import ProfilerActivity, profile


def main():
    out, program, *arguments = sys.argv[1:]
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=True) as profiler:
        runpy.run_path(program, run_name="__main__")
        torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    profiler.export_chrome_trace(out)
    reserved = torch.cuda.memory_reserved()
    print(json.dumps({"free_bytes": free, "total_bytes": total, "reserved_bytes": reserved}))


if __name__ == "__main__":
    main()
