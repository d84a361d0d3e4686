#!/usr/bin/env python3
"""Makes dist/: a wheel and an archive of what `cmake --install` has put into a folder.

    commands/wheel/make_wheel.py TREE --version 0.1.0 --torch 2.15.0 --out dist

TREE holds bin/ and lib/shardlens/ (commands/install.cmake). Libraries that the programs link and
another machine may lack are put into lib/shardlens/lib, where the programs then look. Any other
library that manylinux does not promise is an error. The same TREE gives the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# manylinux_2_34, which is RHEL 9, Ubuntu 22.04, Debian 12 and newer: https://github.com/pypa/manylinux
PLATFORM = "manylinux_2_34_x86_64"
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
PROMISED = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1",
    "libstdc++.so.6", "ld-linux-x86-64.so.2",
}  # fmt: skip
# Code of these Debian packages is in the programs or beside them; the notice names them.
THIRD_PARTY = (
    "libarchive-dev", "libcli11-dev", "libfmt-dev", "libglfw3-dev", "libgloo-dev", "libimgui-dev",
    "libjpeg62-turbo-dev", "libre2-dev", "libspdlog-dev", "libstb-dev", "libtomlplusplus-dev",
    "libyaml-cpp-dev", "libzstd-dev", "nlohmann-json3-dev", "zlib1g-dev",
)  # fmt: skip
# These libraries belong to the torch that a program finds, or to the process that loads a library.
OF_TORCH = re.compile(r"lib(torch|c10|cudart|cuda\.)")
MOST_MB = 60
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can state

METADATA = """\
Metadata-Version: 2.1
Name: shardlens
Version: {version}
Summary: Where the memory of sharded training goes, before and after it runs
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: train
Requires-Dist: torch=={torch} ; extra == "train"
Provides-Extra: ray
Requires-Dist: torch=={torch} ; extra == "ray"
Requires-Dist: ray[train]>=2.51 ; extra == "ray"
Provides-Extra: mcp
Requires-Dist: mcp>=2 ; extra == "mcp"
Description-Content-Type: text/markdown

{description}"""
WHEEL = "Wheel-Version: 1.0\nGenerator: shardlens\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
ENTRY_POINTS = "[console_scripts]\nshardlens = shardlens.__main__:main\n"


class Fault(Exception):
    """Says in one line what is wrong with the tree, and what to do."""


def output_of(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(tree: Path) -> list[Path]:
    return sorted(p for p in tree.rglob("*") if p.is_file() and not p.is_symlink() and is_elf(p))


def needed_by(path: Path) -> list[str]:
    return re.findall(r"^ *NEEDED +(\S+)", output_of("objdump", "-p", path), re.MULTILINE)


def found_libraries(program: Path) -> dict[str, Path]:
    """Returns where the loader of this machine finds what a program links."""
    lines = output_of("ldd", program)
    return {name: Path(path) for name, path in re.findall(r"^\s*(\S+) => (/\S+)", lines, re.M)}


def carried_by(tree: Path) -> set[str]:
    """Returns the libraries that the tree itself has, by the names that programs link."""
    return {path.name for path in elf_files(tree)}


def collect_libraries(tree: Path, glfw: Path | None) -> None:
    """Puts libraries that are linked, but neither promised nor present, into lib/shardlens/lib."""
    folder = tree / "lib/shardlens/lib"
    folder.mkdir(exist_ok=True)
    if glfw is not None:
        shutil.copy(glfw, folder / "libglfw.so.3")
    waiting = elf_files(tree)
    while waiting:
        user = waiting.pop()
        for name in needed_by(user):
            if name in PROMISED or OF_TORCH.match(name) or name in carried_by(tree):
                continue
            library = found_libraries(user).get(name)
            if library is None:
                raise Fault(f"{user}: links {name}, which is missing on this machine; install it")
            shutil.copy(library.resolve(), folder / name)
            waiting.append(folder / name)


def clean(tree: Path, patchelf: Path) -> None:
    """Removes this machine's folders from the programs' search paths, and adds those of the
    tree."""
    libraries = tree / "lib/shardlens/lib"
    for path in elf_files(tree):
        own = path.parent if path.parent.name == "null_device" else libraries
        folders = [own]
        if path.name == "shardlens-doctor":  # reports what LibTorch would load
            nvidia = tree.parent / "nvidia"
            folders += [nvidia / f"cu13/lib", nvidia / "nccl/lib"]
        search = ":".join(f"$ORIGIN/{os.path.relpath(each, path.parent)}" for each in folders)
        output_of("strip", "--strip-unneeded", path)
        output_of(patchelf, "--force-rpath", "--set-rpath", search, path)


def newest_symbols(path: Path) -> dict[str, tuple[int, ...]]:
    newest: dict[str, tuple[int, ...]] = {}
    found = re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)", output_of("objdump", "-T", path))
    for name, text in found:
        version = tuple(int(part) for part in text.strip(".").split("."))
        newest[name] = max(version, newest.get(name, (0,)))
    return newest


def check_symbols(tree: Path) -> None:
    for path in elf_files(tree):
        for name, version in newest_symbols(path).items():
            if version > NEWEST[name]:
                text = ".".join(map(str, version))
                raise Fault(
                    f"{path}: needs {name}_{text}, which {PLATFORM} lacks; "
                    "`objdump -T` names the function: call an older one"
                )


def drop_other_recorders(tree: Path) -> None:
    """Removes recorders built from older sources, and files that only fit this machine."""
    record = tree / "lib/shardlens/record"
    sources = (record / "sources.sha256").read_text().split()[0]
    (record / "sources.sha256").write_text(sources + "\n")  # without its folder
    ours = sources[:12]
    for kept in (record / "pytorch").glob("*"):
        if kept.is_dir() and kept.name.endswith("-" + ours):
            continue
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()


def is_program(path: Path) -> bool:
    return path.is_file() and (path.parent.name == "bin" or ".so" in path.name)


def collect_licenses(tree: Path) -> None:
    texts = []
    for name in THIRD_PARTY:
        path = Path("/usr/share/doc") / name / "copyright"
        if path.exists():
            texts.append(f"==== {name}\n\n{path.read_text(encoding='utf-8')}\n")
        else:
            print(f"make_wheel: {path} is missing: add {name}'s license to what you distribute")
    (tree / "lib/shardlens/THIRD_PARTY.txt").write_text("".join(texts), encoding="utf-8")


def files_in(folder: Path) -> list[Path]:
    return sorted(
        p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts
    )


class WheelFile:
    """Writes a wheel: its files, and what RECORD says of them."""

    def __init__(self, path: Path) -> None:
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.record: list[str] = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        entry = zipfile.ZipInfo(name, EPOCH)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self, info: str) -> None:
        name = f"{info}/RECORD"
        self.record.append(f"{name},,")
        entry = zipfile.ZipInfo(name, EPOCH)
        entry.external_attr = 0o100644 << 16
        self.archive.writestr(entry, "\n".join(self.record) + "\n", zipfile.ZIP_DEFLATED)
        self.archive.close()


def write_wheel(tree: Path, version: str, torch: str, out: Path) -> Path:
    path = out / f"shardlens-{version}-py3-none-{PLATFORM}.whl"
    info = f"shardlens-{version}.dist-info"
    wheel = WheelFile(path)
    for folder in (ROOT / "commands/wheel/shardlens", tree):
        for file in files_in(folder):
            name = "shardlens/" + file.relative_to(folder).as_posix()
            wheel.add(name, file.read_bytes(), 0o755 if is_program(file) else 0o644)
    description = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    metadata = METADATA.format(version=version, torch=torch, description=description)
    wheel.add(f"{info}/METADATA", metadata.encode())
    wheel.add(f"{info}/WHEEL", WHEEL.format(platform=PLATFORM).encode())
    wheel.add(f"{info}/entry_points.txt", ENTRY_POINTS.encode())
    wheel.add(f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
    wheel.close(info)
    return path


def write_archive(tree: Path, version: str, out: Path) -> Path:
    name = f"shardlens-{version}-linux-x86_64"
    path = out / f"{name}.tar.xz"
    with tarfile.open(path, "w:xz", format=tarfile.PAX_FORMAT) as archive:
        for file in [*files_in(tree), ROOT / "LICENSE"]:
            inside = file.relative_to(tree).as_posix() if tree in file.parents else file.name
            entry = tarfile.TarInfo(f"{name}/{inside}")
            entry.size = file.stat().st_size
            entry.mode = 0o755 if is_program(file) else 0o644
            with file.open("rb") as content:
                archive.addfile(entry, content)
    return path


def make(options: argparse.Namespace) -> None:
    tree = options.tree.resolve()
    drop_other_recorders(tree)
    collect_libraries(tree, options.glfw)
    clean(tree, options.patchelf)
    check_symbols(tree)
    collect_licenses(tree)
    options.out.mkdir(parents=True, exist_ok=True)
    made = [write_wheel(tree, options.version, options.torch, options.out)]
    if options.archive:
        made.append(write_archive(tree, options.version, options.out))
    for path in made:
        megabytes = path.stat().st_size / 1e6
        print(f"{path}  {megabytes:.1f} MB")
        if megabytes > MOST_MB:
            raise Fault(f"{path}: has {megabytes:.1f} MB, more than {MOST_MB}; leave something out")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--torch", required=True, help="the PyTorch that train and infer link")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--patchelf", type=Path, default=Path("patchelf"))
    parser.add_argument("--glfw", type=Path, help="a libglfw.so that links no X11")
    parser.add_argument("--archive", action="store_true", help="also make an archive")
    try:
        make(parser.parse_args())
    except Fault as fault:
        print(f"make_wheel: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
