"""Reads which versions of PyTorch .setup/pins.txt names, and finds the Pythons that .setup/python
makes from them.

All of this folder only needs the standard library.
"""

import dataclasses
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PINS = ROOT / ".setup" / "pins.txt"
DEPS = pathlib.Path(os.environ.get("SHARDLENS_DEPS", ROOT / ".deps"))


@dataclasses.dataclass(frozen=True)
class Pin:
    """Holds one line of the file."""

    use: str
    torch: str
    wheel: str  # "torch==2.14.1"


def read_pins(path=PINS):
    lines = (line.split() for line in path.read_text().splitlines())
    return [Pin(*words[:3]) for words in lines if words and not words[0].startswith("#")]


def minor_of(version):
    """Returns "2.14" for "2.14" and for "2.14.1"."""
    return ".".join(version.split(".")[:2])


def order_of(version):
    """Returns the key that sorts versions by age: 2.9 comes before 2.10."""
    return [int(part) for part in version.split(".")]


def versions_of(use, pins):
    """Returns the versions that have lines for this use, the oldest first."""
    versions = {pin.torch for pin in pins if pin.use == use and pin.torch != "any"}
    return sorted(versions, key=order_of)


def base_torch(pins):
    """Returns the version with which everything is built."""
    return next(pin.torch for pin in pins if pin.use == "libtorch")


def python_of(use, version):
    return DEPS / f"{use}-{version}" / "bin" / "python"


def recorded_pythons(pins):
    """Returns the Python of each minor version with which programs are recorded, the oldest first:
    the one of .setup/python if it exists, else the one of .setup/python recorded."""
    pythons = {version: python_of("recorded", version) for version in versions_of("recorded", pins)}
    for version in versions_of("libtorch", pins):
        if (python := python_of("python", version)).exists():
            pythons[minor_of(version)] = python
    return {version: pythons[version] for version in sorted(pythons, key=order_of)}
