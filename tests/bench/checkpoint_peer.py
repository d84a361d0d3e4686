"""Measures dcp.save and dcp.load of a state of some GB, sharded over CPU ranks with Gloo.

The state is that of tests/support/programs/measure_checkpoints.cpp: weights and two moments, fp32,
each rank with its rows as DTensors. Between saving and loading the files are dropped from the page
cache. Prints one line of JSON.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "reference"))
import tutorial  # noqa: E402

TENSORS, COLUMNS, COPIES = 21, 2080, 3


def make_state(mesh, world_size, megabytes):
    rows = (megabytes << 20) // (4 * COPIES * TENSORS * COLUMNS) // world_size

    def tensor():
        return DTensor.from_local(torch.rand(rows, COLUMNS), mesh, [Shard(0)])

    names = [f"layer{i}.weight" for i in range(TENSORS)]
    moments = {name: {"exp_avg": tensor(), "exp_avg_sq": tensor()} for name in names}
    return {"model": {name: tensor() for name in names}, "optim": {"state": moments}}


def drop_from_cache(folder):
    for path in pathlib.Path(folder).iterdir():
        with open(path, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(call):
    dist.barrier()
    start = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - start


def measure(rank, world_size, options):
    state = make_state(tutorial.make_mesh(world_size), world_size, options.megabytes)
    write_s = timed(lambda: dcp.save(state, checkpoint_id=options.folder))
    if rank == 0:
        drop_from_cache(options.folder)
    read_s = timed(lambda: dcp.load(state, checkpoint_id=options.folder))
    if rank == 0:
        size = sum(path.stat().st_size for path in pathlib.Path(options.folder).iterdir())
        print(json.dumps({"bytes": size, "write_s": write_s, "read_s": read_s}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=2048)
    options = parser.parse_args()
    tutorial.run_ranks(options.workers, 1, measure, options)


if __name__ == "__main__":
    main()
