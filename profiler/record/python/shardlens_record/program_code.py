"""Tells the program's own code from that of PyTorch, of other libraries and of this recorder, for all
that names a line of the program."""

import os
import sys
import sysconfig

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARIES = tuple(sysconfig.get_paths()[name] + os.sep
                   for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PACKAGES = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"

_PYTORCHS = "torch", "torchgen", "functorch"  # its packages, beside each other

_not_outside = [_OURS]  # and PyTorch's folders, once it has been imported


def _find_pytorch():
    file = getattr(sys.modules.get("torch"), "__file__", None)
    if file and len(_not_outside) == 1:
        beside = os.path.dirname(os.path.dirname(file))
        _not_outside.extend(os.path.join(beside, name) + os.sep for name in _PYTORCHS)
    return tuple(_not_outside)


def is_pytorchs(path):
    """Returns True for code of PyTorch, and of this recorder, which PyTorch calls."""
    return path.startswith(_find_pytorch())


def is_own(path):
    """Returns True for code that the program's author has written: in a file, and in no library."""
    return not (path.startswith((*_LIBRARIES, "<")) or is_pytorchs(path)
                or any(map(path.__contains__, _PACKAGES)))


def own_frame(frame):
    """Returns the innermost frame of the program's own code, or None."""
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def frame_outside_pytorch(frame):
    """Returns the innermost frame of the program or of a library that it uses, or the outermost."""
    while frame.f_back and is_pytorchs(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def calls_module(frame):
    """Returns True for the frame in which PyTorch calls a module."""
    code = frame.f_code
    return code.co_name == "_wrapped_call_impl" and code.co_filename.endswith("nn/modules/module.py")


def best(places):
    """Returns the innermost of these places of an error, (path, line) from the outermost on, that is
    the program's own, else the innermost outside of PyTorch, else the innermost; None: no place."""
    own = [place for place in places if is_own(place[0])]
    outside = [place for place in places
               if not is_pytorchs(place[0]) and not place[0].startswith("<frozen")]
    return next((some[-1] for some in (own, outside, places) if some), None)
