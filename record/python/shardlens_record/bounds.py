"""Passes on the sizes of workspaces that only a GPU tells, and for which the null device gives
upper bounds (null_device/driver/workspace_bounds.h)."""

import ctypes


def _stub(name, kind):
    """Returns the null device's function of this name, or None on a real GPU, which has no
    stubs."""
    stub = getattr(ctypes.CDLL(None), name, None)
    if stub is not None:
        stub.restype = kind
    return stub


def name_in(recorder_library):
    """Lets the recorder name the allocations that are upper bounds."""
    bound_of_next = _stub("shardlens_null_next_bound", ctypes.c_char_p)
    if bound_of_next is not None:
        recorder_library.shardlens_record_name_bounds(bound_of_next)


def doubts():
    told = _stub("shardlens_null_bounds", ctypes.c_char_p)
    return told().decode().splitlines() if told is not None else []
