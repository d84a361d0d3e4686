"""Writes down how far this process got, so that `shardlens record` can say why nothing was recorded
or why a program failed. Each process has a file named by its id, with one JSON object a line, which
survives however the process ends. profiler/record/accounts.h reads it."""

import atexit
import json
import os
import sys
import time

from . import ASKED_FOR, IS_SERVER, OPTIONS, program_code
from .guards import describe, in_one_line

_OUT_OF_MEMORY = ("CUDA out of memory", "CUDA error: out of memory", "failure 2 'out of memory'",
                  "CUBLAS_STATUS_ALLOC_FAILED")
_once = set()


def _waits_for_variants():
    if not IS_SERVER:
        return False
    from . import warm

    return warm.is_waiting


def tell(what, text=""):
    """Appends a line to the process's file. It never raises."""
    if ASKED_FOR or _waits_for_variants():
        return  # this process is not one of the command's own
    try:
        line = json.dumps({"what": what, "text": text, "time": time.time()})
        path = os.path.join(OPTIONS["accounts"], str(os.getpid()))
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except Exception:  # pylint: disable=broad-except
        pass


def tell_once(what, text=""):
    """Appends a line only the first time. A forked process writes its own line, whatever its parent
    has written."""
    if (os.getpid(), what) not in _once:
        _once.add((os.getpid(), what))
        tell(what, text)


# --- uncaught errors ------------------------------------------------------------------------------


def _place(error):
    """Returns where the program's own code raised the error, such as "train.py:30"."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}:{error.lineno}"
    places, trace = [], error.__traceback__
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    path, line = program_code.best(places) or ("", 0)
    return f"{os.path.basename(path)}:{line}" if path else ""


def _is_out_of_memory(error):
    """Returns True if the error, or one that it was raised from or during, says that memory ran
    out."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = str(error)
        if type(error).__name__ == "OutOfMemoryError" or any(map(text.__contains__, _OUT_OF_MEMORY)):
            return True
        error = error.__cause__ or error.__context__
    return False


def tell_raised(error):
    """Writes down an error that ends the process, with its place."""
    try:
        place = in_one_line(_place(error))
        text = describe(error) + (f" ({place})" if place else "")
        tell_once("import_error" if isinstance(error, ImportError) else "raised", text)
        if _is_out_of_memory(error):
            tell_once("out_of_memory", describe(error))
    except Exception as other:  # pylint: disable=broad-except
        tell("raised", describe(other))


# --- the process ----------------------------------------------------------------------------------


def _module_asked_for():
    """Returns the module that `python -m MODULE` named and Python did not find, or None. Once a module
    is found, sys.argv[0] is its file instead of "-m"."""
    if not sys.argv or sys.argv[0] != "-m":
        return None
    words = sys.orig_argv
    place = next((i for i, word in enumerate(words) if word.startswith("-m")), None)
    if place is None:
        return None
    return words[place][2:] or " ".join(words[place + 1:place + 2])


def _tell_end():
    """Writes down at exit why the program ended. Python keeps the error whose traceback it
    printed."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        return tell_raised(error)
    module = _module_asked_for()
    if module is not None:
        tell("no_module", in_one_line(module))
    return None


def begin():
    """Writes down the start and whether the script exists. It runs before the program, so Python
    has not yet looked for the script."""
    tell("started", sys.executable)
    script = sys.argv[0] if sys.argv else ""
    if script not in ("", "-", "-c", "-m") and not os.path.exists(script):
        tell("no_script", in_one_line(os.path.join(os.getcwd(), script)))
    atexit.register(_tell_end)
