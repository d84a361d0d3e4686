"""Ends as its argument says: out of memory, failed before it used a GPU, with PyTorch's counters
reset. Also has the endings of misbehave.py."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import misbehave
from misbehave import run_out, train


def run_out_and_exit():
    train(2)
    try:
        run_out()
    except torch.OutOfMemoryError as error:
        print("caught", error, flush=True)
        sys.exit(1)


def run_out_and_go_on():
    try:
        run_out()
    except torch.OutOfMemoryError:
        train(2)


def run_out_and_die():
    try:
        run_out()
    except torch.OutOfMemoryError:
        os.kill(os.getpid(), signal.SIGKILL)


def run_out_in_child():
    """Runs a process beside the recorded one, which turns its failure into its own."""
    train(1)
    command = [sys.executable, __file__, "run_out_and_exit"]
    sys.exit(9 if os.spawnv(os.P_WAIT, sys.executable, command) else 0)


def run_out_as_rank():
    dist.init_process_group()
    train(1)
    if dist.get_rank() == dist.get_world_size() - 1:
        run_out()


def fill():
    """Takes all free memory in pieces, then one more: the message's figures are far from 0."""
    kept = []
    while True:
        kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))


def reset_counters():
    """The largest batch comes first; then the program starts to measure again, as benchmarks do."""
    train(1, rows=1 << 14)
    print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    torch.accelerator.reset_peak_memory_stats()
    train(1)


def retry_and_reset():
    """Three quarters of the GPU, cached in pieces that are too small, are freed for a half; then
    the counter of retries starts again."""
    free_bytes = torch.cuda.mem_get_info()[0]
    pieces = [torch.empty(free_bytes // 16, dtype=torch.uint8, device="cuda") for _ in range(12)]
    del pieces
    torch.empty(free_bytes // 2, dtype=torch.uint8, device="cuda")
    print("retries", torch.cuda.memory_stats()["num_alloc_retries"], flush=True)
    torch.cuda.reset_accumulated_memory_stats()
    train(1)


def differentiate():
    """Has no optimizer: the last event is a thread of autograd that releases a callback."""
    engine = torch.autograd.Variable._execution_engine
    weight = torch.ones(1 << 16, device="cuda", requires_grad=True)
    weight.register_hook(lambda gradient: engine.queue_callback(lambda: gradient.shape))
    for _ in range(2):
        weight.square().sum().backward()


def leave():
    train(2)
    os._exit(0)


def stop_on_interrupt():
    train(2)
    print("hanging", flush=True)
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        sys.exit(0)


def crash():
    train(2)
    os.kill(os.getpid(), signal.SIGSEGV)


def fail_before():
    raise ValueError("a mistake\nof two lines, \x1b[31m and a colour")


def import_missing():
    from nowhere import something  # pylint: disable=import-error

    return something


def exit_before():
    sys.exit(3)


def initialise():
    torch.cuda.init()


def close_stderr():
    sys.stderr.close()
    train(2)


def old_history():
    """Asks for a history in the way of PyTorch 1.13, which still works."""
    torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=1000)
    train(2)
    print("entries", len(torch.cuda.memory._snapshot()["device_traces"][0]), flush=True)


def late_history():
    """Keeps a history of two allocations, after others."""
    train(1)
    torch.cuda.memory._record_memory_history()
    kept = [torch.empty(size, device="cuda") for size in (1000, 3000)]
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    print("entries", [(entry["action"], entry["size"]) for entry in entries], len(kept), flush=True)


if __name__ == "__main__":
    (vars(misbehave) | globals())[sys.argv[1]](*sys.argv[2:])
