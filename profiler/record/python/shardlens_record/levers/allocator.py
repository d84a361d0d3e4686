"""Changes the settings of PyTorch's allocator, before PyTorch reads them."""

import os

from .. import OPTIONS
from . import sites

_SETTINGS = {"expandable-segments": ("expandable_segments", "True"),
             "max-split": ("max_split_size_mb", None),
             "gc-threshold": ("garbage_collection_threshold", None),
             "roundup": ("roundup_power2_divisions", None)}
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def _variable():
    return next((name for name in _VARIABLES if name in os.environ), _VARIABLES[1])


def _parts():
    text = os.environ.get(_variable(), "")
    return [part for part in text.replace(" ", "").split(",") if part]


def _value_of(lever):
    return _SETTINGS[lever][1] or sites.PULLED[lever]


def _in_use(key):
    return next((part.partition(":")[2] for part in _parts() if part.startswith(key + ":")), None)


_before = {}  # what the environment said of each key


def begin():
    """Adds the settings to the environment of the program."""
    for lever, (key, _) in _SETTINGS.items():
        _before[lever] = _in_use(key)
    for lever, (key, _) in _SETTINGS.items():
        if lever in sites.PULLED:
            parts = [part for part in _parts() if not part.startswith(key + ":")]
            os.environ[_variable()] = ",".join([*parts, f"{key}:{_value_of(lever)}"])


def tell():
    """Notes, once CUDA has been initialised, which settings it was given, and which GPU."""
    now = None if "gpu" in sites.PULLED else OPTIONS["device"].partition(":")[2]
    sites.at("gpu", "another GPU; record --device null:VALUE", now=now)
    for lever, (key, only) in _SETTINGS.items():
        now = _before[lever]
        if lever in sites.PULLED and _in_use(key) != _value_of(lever):
            sites.cannot(lever, f"the program sets {_variable()} itself")
            continue
        shown = now if only is None else "" if now == only else None
        sites.at(lever, f"{_VARIABLES[1]}={key}:{only or 'VALUE'}", now=shown)
