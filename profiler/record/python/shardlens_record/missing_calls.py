"""Makes libraries loadable that call NVIDIA functions which the null device's stubs lack, because the
stubs only have the functions that PyTorch calls.

When a library cannot be loaded because an NVIDIA function or library is missing, we make another
library that has everything it lacks, and load it again. Each of these functions says once that it is
not supported, and returns that error. No compiler is needed: the library is written here, in the
format of elf.h, and kept in memory.
"""

import ctypes
import functools
import importlib.machinery
import importlib.util
import os
import platform
import re
import struct

from .guards import guarded, replace, say

_MISSED = re.compile(r"(.+): undefined symbol: (\w+)|(lib\w+\.so\.\d+): cannot open shared object")
_REFUSAL = "shardlens_refuse_call"  # in libcuda's stub: prints and returns the error of a call
_PAGE = 4096


@functools.lru_cache(maxsize=None)
def _reader():
    """Returns the module that reads a library's symbols: the script that makes the stubs."""
    python = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(os.path.dirname(python), "make_stubs.py")
    spec = importlib.util.spec_from_file_location("shardlens_make_stubs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the library that is made ---------------------------------------------------------------------


def _hash(name):
    """Returns a symbol's hash as System V's ABI defines it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def _hash_table(names):
    """Returns the hash table of symbols 1, 2, ...: one bucket a name, then the chains."""
    buckets, chains = [0] * len(names), [0] * (len(names) + 1)
    for number, name in enumerate(names, 1):
        bucket = _hash(name) % len(buckets)
        chains[number], buckets[bucket] = buckets[bucket], number
    words = [len(buckets), len(chains), *buckets, *chains]
    return struct.pack(f"<{len(words)}I", *words)


def _padded(data, size=16):
    return data + bytes(-len(data) % size)


_CALLED, _IMPORTED = 1, 0  # whether a symbol is in a section; nobody asks which one
_HEADERS = 64 + 4 * 56


def _symbol(text, section, place):
    """Returns the table entry of a global function of 16 bytes."""
    return struct.pack("<IBBHQQ", text, 0x12, 0, section, place, 16)


def _call(place, text, slot):
    """Returns the code of a function: `lea rdi, [text]; jmp [slot]`."""
    return struct.pack("<3si2si3x", b"\x48\x8d\x3d", text - place - 7, b"\xff\x25",
                       slot - place - 13)


def _headers(code_end, data_begin, data_bytes):
    """Returns the file header and four program headers: everything but the data, to read and
    execute; the data; the loader's tables, which begin the data; and a non-executable stack."""
    data = (data_begin, data_begin, data_begin, data_bytes, data_bytes)
    return (struct.pack("<4s5B7xHHIQQQI6H", b"\x7fELF", 2, 1, 1, 0, 0, 3, 62, 1, 0, 64, 0, 0, 64,
                        56, 4, 64, 0, 0)
            + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, code_end, code_end, _PAGE)
            + struct.pack("<IIQQQQQQ", 1, 6, *data, _PAGE)
            + struct.pack("<IIQQQQQQ", 2, 6, *data, 8)
            + struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16))


def library_of(names, soname):
    """Returns the bytes of a library for x86-64 Linux whose functions call _REFUSAL with their own
    names."""
    names = [_REFUSAL, *names]  # the first one is imported
    texts, text_of = b"\0", {}
    for text in [*names, soname]:
        text_of[text] = len(texts)
        texts += text.encode() + b"\0"
    texts_at = _HEADERS
    hashes, hashes_at = _padded(_hash_table(names)), texts_at + len(_padded(texts))
    symbols_at = hashes_at + len(hashes)
    relocation_at = symbols_at + len(_padded(bytes(24 * (len(names) + 1))))
    code_at = relocation_at + 32
    code_end = code_at + 16 * (len(names) - 1)
    data_at = code_end + -code_end % _PAGE
    tables = struct.pack("<20Q", 14, text_of[soname], 4, hashes_at, 5, texts_at, 10, len(texts),
                         6, symbols_at, 11, 24, 7, relocation_at, 8, 24, 9, 24, 0, 0)
    slot = data_at + len(tables)
    places = range(code_at, code_end, 16)
    symbols = bytes(24) + _symbol(text_of[_REFUSAL], _IMPORTED, 0)
    symbols += b"".join(_symbol(text_of[name], _CALLED, place)
                        for name, place in zip(names[1:], places))
    relocation = struct.pack("<QQq", slot, (1 << 32) | 6, 0)  # the slot becomes symbol 1's address
    code = b"".join(_call(place, texts_at + text_of[name], slot)
                    for name, place in zip(names[1:], places))
    return (_headers(code_end, data_at, len(tables) + 8) + _padded(texts) + hashes
            + _padded(symbols) + _padded(relocation) + code + bytes(data_at - code_end) + tables
            + bytes(8))


def _load(names, soname):
    """Loads a made library so that all libraries loaded later find its functions."""
    file = os.memfd_create(soname)
    os.write(file, library_of(sorted(names), soname))
    ctypes.CDLL(f"/proc/self/fd/{file}", ctypes.RTLD_GLOBAL)
    os.close(file)


# --- what a library lacks -------------------------------------------------------------------------


def _lacking(path):
    """Returns the names of the NVIDIA calls that the library imports and no loaded library has."""
    reader, there = _reader(), ctypes.CDLL(None)
    prefixes = tuple(prefix for prefix, _ in reader.UNVERSIONED)
    names = {name for name, _, owner in reader.Library(path).imports()
             if reader.NVIDIA_LIBRARY.fullmatch(owner) or (not owner and name.startswith(prefixes))}
    return {name for name in names if not hasattr(there, name)}


_made = set()  # libraries of NVIDIA's


@guarded("NVIDIA's calls that a library needs are not supplied", otherwise=False)
def _supply(error):
    """Makes what the loader says is missing, and returns True if it made something."""
    missed = _MISSED.match(str(error))
    if missed is None or platform.machine() != "x86_64":
        return False
    path, call, library = missed.groups()
    if library:
        if library in _made or not _reader().NVIDIA_LIBRARY.fullmatch(library):
            return False
        _made.add(library)
        say(f"{library} is missing: calls to it are not supported on the null device")
        _load([], library)
        return True
    if _reader().NVIDIA_LIBRARY.fullmatch(os.path.basename(path)):
        return False  # NVIDIA's own libraries must match each other's version
    names = _lacking(path)
    if call not in names:
        return False
    _load(names, f"shardlens-{os.path.basename(path)}")
    return True


@guarded("NVIDIA's own library may be loaded", otherwise=None)
def _stub_of(load, path, *mode):
    """Returns the null device's library instead of NVIDIA's file, or None if there is none. PyTorch
    2.15 loads the files of pip's packages beside it before it needs them, and these need a driver
    and each other."""
    name = os.path.basename(path) if isinstance(path, str) else ""
    if name == path or not _reader().NVIDIA_LIBRARY.fullmatch(name):
        return None
    try:
        return load(name, (mode[0] if mode else 0) | os.RTLD_NOLOAD)
    except OSError:
        return None  # the null device has no such library, so NVIDIA's may be loaded


def _loading(load):
    @functools.wraps(load)
    def load_or_supply(*args, **kwargs):
        while True:
            try:
                return load(*args, **kwargs)
            except (ImportError, OSError) as error:
                if not _supply(error):
                    raise

    return load_or_supply


def watch_ctypes(module):
    def loading(load):
        load_or_supply = _loading(load)

        @functools.wraps(load)
        def load_stub(*args):
            return _stub_of(load, *args) or load_or_supply(*args)

        return load_stub

    replace(module, "_dlopen", loading)


def watch_extensions():
    replace(importlib.machinery.ExtensionFileLoader, "create_module", _loading)
