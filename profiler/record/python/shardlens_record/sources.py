"""Takes a fingerprint of the program's files, so that a comparison of two recordings can tell whether
line 12 of one is line 12 of the other."""

import hashlib
import os
import sys
import sysconfig

_MOST_FILES = 500
_MOST_BYTES = 4 << 20

_LIBRARIES = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep
                   for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _files():
    """Returns the files of the program's modules, without those of Python and of packages."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    real = {os.path.realpath(path) for path in paths if isinstance(path, str)}
    return sorted(path for path in real if path.endswith(".py") and not path.startswith(_LIBRARIES))


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
