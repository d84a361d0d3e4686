#!/usr/bin/env python3
"""Writes the stubs of the null device (see null_device.h) from what LibTorch's libraries import.

usage: make_stubs.py TORCH_DIR OUT_DIR SONAME...
       make_stubs.py --list TORCH_DIR
       make_stubs.py --check TORCH_DIR LIBRARIES_DIR

For every SONAME, OUT_DIR/SONAME.cpp defines each symbol that the wheel's libraries want from it,
weak, so that a hand-written definition wins; OUT_DIR/SONAME.map gives the symbols the version that
the libraries want. --list and --check write nothing: --list prints the sonames that the wheel wants;
--check exits with 1, and a line that says why, if libraries made for another wheel lack something
that this wheel wants. It only needs Python: `shardlens record` also checks on machines without a
compiler.
"""

import collections
import mmap
import pathlib
import re
import struct
import sys

# A PyTorch built from source may lack all but the first of these.
CONSUMERS = ["libtorch_cuda.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda_linalg.so",
             "libcaffe2_nvrtc.so", "libtorch_nvshmem.so", "libtorch_python.so"]
NVIDIA_LIBRARY = re.compile(r"lib(cu|nccl|nv)\w*\.so\.\d+")

# An import that names no version belongs to the library of the first matching prefix. The wheel
# says which version of the library that is.
UNVERSIONED = [("nccl", "libnccl.so."), ("nvshmem", "libnvshmem_host.so."),
               ("nvrtc", "libnvrtc.so."), ("cusparseLt", "libcusparseLt.so."),
               ("cuFile", "libcufile.so."), ("cu", "libcuda.so.")]

# This header lists the driver's calls that c10 looks up by name when it starts.
DRIVER_HEADER = "include/c10/cuda/driver_api.h"
DRIVER_CALL = re.compile(r"_\((cu\w+), \d+\)")

# NVIDIA's cuDNN looks these calls up by name. They are listed by the beginning of their library's
# name. If one is missing, cuDNN takes other kernels than on a GPU, or ends the program.
CUDNN_CALLS = {
    "libcublasLt.so.": """
        cublasLtMatmul cublasLtMatmulDescGetAttribute cublasLtMatmulDescInit_internal
        cublasLtMatmulDescSetAttribute cublasLtMatmulPreferenceInit_internal
        cublasLtMatmulPreferenceSetAttribute cublasLtMatrixLayoutGetAttribute
        cublasLtMatrixLayoutInit_internal cublasLtMatrixLayoutSetAttribute cublasLtMatrixTransform
        cublasLtMatrixTransformDescGetAttribute cublasLtMatrixTransformDescInit_internal
        cublasLtMatrixTransformDescSetAttribute""",
    "libcuda.so.": """
        cuCtxPopCurrent cuCtxPushCurrent cuCtxSetCurrent cuDevicePrimaryCtxRelease
        cuDevicePrimaryCtxReset cuFuncSetAttribute cuFuncSetCacheConfig cuKernelSetAttribute
        cuKernelSetCacheConfig cuLaunchCooperativeKernel cuLaunchKernel cuLibraryUnload
        cuLinkAddData cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkDestroy cuMemcpyDtoH_v2
        cuMemsetD32Async cuModuleGetFunction cuModuleLoadData cuModuleLoadDataEx cuModuleUnload
        cuOccupancyMaxActiveBlocksPerMultiprocessor cuStreamSynchronize cuTensorMapEncodeTiled""",
}

RETURNS_TEXT = re.compile(r"^(?!cuGet)\w+GetErrorString$")
TEXT_STUB = '[[gnu::weak]] const char* {}() {{ return "null device"; }}\n'
STUB = "[[gnu::weak]] int {}() {{ return 0; }}\n"

# These calls say how much memory another call needs; a stub refuses them with the library's error
# (unknown_size.h).
TELLS_SIZE = re.compile(r"\w+([sS]izes?(Ext|2|_v8)?|GetWorkspace|workEstimation|Nnz|MakePlanMany)")
SIZE_STUB = '[[gnu::weak]] int {0}() {{ return shardlens::profiler::refuse_size("{0}", {1}); }}\n'
INCLUDE = """#include "profiler/null_device/driver/work_feed.h"
#include "profiler/null_device/unknown_size.h"
"""

# These calls do work on the device, of which a stub tells (driver/work_feed.h).
DOES_WORK = re.compile(r"""
    cublas \w* (trsm|getrf|getri|matinv) \w* |
    cufft(Xt)?Exec \w* |
    cusolverDn (?!Create|Destroy|Get|\w*Set|\w*Info) \w+ |
    cusparse \w+ (_solve|_compute|_copy|mm|mv|geam2|MM|MV) |
    cudnn ((BatchNormalization|RNN)(Forward|Backward) \w* | CTCLoss(_v8)? | PoolingForward |
           Convolution(Forward|BackwardData|BackwardFilter|BiasActivationForward) |
           SpatialTf(Sampler|GridGenerator) \w+)""", re.VERBOSE)
WORK_STUB = """[[gnu::weak]] int {0}() {{
  shardlens::profiler::tell_library_call("{0}");
  return 0;
}}
"""

NOT_SUPPORTED = {"cufft": 16, "cusolver": 9, "cusparse": 10, "cudnn": 3000}  # by library

MOST_NAMED = 3  # symbols in a line

# The stubs export their C functions and what they use of each other; C++ symbols stay hidden.
MAP = "{} {{\n  global: cu*; __cuda*; nccl*; nv*; shardlens_*;\n  local: *;\n}};\n"


class Library:
    """Reads the dynamic sections of a 64-bit ELF file, in the words of elf.h."""

    _DYNAMIC, _DYNSYM, _VERNEED, _VERSYM = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
    _NEEDED = 1

    def __init__(self, path):
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a library for this machine")
        place, = struct.unpack_from("<Q", self._data, 40)
        count, = struct.unpack_from("<H", self._data, 60)
        self._sections = [struct.unpack_from("<4xI16xQQI20x", self._data, place + 64 * i)
                          for i in range(count)]  # type, offset, size, link

    def _section(self, kind):
        """Returns the bytes of the first section of this type, and the offset of the texts it
        refers to."""
        for section_kind, offset, size, link in self._sections:
            if section_kind == kind:
                return self._data[offset:offset + size], self._sections[link][1]
        return b"", 0

    def _text(self, place):
        return self._data[place:self._data.find(b"\0", place)].decode()

    def needed(self):
        """Returns the NVIDIA libraries that it is linked with."""
        entries, texts = self._section(self._DYNAMIC)
        sonames = (self._text(texts + value) for tag, value in struct.iter_unpack("<qQ", entries)
                   if tag == self._NEEDED)
        return {soname for soname in sonames if NVIDIA_LIBRARY.fullmatch(soname)}

    def _versions(self):
        """Returns, by the number that symbols use, a version and the library that it is wanted from."""
        section, texts = self._section(self._VERNEED)
        versions, place = {}, 0
        while section:
            count, file, aux, after = struct.unpack_from("<2xHIII", section, place)
            entry = place + aux
            for _ in range(count):
                number, name, following = struct.unpack_from("<6xHII", section, entry)
                versions[number] = (self._text(texts + name), self._text(texts + file))
                entry += following
            if after == 0:
                break
            place += after
        return versions

    def _symbols(self):
        """Yields (name, whether it is defined here, number of its version) of each symbol with a
        name."""
        entries, texts = self._section(self._DYNSYM)
        numbers, _ = self._section(self._VERSYM)  # empty if no symbol has a version
        numbers = numbers or bytes(len(entries) // 12)
        for (name, section), (number,) in zip(struct.iter_unpack("<I2xH16x", entries),
                                              struct.iter_unpack("<H", numbers)):
            if name:
                yield self._text(texts + name), section != 0, number & 0x7FFF

    def imports(self):
        """Returns (symbol, its version or "", the version's library or "") for each symbol that the
        library does not define."""
        versions = self._versions()
        return [(symbol, *versions.get(number, ("", "")))
                for symbol, is_defined, number in self._symbols() if not is_defined]

    def defined(self):
        return {symbol for symbol, is_defined, _ in self._symbols() if is_defined}


def libraries_of(torch):
    """Returns PyTorch's libraries. conda keeps them in the environment's folder for all libraries."""
    folders = [torch / "lib", *torch.parents[2:3]]
    paths = [folder / name for name in CONSUMERS for folder in folders]
    found = {path.name: path for path in reversed(paths) if path.exists()}
    return [Library(found.get(CONSUMERS[0], paths[0])),
            *(Library(path) for name, path in found.items() if name != CONSUMERS[0])]


def collect(torch):
    symbols, versions = collections.defaultdict(set), {}
    libraries = libraries_of(torch)
    sonames = set().union(*(library.needed() for library in libraries))
    unversioned = [(prefix, soname) for prefix, owner in UNVERSIONED
                   for soname in sonames if soname.startswith(owner)]
    for library in libraries:
        for symbol, version, owner in library.imports():
            if NVIDIA_LIBRARY.fullmatch(owner):
                versions[owner] = version
                symbols[owner].add(symbol)
            elif not version:
                for prefix, soname in unversioned:
                    if symbol.startswith(prefix):
                        symbols[soname].add(symbol)
                        break
    for soname in sonames:
        symbols[soname] |= set(CUDNN_CALLS.get(soname.rstrip("0123456789"), "").split())
    symbols["libcuda.so.1"] |= set(DRIVER_CALL.findall((torch / DRIVER_HEADER).read_text()))
    return symbols, versions, sonames | set(symbols)


def in_words(symbols):
    first = ", ".join(symbols[:MOST_NAMED])
    return first if len(symbols) <= MOST_NAMED else f"{first} and {len(symbols) - MOST_NAMED} more"


def lack(torch, libraries):
    """Returns a line that says what the wheel wants and the libraries lack, or "" if they lack
    nothing."""
    symbols, _, sonames = collect(torch)
    for soname in sorted(sonames):
        library = libraries / soname
        if not library.exists():
            return f"it needs {soname}, which the null device lacks"
        if lacking := symbols[soname] - Library(library).defined():
            calls = in_words(sorted(lacking))
            return f"it calls {calls} of {soname}, which the null device lacks"
    return ""


def check(torch, libraries):
    try:
        return lack(torch, libraries)
    except (OSError, ValueError, struct.error) as error:
        return f"its libraries cannot be compared with the null device's: {error}"


def stub(symbol):
    if RETURNS_TEXT.match(symbol):
        return TEXT_STUB.format(symbol)
    library = next((name for name in NOT_SUPPORTED if symbol.startswith(name)), None)
    if library and TELLS_SIZE.fullmatch(symbol):
        return SIZE_STUB.format(symbol, NOT_SUPPORTED[library])
    if DOES_WORK.fullmatch(symbol):
        return WORK_STUB.format(symbol)
    return STUB.format(symbol)


def main():
    if sys.argv[1] == "--list":
        print(*sorted(collect(pathlib.Path(sys.argv[2]))[2]), sep="\n")
        return
    if sys.argv[1] == "--check":
        what = check(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
        print(what)
        sys.exit(1 if what else 0)
    torch, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    listed = set(sys.argv[3:])
    symbols, versions, sonames = collect(torch)
    if unlisted := sonames - listed:
        sys.exit(f"{torch} needs {', '.join(sorted(unlisted))}, which the null device lacks: "
                 "is it a wheel of .setup/pins?")
    for soname in listed:
        stubs = "".join(map(stub, sorted(symbols[soname])))
        (out / f"{soname}.cpp").write_text(f'{INCLUDE}extern "C" {{\n{stubs}}}\n')
        (out / f"{soname}.map").write_text(MAP.format(versions.get(soname, "")))


if __name__ == "__main__":
    main()
