"""Counts the process groups that the program makes on GPUs. On a GPU each is an NCCL communicator,
with buffers that no recording of PyTorch's allocator holds: `shardlens record` estimates these."""

import functools
import os

from . import bounds, experts
from .guards import guarded, replace

_made = []
_all_ranks = []  # of each group that any rank shares
_ranks_by_name = {}
_recorder = None  # once there is one


def made():
    """Returns, for each group that this rank shares with others, how many ranks it has and how many
    of these are on this node, as {"ranks": 8, "on_node": 4}."""
    return list(_made)


def all_ranks():
    """Returns the ranks of each group that the program made, with or without this rank, and without
    repetition. `--ranks roles` uses them to find which ranks differ (profiler/record/roles.h)."""
    return [list(ranks) for ranks in dict.fromkeys(_all_ranks)]


def tell(recorder):
    """Tells the recorder the name and the ranks of each group, also of those that are made later."""
    global _recorder  # pylint: disable=global-statement
    _recorder = recorder
    for name, ranks in _ranks_by_name.items():
        recorder.group(name, ranks)


def _note_name(name, ranks):
    _ranks_by_name[name] = ranks
    if _recorder is not None:
        _recorder.group(name, ranks)


def tell_reduced(group, tensor):
    """Tells the recorder that DDP would now reduce a tensor over the group."""
    if _recorder is not None:
        _recorder.all_reduce(group, tensor)


def _is_of_gpus(backend):
    """Returns True for NCCL, which PyTorch also takes on GPUs if no backend was named."""
    return backend == "undefined" or "nccl" in backend


@guarded("a communicator of NCCL's is not counted")
def _note(c10d, group=None):
    if group is c10d.GroupMember.NON_GROUP_MEMBER:
        return
    own, ranks = c10d.get_rank(), c10d.get_process_group_ranks(group)
    _note_name((group or c10d._get_default_group()).group_name, ranks)
    if len(ranks) < 2 or not _is_of_gpus(c10d.get_backend(group)):
        return
    gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    on_node = sum(rank // gpus == own // gpus for rank in ranks)
    _made.append({"ranks": len(ranks), "on_node": on_node})
    # On the null device the communicator's buffers are taken from the device's memory.
    take_nccl = bounds.stub("shardlens_null_take_nccl", None)
    if take_nccl is not None:
        take_nccl(len(ranks), on_node)


@guarded("ranks that differ may be missed")
def _note_ranks(ranks):
    if ranks is not None:
        _all_ranks.append(tuple(int(rank) for rank in ranks))


def count(c10d):
    """Counts the groups that the program makes from now on. It is called after collectives.py has
    replaced PyTorch's functions, because its get_backend returns the backends that were asked for."""

    def initialising(inner):
        @functools.wraps(inner)
        def init_process_group(*args, **kwargs):
            inner(*args, **kwargs)
            _note(c10d)

        return init_process_group

    def making(inner):
        @functools.wraps(inner)
        def new_group(ranks=None, *args, **kwargs):
            group = inner(ranks, *args, **kwargs)
            _note(c10d, group)
            _note_ranks(ranks)
            experts.note_group(c10d, group, kwargs.get("group_desc"))
            return group

        return new_group

    replace(c10d, "init_process_group", initialising)
    replace(c10d, "new_group", making)
