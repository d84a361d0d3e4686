"""Makes a Python that has one version of PyTorch, as .setup/python makes those of the pins, and the
requirement file with which .setup/pins would pin it.

pip says which wheels belong to the version. Of these, the ones that the pins have for the newest
recorded version are installed, and nothing else from NVIDIA.
"""

import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pins

WHEELS_PYTHON = (3, 11)  # .setup/pins has wheels for it
NEW_PINS = ".new_pins"  # what pins a Python that is not in .setup/pins yet
VISION = ("torchvision", "pillow")  # the engine is compared by torchvision's models


class Failure(Exception):
    """Says in a line why there is no such Python."""


@dataclasses.dataclass(frozen=True)
class Wheel:
    name: str
    version: str
    sha256: str

    def requirement(self):
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclasses.dataclass(frozen=True)
class NewPins:
    """Holds a requirement file that .setup/pins lacks."""

    version: str
    requirements: list[str]

    def text(self):
        return "".join(f"{line}\n" for line in ["-r recorded.txt", *self.requirements])


@dataclasses.dataclass(frozen=True)
class Installed:
    python: pathlib.Path
    vision: pathlib.Path | None  # the folder that has torchvision, if the Python itself lacks it
    new_pins: NewPins | None

    def packages(self):
        return next(self.python.parent.parent.glob("lib/python3*/site-packages"))

    def torch(self):
        """Returns the folder of the torch package."""
        packages = self.packages()
        if (packages / "torch").is_dir():
            return packages / "torch"
        return pathlib.Path((packages / "torch.pth").read_text().strip()) / "torch"


def check_name(version):
    """Raises Failure if the name already says that pip has nothing."""
    if not re.fullmatch(r"2\.\d+(\.\d+)?", version):
        raise Failure(f"'{version}' is not a version of PyTorch 2; give one such as 2.16 or 2.16.0")
    if sys.version_info[:2] != WHEELS_PYTHON:
        raise Failure("this is Python {}.{}, but the wheels are for {}.{}; start it with that "
                      "python3".format(*sys.version_info[:2], *WHEELS_PYTHON))


def _pip(python, *arguments):
    options = ["--disable-pip-version-check", "--no-input", "--root-user-action=ignore", "--quiet"]
    done = subprocess.run([python, "-m", "pip", "install", *options, *arguments],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        said = (errors or done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise Failure(f"pip cannot install it, and says: {said.removeprefix('ERROR: ')}")


def _make_environment(folder, *flags):
    done = subprocess.run([sys.executable, "-m", "venv", *flags, folder], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"python3 -m venv {folder} failed; install python3-venv")


@functools.cache
def _newest_pip():
    """Returns a Python with the newest pip: older ones download all of NVIDIA's libraries, 3 GB, to
    read their dependencies."""
    folder = pins.DEPS / "tmp" / "newest-pip"
    shutil.rmtree(folder, ignore_errors=True)
    _make_environment(folder, "--upgrade-deps")
    return folder / "bin" / "python"


def _resolve(*requirements):
    """Returns the wheels that pip would install, by name."""
    report = pins.DEPS / "new_version.json"
    _pip(_newest_pip(), "--dry-run", "--ignore-installed", "--only-binary=:all:", "--report",
         report, *requirements)
    wheels = {}
    for item in json.loads(report.read_text())["install"]:
        name = item["metadata"]["name"].lower()
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        wheels[name] = Wheel(name, item["metadata"]["version"], sha256)
    report.unlink()
    return wheels


def _names_to_pin(all_pins):
    """Returns the packages that the newest recorded version has lines for."""
    newest = pins.versions_of("recorded", all_pins)[-1]
    return sorted(pin.wheel.partition("==")[0] for pin in all_pins
                  if pin.use == "recorded" and pin.torch == newest)


def _missing_wheel(name, wheels):
    """Finds a wheel that torch does not depend on: the newest for the runtime's CUDA."""
    runtime = wheels.get("nvidia-cuda-runtime")
    if runtime is None:
        raise Failure(f"this PyTorch does not depend on {name}, nor on nvidia-cuda-runtime, which "
                      "says its version: it is built without CUDA 13 or newer")
    same_cuda = ".".join(runtime.version.split(".")[:2])
    return _resolve(f"{name}=={same_cuda}.*")[name]


def _wanted_wheels(version, all_pins):
    """Returns the wheels to pin, and those of VISION."""
    exact = version if version.count(".") > 1 else f"{version}.*"
    wheels = _resolve(f"torch=={exact}", *VISION)
    wanted = [wheels.get(name) or _missing_wheel(name, wheels) for name in _names_to_pin(all_pins)]
    return wanted, [wheels[name] for name in VISION]


def _with_shared(use, requirements):
    """Returns what pins_of of .setup/common.sh will print once there is a file of `requirements`."""
    lines = pins.requirements_in(pins.file_of(use)) + requirements
    return "".join(f"{line}\n" for line in lines)


def _make_python(folder, requirements):
    """Makes it as .setup/python does, which then accepts it as its own. The hash is written last: a
    folder without it counts as half made."""
    mark = folder / ".pins"
    wanted = hashlib.sha256(requirements.encode()).hexdigest() + "\n"
    if mark.exists() and mark.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    _make_environment(folder)
    listed = pins.DEPS / "new_version.txt"
    listed.write_text(requirements)
    temporary = pins.DEPS / "tmp"
    temporary.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)  # beside the target, as a RAM disk may be too small
    _pip(folder / "bin" / "python", "--require-hashes", "--no-deps", "--only-binary=:all:",
         "--requirement", listed)
    listed.unlink()
    mark.write_text(wanted)


def _make_vision(folder, wheels):
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    _pip(sys.executable, "--no-deps", "--only-binary=:all:", "--target", partial,
         *(f"{wheel.name}=={wheel.version}" for wheel in wheels))
    partial.replace(folder)


def _has_vision(installed):
    return (installed.packages() / "torchvision").is_dir()


def _pinned(version, all_pins):
    """Returns the use and the version of the pins that have exactly this PyTorch, if any."""
    # A Python of the build itself is the last choice: making one points the build's tests to it.
    for use, script_use in (("recorded", "recorded"), ("libtorch", "python")):
        for pin in all_pins:
            if pin.use == use and _is_of(pin.wheel, version):
                return script_use, pin.torch
    return None


def _install_pinned(use, key, version):
    script = pins.ROOT / ".setup" / "python"
    environment = os.environ | {"TORCH": key, "SHARDLENS_DEPS": str(pins.DEPS)}
    done = subprocess.run([script, use, key], env=environment, check=False)
    if done.returncode != 0:
        raise Failure(f"{script} {use} {key} failed; its message is above")
    installed = Installed(pins.python_of(use, key), None, None)
    if _has_vision(installed):
        return installed
    folder = pins.DEPS / f"vision-{key}"
    if not folder.exists():
        _make_vision(folder, _wanted_wheels(version, pins.read_pins())[1])
    return dataclasses.replace(installed, vision=folder)


def _is_of(torch_wheel, version):
    """Returns whether "torch==2.16.0" is the version, which may leave out its last number."""
    name, _, exact = torch_wheel.partition("==")
    return name == "torch" and version in (exact, pins.minor_of(exact))


def _made_before(version):
    """Returns what an earlier run installed that is not pinned yet, if anything."""
    for file in pins.DEPS.glob(f"recorded-*/{NEW_PINS}"):
        requirements = file.read_text().splitlines()
        if any(_is_of(line.split()[0], version) for line in requirements):
            folder = file.parent
            key = folder.name.removeprefix("recorded-")
            return Installed(folder / "bin" / "python", folder.with_name(f"vision-{key}"),
                             NewPins(key, requirements))
    return None


def _install_new(version, all_pins):
    wheels, vision = _wanted_wheels(version, all_pins)
    torch = next(wheel for wheel in wheels if wheel.name == "torch")
    key = pins.minor_of(torch.version)
    if key in pins.versions_of("recorded", all_pins):
        key = torch.version  # beside another release of the same minor version
    requirements = [wheel.requirement() for wheel in wheels]
    python = pins.python_of("recorded", key)
    _make_python(python.parent.parent, _with_shared("recorded", requirements))
    folder = pins.DEPS / f"vision-{key}"
    _make_vision(folder, vision)
    (python.parent.parent / NEW_PINS).write_text("\n".join(requirements) + "\n")
    return Installed(python, folder, NewPins(key, requirements))


def install(version):
    """Installs a version whose name was checked. Raises Failure."""
    pins.DEPS.mkdir(exist_ok=True)
    all_pins = pins.read_pins()
    if pinned := _pinned(version, all_pins):
        return _install_pinned(*pinned, version)
    with open(pins.DEPS / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made_before(version) or _install_new(version, all_pins)
