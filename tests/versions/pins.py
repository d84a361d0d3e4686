"""Reads which versions of PyTorch the requirement files of .setup/pins are for, and finds the Pythons
that .setup/python makes of them.

All of this folder needs the standard library only.
"""

import dataclasses
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PINS = pathlib.Path(".setup") / "pins"
DEPS = pathlib.Path(os.environ.get("SHARDLENS_DEPS", ROOT / ".deps"))


@dataclasses.dataclass(frozen=True)
class Pin:
    """Holds one line of one file."""

    use: str
    torch: str
    wheel: str  # "torch==2.14.1"


def file_of(use, version=None):
    """Returns the path of a requirement file; without a version, of that which all versions share."""
    return PINS / (f"{use}-{version}.txt" if version else f"{use}.txt")


def requirements_in(path):
    """Returns the lines of a requirement file, without those that include another."""
    lines = (ROOT / path).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("-r ", "#"))]


def read_pins():
    """Returns the pins of all files that are for one version of PyTorch."""
    files = ((file, *file.stem.partition("-")) for file in sorted((ROOT / PINS).glob("*-*.txt")))
    return [Pin(use, torch, line.split()[0])
            for file, use, _, torch in files for line in requirements_in(file)]


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


def base_torch():
    """Returns the version that everything is built with."""
    return (ROOT / PINS / "base").read_text().strip()


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
