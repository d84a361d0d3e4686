"""Prints facts of this machine's GPU, as PyTorch and NVIDIA's libraries report them:

    facts_of_gpu.py FACT[=ARGUMENT]...      device context modules workspaces nccl callbacks clocks

Every line of standard output is a JSON object with the fact's name as `fact`. Each fact is found in
a process of its own, which begins with PyTorch loaded and CUDA untouched. Bytes in use are
cudaMemGetInfo's total minus its free ones, so they are those of the whole device: nothing else
should run on it meanwhile."""

import ctypes
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

LIMIT_S = 60  # for one fact


def used_bytes():
    free, total = torch.cuda.mem_get_info()
    return total - free


def outside_bytes():
    """Returns the bytes in use on the GPU, except those of PyTorch's own allocator."""
    torch.cuda.synchronize()
    return used_bytes() - torch.cuda.memory_reserved()


def tell(**row):
    print(json.dumps({"fact": tell.fact, **row}), flush=True)


def in_child(function):
    """Runs a function in a forked child and returns its process id; the child prints where this
    process does."""
    sys.stdout.flush()
    child = os.fork()
    if child != 0:
        return child
    code = 1
    try:
        signal.alarm(LIMIT_S)
        function()
        code = 0
    except BaseException:  # pylint: disable=broad-except
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def cudnn_version():
    """Returns None if there is none that PyTorch takes."""
    try:
        return torch.backends.cudnn.version()
    except RuntimeError:
        return None


def device():
    properties = torch.cuda.get_device_properties(0)
    driver = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(driver))
    free, total = torch.cuda.mem_get_info()
    tell(
        name=properties.name,
        total_bytes=properties.total_memory,
        info_total_bytes=total,
        free_bytes=free,
        capability=list(torch.cuda.get_device_capability()),
        multiprocessors=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        driver_cuda=driver.value,
        runtime_cuda=torch.version.cuda,
        cudnn=cudnn_version(),
    )


class Holder:
    """Starts a process that makes a context when told to, and holds it until told to end."""

    def __init__(self):
        self.told, self.tells = os.pipe(), os.pipe()
        self.child = in_child(self.hold)

    def hold(self):
        os.read(self.told[0], 1)
        torch.cuda.init()
        torch.cuda.mem_get_info()
        os.write(self.tells[1], b"1")
        os.read(self.told[0], 1)

    def begin(self):
        os.write(self.told[1], b"1")
        os.read(self.tells[0], 1)

    def end(self):
        os.write(self.told[1], b"1")
        os.waitpid(self.child, 0)


def context(count):
    """Tells what each further process takes that only holds a context. All others are forked before
    this one has a context of its own."""
    holders = [Holder() for _ in range(int(count))]
    torch.cuda.init()
    before, each = used_bytes(), []
    for holder in holders:
        holder.begin()
        each.append(used_bytes() - before)
        before = used_bytes()
    for holder in holders:
        holder.end()
    tell(context_bytes=sorted(each)[len(each) // 2], each=each)


def modules():
    """Tells how memory outside the allocator grows with the kinds of operators used."""
    x = torch.ones(256, 256, device="cuda")
    image = torch.ones(4, 16, 32, 32, device="cuda")
    heads = torch.ones(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16)
    kinds = {
        "tensor": lambda: x,
        "elementwise": lambda: (x * 2 + 1).relu(),
        "reduction": lambda: x.softmax(-1).sum(),
        "random": lambda: torch.randn(100, device="cuda"),
        "cuBLAS": lambda: x @ x,
        "cuBLASLt": lambda: torch.nn.functional.linear(x, x, x[0]),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(heads, heads, heads),
        "cuDNN": lambda: torch.nn.functional.conv2d(image, torch.ones(16, 16, 3, 3, device="cuda")),
        "cuFFT": lambda: torch.fft.fft(x),
        "cuSOLVER": lambda: torch.linalg.cholesky(torch.eye(64, device="cuda")),
        "nvrtc": lambda: torch.special.airy_ai(x),
    }
    for name, use in kinds.items():
        try:
            use()
            tell(after=name, outside_bytes=outside_bytes())
        except RuntimeError as error:
            tell(after=name, outside_bytes=outside_bytes(), error=str(error)[:200])


def workspaces():
    x = torch.ones(256, 256, device="cuda")
    before = torch.cuda.memory_allocated()
    kept = [x @ x]
    gemm = torch.cuda.memory_allocated() - before - kept[0].nbytes
    before = torch.cuda.memory_allocated()
    kept.append(torch.nn.functional.linear(x, x, x[0]))
    lt = torch.cuda.memory_allocated() - before - kept[1].nbytes
    with torch.cuda.stream(torch.cuda.Stream()):
        before = torch.cuda.memory_allocated()
        kept.append(x @ x)
        other = torch.cuda.memory_allocated() - before - kept[2].nbytes
    tell(gemm_bytes=gemm, lt_bytes=lt, on_another_stream_bytes=other)


def nccl():
    torch.ones(1, device="cuda")
    start = outside_bytes()
    dist.init_process_group(
        "nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0")
    )
    after_init = outside_bytes()
    data = torch.ones(1 << 22, device="cuda")
    gathered = torch.empty_like(data)
    before = outside_bytes()
    dist.all_gather_into_tensor(gathered, data)
    dist.reduce_scatter_tensor(gathered, data)
    dist.all_reduce(data)
    after = outside_bytes()
    dist.destroy_process_group()
    tell(
        version=".".join(map(str, torch.cuda.nccl.version())),
        init_bytes=after_init - start,
        first_bytes=after - before,
        left_bytes=outside_bytes() - start,
    )


def callbacks(library):
    """Counts through a file, which the counter writes and this process reads back."""
    attached = ctypes.CDLL(library).InitializeInjection()
    x = torch.ones(64, 64, device="cuda")
    operators = 20
    for _ in range(operators):
        x = x * 1.5
    torch.cuda.synchronize()
    counters = [0, 0, 0, 0]
    path = f"{os.environ['SHARDLENS_CALLS']}.{os.getpid()}"
    if os.path.exists(path):
        with open(path, "rb") as file:
            counters = [int.from_bytes(file.read(8), "little") for _ in range(4)]
    tell(
        attached=attached,
        operators=operators,
        **dict(zip(("kernels", "graphs", "memory", "runtime_kernels"), counters)),
    )


def clocks(seconds):
    """Reports CUPTI's timestamps beside the host's real time, twice, and an interval of events
    beside the host's monotonic clock."""
    cupti = ctypes.CDLL("libcupti.so.13")
    stamp = ctypes.c_uint64()
    torch.cuda.init()

    def offset():
        best = None
        for _ in range(100):
            before = time.time_ns()
            cupti.cuptiGetTimestamp(ctypes.byref(stamp))
            after = time.time_ns()
            if best is None or after - before < best[0]:
                best = (after - before, stamp.value - (before + after) // 2)
        return best

    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    offset_width, offset_ns = offset()
    torch.cuda.synchronize()
    start = time.monotonic_ns()
    first.record()
    first.synchronize()
    time.sleep(float(seconds))
    last.record()
    last.synchronize()
    host_ms = (time.monotonic_ns() - start) / 1e6
    _, later_ns = offset()
    tell(
        offset_ns=offset_ns,
        width_ns=offset_width,
        seconds=host_ms / 1e3,
        drift_ppm=(later_ns - offset_ns) / host_ms,
        event_ms=first.elapsed_time(last),
        event_error_ppm=(first.elapsed_time(last) / host_ms - 1) * 1e6,
    )


def main():
    """Exits with 0 even if a fact could not be found: the others are still reported."""
    for word in sys.argv[1:]:
        tell.fact, _, argument = word.partition("=")
        find = globals()[tell.fact]
        os.waitpid(in_child(lambda: find(argument) if argument else find()), 0)


if __name__ == "__main__":
    main()
