"""Calls the recorder in C++ for recording.py; profiler/recorder/python/python.h says what each
call does."""

import ctypes
import sys

from . import OPTIONS, bounds, counters, experts
from .guards import say

_OPTIONS = ("event_times", "calibration")
_TEXTS = ("path", "device", "notice", "libraries", "config", *_OPTIONS)
_NUMBERS = ("rank", "world_size", "gpu", "is_attached", "recorded_gpu", "has_work")


_TYPES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class _Start(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in _TEXTS]
    _fields_ += [(name, ctypes.c_int32) for name in _NUMBERS]


class _End(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in (
        "events", "lost_events", "retries", "allocations", "allocated_bytes", "reserved_bytes",
        "peak_allocated_bytes", "peak_reserved_bytes", "gpu", "predicted_times")]


_LOOK = ctypes.PYFUNCTYPE(None)  # is called with Python's lock


def load():
    library = ctypes.PyDLL(OPTIONS["library"])  # keeps Python's lock
    library.shardlens_record_begin.restype = ctypes.c_char_p
    library.shardlens_record_driver_fault.restype = ctypes.c_char_p
    library.shardlens_record_event_fault.restype = ctypes.c_char_p
    library.shardlens_record_end.restype = ctypes.c_bool
    library.shardlens_set_routing.argtypes = [ctypes.c_int32, ctypes.c_double]
    library.shardlens_place_experts.argtypes = [ctypes.c_int64, ctypes.c_int64]
    library.shardlens_record_step.argtypes = [ctypes.c_int64]
    for report in (library.shardlens_record_begin_part, library.shardlens_record_end_part):
        report.argtypes = [ctypes.c_int32]
    library.shardlens_record_name.argtypes = [ctypes.c_char_p]
    library.shardlens_record_name.restype = ctypes.c_uint32
    library.shardlens_record_group.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_int32),
                                               ctypes.c_int32]
    library.shardlens_record_name_next.argtypes = [ctypes.c_uint32]
    for report in (library.shardlens_record_recategorise, library.shardlens_record_classify):
        report.argtypes = [ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint32]
    library.shardlens_record_all_reduce.argtypes = [ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32,
                                                    ctypes.c_int64, ctypes.c_char_p]
    library.shardlens_record_await_forward.argtypes = [_LOOK]
    library.shardlens_record_name_module.argtypes = [ctypes.c_uint64] + [ctypes.c_char_p] * 2
    library.shardlens_record_forget_module.argtypes = [ctypes.c_uint64]
    library.shardlens_record_compiled.argtypes = [ctypes.c_char_p] * 4 + [ctypes.c_int32]
    library.shardlens_record_share_history.argtypes = [ctypes.c_int32, ctypes.c_int64,
                                                       ctypes.c_int32]
    return library


def follow_values(library):
    experts.follow(library)
    library.shardlens_follow_known_values()


class Failure(Exception):
    """Says why there is no recording."""


class Recorder:
    ENDING = "slp"  # of the file that it writes

    def __init__(self, start):
        library = load()
        start = start | {name: OPTIONS.get(name, "") for name in _OPTIONS}
        texts = {name: start[name].encode() for name in _TEXTS}
        numbers = {name: int(start[name]) for name in _NUMBERS}
        failure = library.shardlens_record_begin(ctypes.byref(_Start(**texts, **numbers)))
        if failure:
            raise Failure(failure.decode())
        fault = library.shardlens_record_driver_fault()
        if fault:
            say(f"{fault.decode()}: what is allocated outside PyTorch is not recorded")
        if not start["is_attached"]:
            follow_values(library)
            bounds.name_in(library)
        self.step = library.shardlens_record_step
        self.recategorise = library.shardlens_record_recategorise
        self.classify = library.shardlens_record_classify
        self.name_next = library.shardlens_record_name_next
        self.begin_part = library.shardlens_record_begin_part
        self.end_part = library.shardlens_record_end_part
        self.begin_backward = library.shardlens_record_begin_backward
        self.end_backward = library.shardlens_record_end_backward
        self.forget_module = library.shardlens_record_forget_module
        self.find_workspaces = library.shardlens_record_workspaces
        self.leave_driver = library.shardlens_record_leave_driver
        self.share_history = library.shardlens_record_share_history
        self.await_collectives = library.shardlens_record_await_collectives
        self._library = library
        self._look = None  # the function that is called in a forward

    def name(self, text):
        return self._library.shardlens_record_name(text.encode(errors="replace"))

    def name_module(self, module, path, class_name):
        texts = [text.encode(errors="replace") for text in (path, class_name)]
        self._library.shardlens_record_name_module(module, *texts)

    def group(self, name, ranks):
        numbers = (ctypes.c_int32 * len(ranks))(*ranks)
        self._library.shardlens_record_group(name.encode(errors="replace"), numbers, len(ranks))

    def all_reduce(self, group, tensor):
        """Adds what DDP's reducer asks for to the trace of work."""
        name = group.group_name.encode(errors="replace")
        kind = _TYPES.get(str(tensor.dtype).removeprefix("torch."), "unknown").encode()
        self._library.shardlens_record_all_reduce(name, group.size(), group.rank(), tensor.nbytes,
                                                  kind)

    def await_forward(self, look):
        """Calls `look` in Python's main thread, once, during the next forward."""
        if self._look is None:
            self._look = _LOOK(look)
        self._library.shardlens_record_await_forward(self._look)

    def compiled(self, graph, node, place, module, is_backward):
        texts = [text.encode(errors="replace") for text in (graph, node, place, module)]
        self._library.shardlens_record_compiled(*texts, is_backward)

    def event_fault(self):
        """Returns why times between events cannot be predicted, or None."""
        fault = self._library.shardlens_record_event_fault()
        return fault.decode() if fault else None

    def end(self):
        """Ends the recording and returns its counters, or None if there was none."""
        found = _End()
        if not self._library.shardlens_record_end(ctypes.byref(found)):
            return None
        since_reset = {name: getattr(found, name) for name, _ in _End._fields_}
        return counters.over_resets(found.gpu, since_reset)
