"""Sends the requests of GPUs' histories to PyTorch's own allocator on a null device whose
cudaMalloc returns the addresses that these GPUs' drivers gave: for three_columns.py.

    pytorch_replay.py LIBRARY HISTORY.txt.gz... > one JSON document a history

LIBRARY is given_addresses. PyTorch must be 2.11 or older: addresses decide nothing later.
"""

import ctypes
import gzip
import json
import os
import pathlib
import sys

import torch

SMALL_SEGMENT, SHARED_SEGMENT = 2 << 20, 20 << 20
EMPTIED = "segment_free_cache"


def start_with(library):
    """Starts this program once more with the library before all others."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    if library in preloaded:
        return
    os.environ["LD_PRELOAD"] = f"{library}:{preloaded}"
    os.execv(sys.executable, [sys.executable, *sys.argv])


class History:
    """A history, as tests/evidence/gpu_history.cpp reads it, too."""

    def __init__(self, path):
        words = iter(gzip.decompress(pathlib.Path(path).read_bytes()).split())
        next(words)
        self.streams = int(next(words))
        self.segments, self.events, self.last_segments = [], [], 0
        for word in words:
            if word == b"seg":
                address, size, stream, is_small, count = (int(next(words)) for _ in range(5))
                blocks = [(int(next(words)), int(next(words))) for _ in range(count)]
                self.segments.append((address, size, stream, bool(is_small), blocks))
            elif word == b"final":
                self.last_segments = len(list(words)) // 2
                return
            elif word != b"trace":
                self.events.append((word.decode(), *(int(next(words)) for _ in range(3))))

    def addresses(self):
        """Returns those of all segments, as they were taken."""
        return ([segment[0] for segment in self.segments] +
                [address for kind, address, _, _ in self.events if kind == "segment_alloc"])


class Allocator:
    """PyTorch's own, without tensors."""

    def __init__(self, library, streams):
        self.library = library
        self.streams = [0] + [torch.cuda.Stream().cuda_stream for _ in range(streams - 1)]

    def take(self, size, stream):
        return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, self.streams[stream])

    def free(self, address):
        torch._C._cuda_cudaCachingAllocator_raw_delete(address)

    def give(self, addresses):
        array = (ctypes.c_uint64 * len(addresses))(*addresses)
        self.library.give_addresses(array, ctypes.c_size_t(len(addresses)))

    def lay_out(self, segment):
        """Makes a segment and fills it with its blocks, used and free ones; returns the latter."""
        address, size, stream, is_small, blocks = segment
        first = 512 if is_small else SMALL_SEGMENT if size == SHARED_SEGMENT else size
        self.free(self.take(first, stream))
        to_free = []
        for block_bytes, block_address in blocks:
            # A small block has at most 1 MiB, so a free one of 2 MiB is filled in two parts.
            parts = [block_bytes]
            if is_small and block_bytes > 1 << 20:
                parts = [1 << 20, block_bytes - (1 << 20)]
            placed = [self.take(part, stream) for part in parts]
            if placed[0] != address:
                return None
            address += block_bytes
            to_free += placed if block_address < 0 else []
        return to_free


class Replay:
    def __init__(self, history, allocator):
        self.history, self.allocator = history, allocator
        self.live = {}  # PyTorch's addresses by the GPU's
        self.found = {"allocations": 0, "placed_alike": 0, "failures": 0, "failures_alike": 0,
                      "reserved_peak": 0, "start_alike": True}

    def run(self):
        self.allocator.give(self.history.addresses())
        to_free = []
        for segment in self.history.segments:
            free = self.allocator.lay_out(segment)
            if free is None:
                return {**self.found, "start_alike": False}
            to_free += free
        for _, _, _, _, blocks in self.history.segments:
            self.live |= {address: address for _, address in blocks if address >= 0}
        for address in to_free:
            self.allocator.free(address)
        torch.cuda.reset_peak_memory_stats()
        retries = torch.cuda.memory_stats()["num_alloc_retries"]
        previous = None
        for event in self.history.events:
            self.apply(event, previous)
            previous = event[0]
        stats = torch.cuda.memory_stats()
        self.found["retries"] = stats["num_alloc_retries"] - retries
        self.found["reserved_peak"] = torch.cuda.max_memory_reserved()
        self.found["segments"] = self.allocator.library.given_addresses()
        self.found["segments_of_gpu"] = len(self.history.addresses())
        self.found["last_segments"] = stats["segment.all.current"]
        self.found["last_segments_of_gpu"] = self.history.last_segments
        return self.found

    def apply(self, event, previous):
        kind, address, size, stream = event
        if kind == "alloc":
            self.live[address] = self.allocator.take(size, stream)
            self.found["allocations"] += 1
            self.found["placed_alike"] += self.live[address] == address
        elif kind == "free_completed":
            self.allocator.free(self.live.pop(address))
        elif kind == EMPTIED and previous != EMPTIED:
            torch.cuda.empty_cache()
        elif kind == "oom":
            self.found["failures"] += 1
            self.found["failures_alike"] += self.fails(size, stream, address)

    def fails(self, size, stream, free_bytes):
        """Returns whether the request fails with as much free on the device as on the GPU."""
        try:
            self.live["served"] = self.allocator.take(size, stream)
        except torch.OutOfMemoryError:
            return torch.cuda.mem_get_info()[0] == free_bytes
        return False

    def clear(self):
        for address in self.live.values():
            self.allocator.free(address)
        torch.cuda.empty_cache()


def main():
    start_with(sys.argv[1])
    library = ctypes.CDLL(sys.argv[1])
    library.given_addresses.restype = ctypes.c_size_t
    torch.cuda.init()
    for path in sys.argv[2:]:
        history = History(path)
        replay = Replay(history, Allocator(library, history.streams))
        found = replay.run()
        replay.clear()
        print("replayed " + json.dumps({"file": pathlib.Path(path).name, **found}), flush=True)


main()
