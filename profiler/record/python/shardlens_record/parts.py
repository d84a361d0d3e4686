"""Tells the recording which part of a step the program is in, for the parts that functions of Python
begin and end; the recorder itself sees the others. ProgramPart (profiler/recording/profile.h) lists
them."""

import functools
import threading

from .guards import guarded, replace

_PARTS = ("input", "forward", "backward", "optimizer", "communication", "checkpoint")
_INPUT, _OPTIMIZER, _CHECKPOINT = map(_PARTS.index, ("input", "optimizer", "checkpoint"))

_UNKNOWN = "parts of steps may be missing"


class _Program:
    recorder = None
    thread = None  # that trains: others may load or save meanwhile
    stepping = []  # the optimizers whose step has begun, the outermost first


before_saves = []  # functions that are called before a file is written


def begin(recorder):
    _Program.recorder = recorder
    _Program.thread = threading.get_ident()
    _Program.stepping = []


def _takes_time(part, before=()):
    """Returns a wrapper for functions that are a part of the step, and that call others before."""

    def wrap(inner):
        @functools.wraps(inner)
        def call(*args, **kwargs):
            for prepare in before:
                prepare()
            recorder = _Program.recorder
            if recorder is None or threading.get_ident() != _Program.thread:
                return inner(*args, **kwargs)
            recorder.begin_part(part)
            try:
                return inner(*args, **kwargs)
            finally:
                recorder.end_part(part)

        return call

    return wrap


def watch_input(module):
    replace(module._BaseDataLoaderIter, "__next__", _takes_time(_INPUT))


def watch_saves(torch):
    replace(torch.serialization, "save", _takes_time(_CHECKPOINT, before_saves))
    torch.save = torch.serialization.save


def watch_distributed_saves(module):
    for name in ("save", "async_save"):
        replace(module, name, _takes_time(_CHECKPOINT, before_saves))


def watch_safetensors(module):
    replace(module, "save_file", _takes_time(_CHECKPOINT, before_saves))


@guarded(_UNKNOWN)
def begin_optimizer(optimizer):
    if _Program.recorder is None:
        return
    end_optimizer(optimizer)  # its last step failed
    _Program.thread = threading.get_ident()
    _Program.stepping.append(id(optimizer))
    _Program.recorder.begin_part(_OPTIMIZER)


@guarded(_UNKNOWN)
def end_optimizer(optimizer):
    """Ends the step of an optimizer, and of those that began within it and failed."""
    while id(optimizer) in _Program.stepping:
        _Program.stepping.pop()
        _Program.recorder.end_part(_OPTIMIZER)


@guarded(_UNKNOWN)
def end_optimizers():
    """Ends all steps: a program that makes an optimizer now has left those that failed."""
    while _Program.stepping:
        _Program.stepping.pop()
        _Program.recorder.end_part(_OPTIMIZER)
