"""Answers programs that time the GPU, on a null device, where nothing takes time.

The time between two events is predicted from the trace of work, if one is made: the recorder asks
the planner when each of the two happens. Without a trace it is 1 ms, which is a doubt about the
recording. What chooses kernels by trying them, or only logs, always gets that 1 ms: a prediction
would have it choose by what is not known, and costs time."""

import ctypes
import os
import sys

from . import bounds, program_code
from .guards import replace, say

_TUNERS = (f"{os.sep}torch{os.sep}_inductor{os.sep}", os.path.join("triton", "runtime", "autotuner.py"))
_LOGGER = os.path.join("torch", "nn", "parallel", "distributed.py")  # DDP's, which calls from C++

_UNTRACED = "no trace of work is made: record with --time"

_reads = {}  # how often each line of the program has read a time
_callback = []  # keeps what the null device calls


# --- the time between two events ------------------------------------------------------------------


def _reader(frame):
    """Returns the line that reads a time, or None if that is a tuner, a logger, or not Python's."""
    if frame is None or frame.f_code.co_filename.endswith(_LOGGER):
        return None
    outer = frame
    while outer is not None:
        if any(map(outer.f_code.co_filename.__contains__, _TUNERS)):
            return None
        outer = outer.f_back
    place = program_code.own_frame(frame) or program_code.frame_outside_pytorch(frame)
    return f"{os.path.basename(place.f_code.co_filename)}:{place.f_lineno}"


def _note_read():
    """Returns True if the program reads a time, which is to be predicted. Called by the null
    device."""
    try:
        place = _reader(sys._getframe().f_back)
        if place is not None:
            _reads[place] = _reads.get(place, 0) + 1
        return place is not None
    except Exception:  # pylint: disable=broad-except
        return True


def begin():
    ask = bounds.stub("shardlens_null_ask_for_elapsed", None)
    if ask is None:
        return
    _callback[:] = [ctypes.CFUNCTYPE(ctypes.c_bool)(_note_read)]
    ask(_callback[0])


def end():
    ask = bounds.stub("shardlens_null_ask_for_elapsed", None)
    if ask is not None:
        ask(None)


def reads(predicted):
    """Returns how often the program has read the time between two events, and where."""
    total = sum(_reads.values())
    return {"predicted": predicted, "constant": max(total - predicted, 0), "places": list(_reads)}


def doubts(predicted, traces_work, fault):
    """Returns what is in doubt if a program has read times that are not predicted."""
    found = reads(predicted)
    if predicted > 0:
        say(f"the program reads times between events ({_places()}): they are predicted, not measured")
    if found["constant"] == 0:
        return []
    why = _UNTRACED if not traces_work else fault or "an event has none"
    return [f"{found['constant']} times between events that the program has read ({_places()}) are 1 "
            f"ms each, not real: {why}"]


def _places():
    first = next(iter(_reads), "an unknown line")
    return first if len(_reads) < 2 else f"{first} and {len(_reads) - 1} more"


# --- Triton's autotuner ---------------------------------------------------------------------------


_NEVER = float("inf")  # Triton's time of a kernel that cannot be launched


def take_first(module):
    """Makes Triton take the first of its kernels that can be launched: the others need not be
    compiled. Changes both questions of Triton's autotuner: for each choice it asks which kernels are
    candidates, then how long each takes. The first that can be launched wins."""
    tuner = module.Autotuner

    def pruning(inner):
        def prune_configs(self, *args, **kwargs):
            self._shardlens_chosen = False
            return inner(self, *args, **kwargs)

        return prune_configs

    def timing(inner):
        def bench(self, *args, **kwargs):
            if getattr(self, "_shardlens_chosen", False):
                return [_NEVER] * 3
            times = inner(self, *args, **kwargs)
            self._shardlens_chosen = times[0] != _NEVER
            return times

        return bench

    replace(tuner, "prune_configs", pruning)
    replace(tuner, "_bench", timing)
