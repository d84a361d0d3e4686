"""Records programs that know nothing of it (scripts/) on the null device, and holds the recordings
against what PyTorch itself says of the same processes.

    record_cases.py quick|long

Of every case: the command's exit code is passed on; the peaks that `shardlens profile report` finds
in the .slp alone are PyTorch's max_memory_allocated and max_memory_reserved to the byte; every event
of the allocator's own history is in the recording, in the same order and size (when a freed block
was completed, which exports do not tell, is left out); at most 6 % of the peak is unclassed, and the
recording leaves nothing in doubt.

recorded.py says which Python runs them.
"""

import json
import pathlib
import resource
import sys
import tempfile
import time

from recorded import HERE, PYTHON, report_of, shardlens

MOST_UNCLASSED = 0.06
RANKS = [(0, 2), (5, 16), (511, 512), (0, 16), (0, 512), (15, 16), (1, 2)]

QUICK = [
    (["guide.py", "--clip"], [(5, 16)]),
    (["transformer.py", "--strategy", "ddp", "--optimizer", "fused"], [(1, 2)]),
    (["tutorial.py", "--save"], [(5, 16)]),
]
LONG = [
    (["guide.py"], RANKS),
    (["guide.py", "--clip", "--mixed-precision"], RANKS),
    (["tutorial.py", "--save"], RANKS),
    (["tutorial.py", "--bf16"], [(0, 2), (511, 512)]),
    (["tutorial.py", "--offload"], [(0, 2), (5, 16)]),
    (["llama.py"], RANKS),
    (["transformer.py", "--strategy", "plain"], [(0, 1)]),
    (["transformer.py", "--strategy", "plain", "--optimizer", "single"], [(0, 1)]),
    (["transformer.py", "--strategy", "ddp"], RANKS),
    (["transformer.py", "--strategy", "ddp", "--accumulate", "3", "--clip", "1"], [(5, 16)]),
    (["transformer.py", "--strategy", "fsdp1"], RANKS),
    (["transformer.py", "--strategy", "fsdp1-nodes"], [(0, 2), (13, 16)]),
    (["transformer.py", "--strategy", "hsdp"], RANKS),
    (["transformer.py", "--strategy", "hsdp", "--bf16", "--optimizer", "fused"], [(511, 512)]),
    (["transformer.py", "--strategy", "fsdp2-tp"], [(5, 16), (511, 512), (1, 2)]),
    (["transformer.py", "--strategy", "fsdp2-tp", "--bf16"], [(0, 16)]),
    (["transformer.py", "--optimizer", "fused", "--bf16"], RANKS),
    (["transformer.py", "--optimizer", "foreach", "--clip", "1"], [(0, 2), (5, 16)]),
    (["transformer.py", "--offload", "--clip", "1"], [(0, 2), (5, 16)]),
    (["transformer.py", "--checkpoint-activations"], [(0, 2), (511, 512)]),
    (["transformer.py", "--checkpoint-activations", "--bf16", "--accumulate", "2"], [(5, 16)]),
]


def as_rank(rank, world):
    return ["--device", "null:h100", "--world", world, "--rank", rank]


def compared(events):
    left_out = ("free_completed", "snapshot")
    return [[action, size] for action, size in events if action not in left_out]


def events_in(out, folder):
    path = pathlib.Path(folder) / "events.json"
    done = shardlens("profile", "export", out, "--format", "memory-viz-json", "--out", path)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    entries = json.loads(path.read_text())["device_traces"][0]
    return [[entry["action"], entry["size"]] for entry in entries]


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found}, but PyTorch says {wanted}")


def check_events(found, wanted):
    found, wanted = compared(found), compared(wanted)
    for index, pair in enumerate(zip(found, wanted)):
        expect(f"event {index}", *pair)
    expect("events", len(found), len(wanted))


def check(arguments, place, launcher=(PYTHON,)):
    """The peak in bytes, and the share of it that is unclassed. `place`: flags of record that say
    where the program runs."""
    script, *flags = arguments
    with tempfile.TemporaryDirectory() as folder:
        out, said = pathlib.Path(folder) / "run", pathlib.Path(folder) / "said.json"
        command = [*launcher, HERE / "oracle.py", said, HERE / "scripts" / script, *flags]
        done = shardlens("record", *place, "--out", out, "--", *command)
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
        oracle, report = json.loads(said.read_text()), report_of(out)
        peak = report["peak"]
        expect("allocated", peak["allocated_bytes"], oracle["allocated_bytes"])
        expect("reserved", peak["reserved_bytes"], oracle["reserved_bytes"])
        expect("lost", report["lost"], 0)
        check_events(events_in(out, folder), oracle["events"])
        facts = [json.loads(path.read_text()) for path in (out / "profiles").glob("rank*.json")]
        expect("doubts", [facts[0]["doubts"], facts[0]["as_pytorch_counted"]], [[], True])
    other = report["at_peak"]["categories"].get("other", 0) / peak["allocated_bytes"]
    if other > MOST_UNCLASSED:
        raise AssertionError(f"{other:.1%} of the peak is unclassed")
    return peak["allocated_bytes"], other


def check_llama_8b():
    """A case without PyTorch's own history beside it, which costs as much again."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        script = HERE / "scripts" / "llama.py"
        command = [PYTHON, script, "--size", "8b", "--tokens", "8192"]
        done = shardlens("record", *as_rank(0, 16), "--out", f"{folder}/run", "--", *command)
        wall_s = time.monotonic() - start
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
        peak = report_of(f"{folder}/run")["peak"]["allocated_bytes"]
    host = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"llama-8b: rank 0 of 16 in {wall_s:.1f} s and {host:.2f} GiB of host memory, "
          f"peak {peak / 2**30:.2f} GiB", flush=True)
    if host > 1:
        raise AssertionError(f"{host:.2f} GiB of host memory")


def main():
    failed = 0
    for arguments, ranks in {"quick": QUICK, "long": LONG}[sys.argv[1]]:
        for rank, world in ranks:
            name = f"{' '.join(arguments)}, rank {rank} of {world}"
            try:
                peak, other = check(arguments, as_rank(rank, world))
                print(f"ok      {name}: {peak} bytes, {other:.2%} unclassed", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {name}: {error}", flush=True)
    if sys.argv[1] == "long":
        check_llama_8b()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
