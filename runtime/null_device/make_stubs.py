#!/usr/bin/env python3
"""Writes the stubs of the null device (see null_device.h) from what LibTorch's libraries import.

usage: make_stubs.py TORCH_DIR OUT_DIR SONAME...
       make_stubs.py --list TORCH_DIR
       make_stubs.py --check TORCH_DIR LIBRARIES_DIR

For every SONAME, OUT_DIR/SONAME.cpp defines each symbol that the wheel's libraries want from it,
weak, so that a definition written by hand wins; OUT_DIR/SONAME.map gives the symbols the version
under which they are wanted. With --list and --check nothing is written: the one prints the sonames
that the wheel wants, the other exits with 1, and a line that says why, where libraries that were made
for another wheel lack what this one wants. Needs objdump and nm, which come with every compiler.
"""

import collections
import pathlib
import re
import subprocess
import sys

CONSUMERS = ["libtorch_cuda.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda_linalg.so",
             "libcaffe2_nvrtc.so", "libtorch_nvshmem.so", "libtorch_python.so"]
NVIDIA_LIBRARY = re.compile(r"lib(cu|nccl|nv)\w*\.so\.\d+")

# Whose is an import that names no version: the first prefix that fits. The wheel says which version.
UNVERSIONED = [("nccl", "libnccl.so."), ("nvshmem", "libnvshmem_host.so."),
               ("nvrtc", "libnvrtc.so."), ("cusparseLt", "libcusparseLt.so."),
               ("cuFile", "libcufile.so."), ("cu", "libcuda.so.")]

# The driver's calls that c10 looks up by name when it starts, as its header lists them.
DRIVER_HEADER = "include/c10/cuda/driver_api.h"
DRIVER_CALL = re.compile(r"_\((cu\w+), \d+\)")

RETURNS_TEXT = re.compile(r"^(?!cuGet)\w+GetErrorString$")
TEXT_STUB = '[[gnu::weak]] const char* {}() {{ return "null device"; }}\n'
STUB = "[[gnu::weak]] int {}() {{ return 0; }}\n"

# Calls that tell how much memory another one needs, and what each library's error is (unknown_size.h).
TELLS_SIZE = re.compile(r"\w+([sS]izes?(Ext|2|_v8)?|GetWorkspace|workEstimation|Nnz|MakePlanMany)")
SIZE_STUB = '[[gnu::weak]] int {0}() {{ return shardlens::runtime::refuse_size("{0}", {1}); }}\n'
INCLUDE = '#include "runtime/null_device/unknown_size.h"\n'
NOT_SUPPORTED = {"cufft": 16, "cusolver": 9, "cusparse": 10, "cudnn": 3000}  # by library

# Names of C, and what the stubs tell one another; what C++ adds stays inside.
MAP = "{} {{\n  global: cu*; __cuda*; nccl*; nv*; shardlens_*;\n  local: *;\n}};\n"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def version_owners(library):
    """The soname behind each version of NVIDIA's that a library refers to."""
    owners, owner = {}, None
    for line in output_of("objdump", "-p", library).splitlines():
        if match := re.match(r"\s+required from (\S+):", line):
            owner = match[1]
        elif owner and (match := re.match(r"\s+0x\w+ 0x\w+ \d+ (\S+)", line)):
            if NVIDIA_LIBRARY.fullmatch(owner):
                owners[match[1]] = owner
    return owners


def needed(library):
    return {soname for soname in re.findall(r"NEEDED\s+(\S+)", output_of("objdump", "-p", library))
            if NVIDIA_LIBRARY.fullmatch(soname)}


def imports(library):
    """(symbol, version or "") of what a library does not define."""
    for line in output_of("nm", "-D", "--undefined-only", library).splitlines():
        symbol, _, version = line.split()[-1].partition("@")
        yield symbol, version.lstrip("@")


def collect(torch):
    symbols, versions = collections.defaultdict(set), {}
    libraries = [torch / "lib" / name for name in CONSUMERS]
    sonames = set().union(*map(needed, libraries))
    unversioned = [(prefix, soname) for prefix, owner in UNVERSIONED
                   for soname in sonames if soname.startswith(owner)]
    for library in libraries:
        owners = version_owners(library)
        versions |= {owner: version for version, owner in owners.items()}
        for symbol, version in imports(library):
            if version in owners:
                symbols[owners[version]].add(symbol)
            elif not version:
                for prefix, owner in unversioned:
                    if symbol.startswith(prefix):
                        symbols[owner].add(symbol)
                        break
    symbols["libcuda.so.1"] |= set(DRIVER_CALL.findall((torch / DRIVER_HEADER).read_text()))
    return symbols, versions, sonames | set(symbols)


def defined(library):
    lines = output_of("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


def lack(torch, libraries):
    """What the wheel wants and the libraries have not, in words; empty if there is nothing."""
    symbols, _, sonames = collect(torch)
    for soname in sorted(sonames):
        library = libraries / soname
        if not library.exists():
            return f"it needs {soname}, which the null device has not"
        if lacking := symbols[soname] - defined(library):
            return f"it calls {min(lacking)} of {soname}, which the null device has not"
    return ""


def stub(symbol):
    if RETURNS_TEXT.match(symbol):
        return TEXT_STUB.format(symbol)
    library = next((name for name in NOT_SUPPORTED if symbol.startswith(name)), None)
    if library and TELLS_SIZE.fullmatch(symbol):
        return SIZE_STUB.format(symbol, NOT_SUPPORTED[library])
    return STUB.format(symbol)


def main():
    if sys.argv[1] == "--list":
        print(*sorted(collect(pathlib.Path(sys.argv[2]))[2]), sep="\n")
        return
    if sys.argv[1] == "--check":
        what = lack(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
        print(what)
        sys.exit(1 if what else 0)
    torch, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    listed = set(sys.argv[3:])
    symbols, versions, sonames = collect(torch)
    if unlisted := sonames - listed:
        sys.exit(f"{torch} needs {', '.join(sorted(unlisted))}, which the null device has not: "
                 "is it a wheel of .setup/pins.txt?")
    for soname in listed:
        stubs = "".join(map(stub, sorted(symbols[soname])))
        (out / f"{soname}.cpp").write_text(f'{INCLUDE}extern "C" {{\n{stubs}}}\n')
        (out / f"{soname}.map").write_text(MAP.format(versions.get(soname, "")))


if __name__ == "__main__":
    main()
