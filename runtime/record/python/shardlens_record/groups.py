"""Counts the process groups that the program makes on GPUs. On a GPU each is a communicator of NCCL's,
with buffers that no recording of PyTorch's allocator holds: `shardlens record` estimates these."""

import functools
import os

from .guards import guarded, replace

_made = []
_backend_of_world = [None]


def made():
    """Of each group that this rank shares with others: its ranks, and how many are on this node."""
    return list(_made)


def _is_of_gpus(backend):
    """None is all that PyTorch has: NCCL on GPUs."""
    return backend is None or "nccl" in str(backend).lower()


@guarded("a communicator of NCCL's is not counted")
def _note(c10d, ranks, backend):
    own, world = c10d.get_rank(), c10d.get_world_size()
    ranks = range(world) if ranks is None else list(ranks)
    if own not in ranks or len(ranks) < 2 or not _is_of_gpus(backend):
        return
    gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    on_node = sum(rank // gpus == own // gpus for rank in ranks)
    _made.append({"ranks": len(ranks), "on_node": on_node})


def count(c10d):
    def initialising(inner):
        @functools.wraps(inner)
        def init_process_group(backend=None, *args, **kwargs):
            inner(backend, *args, **kwargs)
            _backend_of_world[0] = backend
            _note(c10d, None, backend)

        return init_process_group

    def making(inner):
        @functools.wraps(inner)
        def new_group(ranks=None, timeout=None, backend=None, *args, **kwargs):
            group = inner(ranks, timeout, backend, *args, **kwargs)
            _note(c10d, ranks, backend or _backend_of_world[0])
            return group

        return new_group

    replace(c10d, "init_process_group", initialising)
    replace(c10d, "new_group", making)
