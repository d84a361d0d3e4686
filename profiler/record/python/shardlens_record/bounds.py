"""Passes on which workspace sizes are upper bounds of the null device, because only a GPU can tell
them (profiler/null_device/driver/workspace_bounds.h)."""

import ctypes


def stub(name, kind):
    """Returns the null device's function of this name, or None on a real GPU, which has no
    stubs."""
    found = getattr(ctypes.CDLL(None), name, None)
    if found is not None:
        found.restype = kind
    return found


def name_in(recorder_library):
    """Lets the recorder name the allocations that are upper bounds."""
    bound_of_next = stub("shardlens_null_next_bound", ctypes.c_char_p)
    if bound_of_next is not None:
        recorder_library.shardlens_record_name_bounds(bound_of_next)


def doubts():
    told = stub("shardlens_null_bounds", ctypes.c_char_p)
    return told().decode().splitlines() if told is not None else []
