"""Runs a published script as it is and, when it ends, writes the peaks that PyTorch counted since
the script last reset them: for published_peaks.py.

    published_program.py PEAKS.json SCRIPT ARGUMENTS...

What the script would compute on the host to initialise its parameters is left out, since it takes
minutes and changes no byte on the GPU.
"""

import atexit
import json
import pathlib
import runpy
import sys

import torch


def write_peaks(path):
    peaks = {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
    }
    pathlib.Path(path).write_text(json.dumps(peaks))


def main():
    out, script = sys.argv[1], sys.argv[2]
    del sys.argv[:2]
    torch.nn.init.trunc_normal_ = lambda tensor, *_, **__: tensor
    atexit.register(write_peaks, out)
    folder, name = pathlib.Path(script).parent, pathlib.Path(script).stem
    sys.path[:1] = [str(folder), str(folder.parent), str(folder.parent / "cs336-basics")]
    runpy.run_module(f"{folder.name}.{name}", run_name="__main__", alter_sys=True)


main()
