"""Finds the places of the program where a lever acts, and writes them into the process's account: with
a lever pulled, `shardlens record` learns from there that it acted; with `look`, which levers apply."""

import json
import os
import sys
import types

from .. import IS_SERVER, OPTIONS, PULLED, account, program_code
from ..guards import in_one_line

LOOKS = bool(OPTIONS.get("look")) or IS_SERVER  # which installs all hooks
_MOST_PLACES = 40  # of one lever

_told = set()


def begin():
    """Takes the levers of a variant, in a process that was forked for it."""
    global LOOKS
    PULLED.clear()
    PULLED.update(OPTIONS.get("levers") or {})
    LOOKS = bool(OPTIONS.get("look"))


def is_wanted(*levers):
    """Returns True if the program must be watched for one of these levers."""
    return LOOKS or any(lever in PULLED for lever in levers)


def _place():
    """Returns where the program's own code is, such as "/home/me/train.py:30"; "" if there is none."""
    frame = program_code.own_frame(sys._getframe(1))
    if frame is None:
        return ""
    return in_one_line(f"{os.path.abspath(frame.f_code.co_filename)}:{frame.f_lineno}")


def _tell(what, lever, **more):
    text = json.dumps({"lever": lever, **more})
    key = (os.getpid(), what, lever)
    if (key, text) in _told or sum(told[0] == key for told in _told) >= _MOST_PLACES:
        return
    _told.add((key, text))
    account.tell(what, text)


def at(lever, code, now=None, value=None):
    """Notes that the program is at a place where the lever acts. `code` is what one would write there,
    with VALUE for the value; `now` is the value in use, if it is one of the lever's; `value` limits the
    place to one value. Returns the value to apply, or None: the place stays as it is."""
    wanted = PULLED.get(lever)
    if wanted is not None and value is not None and wanted != value:
        return None
    if wanted is not None or LOOKS:
        shown = code.replace("VALUE", wanted or "VALUE")
        _tell("lever", lever, code=shown, now=now, value=value, where=_place())
    return None if wanted == now else wanted


def cannot(lever, why, value=""):
    """Notes why a lever, with values that begin so, cannot act in this program: a run that pulls it is
    not recorded."""
    if is_wanted(lever):
        _tell("lever_cannot", lever, why=in_one_line(why), value=value)


def replace(owner, name, wrap):
    """Replaces owner.name with wrap(owner.name), once, whatever the recorder has replaced before."""
    inner = getattr(owner, name)
    if getattr(inner, "of_lever", False):
        return
    outer = wrap(inner)
    outer.of_lever = True
    setattr(owner, name, outer)


def replace_method(one, name, call):
    """Replaces a method of one object. PyTorch's schedulers bind an optimizer's step again, so it must be
    a method, too."""
    setattr(one, name, types.MethodType(call, one))


def named_dtype(torch, name):
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]


def name_of_dtype(torch, dtype):
    names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
    return names.get(dtype)


class Own:
    """Tells whether code runs that a lever has called, which a lever must not change again."""

    def __init__(self):
        self.depth = 0

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
