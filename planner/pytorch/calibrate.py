"""Measures how fast a GPU is, for `shardlens calibrate`:

    python calibrate.py --out FILE --known NAME --known NAME ...

It times products of matrices, kernels that move memory, copies, attention and, if there are several
GPUs, collectives of NCCL, which takes minutes. FILE gets JSON that `shardlens profile time
--calibration FILE` reads: times of named sizes, without paths, names of hosts or of people. It knows
nothing of Shardlens.
"""

import argparse
import json
import os
import statistics
import sys
import time

SCHEMA = "shardlens.calibration/1"
SIMULATED = "(null device)"  # ends the name of a simulated GPU, unless it is hidden

ROUNDS = 5
ROUND_SECONDS = 0.03
MOST_CALLS = 400
# No GPU does 10^16 operations a second on bf16 numbers. A simulated one does nothing, in no time.
MOST_FLOPS = 1e16

ROWS = (64, 512, 2048, 8192)
SHAPES = ((1024, 1024), (4096, 1024), (1024, 4096), (4096, 4096), (11008, 4096), (4096, 11008),
          (8192, 8192), (32768, 4096))  # columns and depth
NUMBERS = (1, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)
COPIES = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 27)
ATTENTION = ((32, 16, 512, 64), (8, 16, 2048, 64), (8, 16, 2048, 128), (2, 16, 8192, 128))
MESSAGES = tuple(1 << power for power in range(10, 29, 2))


class Refused(Exception):
    """Says in one line why nothing is measured, and what to do."""


class Clock:
    """Times calls on a GPU: the median over rounds of the seconds of one call."""

    def __init__(self, torch):
        self.torch = torch
        self.spreads = []

    def captured(self, call):
        """The GPU's time alone: calls run from a CUDA graph, which the host launches at once."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        calls = self._calls_in_a_round(call)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                call()
        graph.replay()
        return self._median(graph.replay, calls)

    def eager(self, call):
        """The same for calls that a graph cannot capture, and that take longer than their launch."""
        for _ in range(3):
            call()
        calls = self._calls_in_a_round(call)

        def all_calls():
            for _ in range(calls):
                call()

        return self._median(all_calls, calls)

    def waited(self, call):
        """The host's time for calls that it waits for."""
        call()
        times = []
        for _ in range(ROUNDS):
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            self.torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def _calls_in_a_round(self, call):
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(3):
            call()
        self.torch.cuda.synchronize()
        once = (time.perf_counter() - start) / 3
        return max(1, min(MOST_CALLS, int(ROUND_SECONDS / max(once, 1e-9))))

    def _median(self, run, calls):
        times = []
        for _ in range(ROUNDS):
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            self.torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3 / calls)
        median = statistics.median(times)
        if median > 0:
            self.spreads.append((max(times) - min(times)) / median)
        return median


class Meter:
    """Measures one GPU with a clock; `device` holds the tensors."""

    def __init__(self, torch, clock, device, capability, memory_bytes):
        self.torch = torch
        self.clock = clock
        self.device = device
        self.memory_bytes = memory_bytes
        self.half = torch.bfloat16 if capability >= (8, 0) else torch.float16
        self.has_tf32 = capability >= (8, 0)

    def number_types(self):
        """The types of products, each with its word in the file and whether tf32 may compute it."""
        yield self.half, "bf16" if self.half == self.torch.bfloat16 else "fp16", False
        if self.has_tf32:
            yield self.torch.float32, "tf32", True
        yield self.torch.float32, "fp32", False

    def empty(self, *sizes, dtype, **more):
        return self.torch.empty(*sizes, dtype=dtype, device=self.device, **more)

    def filled(self, *sizes, dtype):
        """Numbers that differ: zeros take less power, and so less time."""
        return self.torch.randn(*sizes, dtype=dtype, device=self.device)

    def products(self):
        for dtype, word, is_tf32 in self.number_types():
            self.torch.backends.cuda.matmul.allow_tf32 = is_tf32
            for rows in ROWS if word in ("bf16", "fp16") else ROWS[1::2]:
                for columns, depth in SHAPES:
                    x, w = (self.filled(n, depth, dtype=dtype) for n in (rows, columns))
                    out = self.empty(rows, columns, dtype=dtype)
                    seconds = self.clock.captured(lambda: self.torch.mm(x, w.t(), out=out))
                    yield {"type": word, "rows": rows, "columns": columns, "depth": depth,
                           "seconds": seconds}
        self.torch.backends.cuda.matmul.allow_tf32 = False

    def streaming(self):
        for numbers in NUMBERS:
            if 12 * numbers > self.memory_bytes // 2:
                return
            x, y = (self.filled(numbers, dtype=self.torch.float32) for _ in range(2))
            out = self.empty(numbers, dtype=self.torch.float32)
            seconds = self.clock.captured(lambda: self.torch.add(x, y, out=out))
            yield {"bytes": 12 * numbers, "seconds": seconds}

    def copies(self):
        for size in COPIES:
            on_gpu = self.empty(size, dtype=self.torch.uint8)
            for is_pinned in (True, False):
                on_host = self.torch.zeros(size, dtype=self.torch.uint8, pin_memory=is_pinned)
                for kind, to, of in (("host_to_device", on_gpu, on_host),
                                     ("device_to_host", on_host, on_gpu)):
                    timed = self.clock.captured if is_pinned else self.clock.waited
                    seconds = timed(lambda: to.copy_(of, non_blocking=is_pinned))
                    yield {"kind": kind, "is_pageable": not is_pinned, "bytes": size,
                           "seconds": seconds}

    def attention(self):
        attend = self.torch.nn.functional.scaled_dot_product_attention
        for batch, heads, tokens, width in ATTENTION:
            q, k, v = (self.filled(batch, heads, tokens, width, dtype=self.half).requires_grad_()
                       for _ in range(3))
            for is_causal in (False, True):
                out = attend(q, k, v, is_causal=is_causal)
                gradient = self.torch.ones_like(out)
                forward = self.clock.eager(lambda: attend(q, k, v, is_causal=is_causal))
                backward = self.clock.eager(
                    lambda: self.torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
                for is_backward, seconds in ((False, forward), (True, backward)):
                    yield {"batch": batch, "heads": heads, "tokens": tokens, "width": width,
                           "is_causal": is_causal, "is_backward": is_backward, "seconds": seconds}

    def measured(self, say):
        parts = {}
        for part in (self.products, self.streaming, self.copies, self.attention):
            say(part.__name__)
            parts[part.__name__] = list(part())
        return parts


# ---- several GPUs --------------------------------------------------------------------------------


def collectives_of(rank, ranks, port, answers):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=ranks)
    clock = Clock(torch)
    rows = []
    for size in MESSAGES:
        whole = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
        part = torch.zeros(size // 2 // ranks, dtype=torch.bfloat16, device="cuda")
        for kind, call in (("all_reduce", lambda: dist.all_reduce(whole)),
                           ("all_gather", lambda: dist.all_gather_into_tensor(whole, part)),
                           ("reduce_scatter", lambda: dist.reduce_scatter_tensor(part, whole))):
            dist.barrier()
            for _ in range(5):
                call()
            seconds = clock._median(lambda: [call() for _ in range(20)], 20)
            rows.append({"kind": kind, "ranks": ranks, "bytes": size, "seconds": seconds})
    dist.destroy_process_group()
    if rank == 0:
        answers.put(rows)


def measured_collectives(torch, count):
    """The times on 2, 4 and 8 GPUs of this machine, as far as it has them."""
    import socket

    context = torch.multiprocessing.get_context("spawn")
    rows = []
    for ranks in (2, 4, 8):
        if ranks > count:
            break
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            port = any_port.getsockname()[1]
        answers = context.SimpleQueue()
        torch.multiprocessing.spawn(collectives_of, (ranks, port, answers), nprocs=ranks)
        rows += answers.get()
    return rows


# ---- the program ---------------------------------------------------------------------------------


def expect_gpu(known):
    """Returns PyTorch and the GPU's name, or raises Refused."""
    try:
        import torch
    except ImportError as error:
        raise Refused(f"{sys.executable} has no PyTorch ({error}); name a Python that has, with "
                      "--python") from error
    if not torch.cuda.is_available():
        raise Refused("PyTorch sees no GPU here, and only a GPU can be timed; run it on the machine "
                      "with the GPU, see shardlens doctor there")
    name = torch.cuda.get_device_name()
    if name.endswith(SIMULATED):
        raise Refused(f"{name} is simulated, and has no times; run it on a real GPU")
    if name not in known:
        raise Refused(f"{name}: the model of step times does not know this GPU, so there is nothing "
                      "to calibrate; ask for it, with the name, see CONTRIBUTING.md")
    return torch, name


def expect_time_passes(torch):
    """Raises Refused on a simulated GPU, whose kernels take no time."""
    x = torch.zeros(4096, 4096, dtype=torch.float16, device="cuda")
    seconds = Clock(torch).eager(lambda: x @ x)
    if not 0 < 2 * 4096**3 / MOST_FLOPS < seconds:
        raise Refused(f"a product of 4096 x 4096 matrices took {seconds * 1e6:.3g} us, which no GPU "
                      "can do: it is simulated, and has no times; run it on a real GPU")


def calibration(known, say):
    torch, name = expect_gpu(known)
    expect_time_passes(torch)
    clock = Clock(torch)
    free, _ = torch.cuda.mem_get_info()
    meter = Meter(torch, clock, "cuda", torch.cuda.get_device_capability(), free)
    document = {"schema": SCHEMA, "gpu": name, "torch": torch.__version__, **meter.measured(say)}
    document["collectives"] = []
    if torch.cuda.device_count() > 1:
        say("collectives")
        document["collectives"] = measured_collectives(torch, torch.cuda.device_count())
    document["spread"] = statistics.median(clock.spreads)
    return document


def write_whole(path, document):
    """Writes the file so that it is whole or does not appear."""
    unfinished = f"{path}.unfinished"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    os.replace(unfinished, path)


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--known", action="append", default=[])
    options = parser.parse_args(arguments)

    def say(line):
        print(f"shardlens calibrate: {line}", file=sys.stderr, flush=True)

    try:
        document = calibration(options.known, say)
    except Refused as why:
        say(f"nothing was measured: {why}")
        return 2
    except (RuntimeError, OSError) as error:
        say(f"nothing was written: {str(error).splitlines()[0]}")
        return 1
    write_whole(options.out, document)
    print(f"wrote {options.out}: {document['gpu']}, PyTorch {document['torch']}; repeated times differ "
          f"by {100 * document['spread']:.0f} % at the median")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
