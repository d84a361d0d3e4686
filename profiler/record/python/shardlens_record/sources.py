"""Says which program is recorded: what it takes to run it again, and a fingerprint of its files, so that
a comparison of two recordings can tell whether line 12 of one is line 12 of the other."""

import hashlib
import os
import sys
import sysconfig

from . import OPTIONS, PULLED, program_code

_MOST_FILES = 500
_MOST_BYTES = 4 << 20

_LIBRARIES = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep
                   for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep


def how_it_runs():
    how = {key: OPTIONS[key] for key in ("command", "flags", "directory", "python")}
    return how | ({"levers": PULLED} if PULLED else {})


def _files():
    """Returns the files of the program's modules, without those of Python, packages and this recorder."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    # A package may be a link to another place, so its own path says what it is, too.
    real = {os.path.realpath(path) for path in paths
            if isinstance(path, str) and program_code.is_own(path)}
    return sorted(path for path in real
                  if path.endswith(".py") and not path.startswith((*_LIBRARIES, _OURS)))


def fingerprints():
    """Returns a fingerprint for each name of a file; files of the same name share one."""
    hashes = {}
    for path in _files()[:_MOST_FILES]:
        try:
            with open(path, "rb") as file:
                content = file.read(_MOST_BYTES)
        except OSError:
            continue
        hashes.setdefault(os.path.basename(path), hashlib.sha256()).update(content)
    return {name: found.hexdigest()[:16] for name, found in hashes.items()}
