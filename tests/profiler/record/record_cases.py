"""Records programs that know nothing of Shardlens (scripts/) on the null device, and compares the
recordings with what PyTorch itself says about the same processes.

    record_cases.py quick|long|facts

In every case the command's exit code is passed on; the peaks that `shardlens profile report` finds
in the .slp file are PyTorch's max_memory_allocated and max_memory_reserved to the byte; every event
of the allocator's own history is in the recording, in the same order and size (when a freed block
was completed is left out, since exports do not say it); the ranges over orders of addresses hold
these peaks, and with falling addresses a replay leads to them; at most 6 % of the peak has no
category, and the recording leaves nothing in doubt.

With `facts` each case of `long` runs as one rank, and a line of JSON says what was compared, for
tests/pytorch; the exit code is then 0 whatever was found.

recorded.py says which Python runs them.
"""

import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from recorded import HERE, PROGRAM, PYTHON, OnNullDevice, report_of, sampled, shardlens

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
# Each of LONG is run as one rank: the second in the list, or the only one.
ONCE = [(arguments, ranks[:2][-1:]) for arguments, ranks in LONG]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Says in words how a recording differs from what PyTorch says about the same process: a text
    is empty if it does not."""

    peaks: str
    events: str
    doubts: str
    unclassed: str
    peak_bytes: int
    other: float  # the share of the peak without a category

    def faults(self):
        return [text for text in (self.peaks, self.events, self.doubts, self.unclassed) if text]


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


@dataclasses.dataclass(frozen=True)
class Run:
    """A recorded program: what the report says, what rankR.json says, the events of the recording,
    what PyTorch said in the process, and what the command printed."""

    report: dict
    facts: dict
    events: list
    oracle: dict
    printed: str


def record_case(arguments, place, launcher=(PYTHON,), env=None):
    """Returns a Run. `place` holds the flags of record that say where the program runs. Raises
    AssertionError if it fails."""
    script, *flags = arguments
    with tempfile.TemporaryDirectory() as folder:
        out, said = pathlib.Path(folder) / "run", pathlib.Path(folder) / "said.json"
        command = [*launcher, HERE / "oracle.py", said, HERE / "scripts" / script, *flags]
        done = shardlens("record", *place, "--out", out, "--", *command, env=env)
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
        facts = [json.loads(path.read_text()) for path in (out / "profiles").glob("rank*.json")]
        return Run(report_of(out), facts[0], events_in(out, folder),
                   json.loads(said.read_text()), done.stdout)


def fault_of(check_something, *arguments):
    """Returns what the check finds wrong, or an empty text."""
    try:
        check_something(*arguments)
    except AssertionError as error:
        return str(error)
    return ""


def check_peaks(run):
    peak = run.report["peak"]
    expect("allocated", peak["allocated_bytes"], run.oracle["allocated_bytes"])
    expect("reserved", peak["reserved_bytes"], run.oracle["reserved_bytes"])
    check_bands(run)


def check_bands(run):
    """The null device has falling addresses, so the replay with these must lead to the peaks."""
    bands = run.report["bands"]
    expect("bands in rankR.json", run.facts["bands"], bands)
    for name in ("allocated", "reserved"):
        band, peak = bands[name], run.oracle[f"{name}_bytes"]
        expect(f"{name} with falling addresses", band["falling_bytes"], peak)
        expect(f"{name} in {band}", band["least_bytes"] <= peak <= band["most_bytes"], True)
        if bands["orders"] == 1:
            expect(f"{name} in one order", [band["least_bytes"], band["most_bytes"]], [peak, peak])


def check_counters(run):
    """Compares PyTorch's own counters, which are in rankR.json, with the recording's."""
    facts = run.facts
    own = {name: facts[name] for name in facts["recorded"]}
    expect("counted", [facts["recorded"], facts["as_pytorch_counted"]], [own, True])
    if facts["allocations"] <= 0:
        raise AssertionError(f"PyTorch has counted nothing: {facts}")


def check_all_events(run):
    expect("lost", run.report["lost"], 0)
    check_events(run.events, run.oracle["events"])
    check_counters(run)


def check_doubts(run):
    expect("doubts", run.facts["doubts"], [])


def compare(run):
    peak_bytes = run.report["peak"]["allocated_bytes"]
    other = run.report["at_peak"]["categories"].get("other", 0) / peak_bytes
    unclassed = f"{other:.1%} of the peak is unclassed" if other > MOST_UNCLASSED else ""
    faults = [fault_of(check, run) for check in (check_peaks, check_all_events, check_doubts)]
    return Comparison(*faults, unclassed, peak_bytes, other)


def check(arguments, place, launcher=(PYTHON,)):
    """Returns the peak in bytes and its share without a category, or raises AssertionError."""
    comparison = compare(record_case(arguments, place, launcher))
    if faults := comparison.faults():
        raise AssertionError("; ".join(faults))
    return comparison.peak_bytes, comparison.other


def facts_of(arguments, rank, world):
    """Returns what `facts` prints of one case."""
    start = time.monotonic()
    facts = {"case": " ".join(arguments), "rank": rank, "world": world}
    try:
        facts |= dataclasses.asdict(compare(record_case(arguments, as_rank(rank, world))))
    except AssertionError as error:
        facts["failed"] = str(error)
    return facts | {"seconds": round(time.monotonic() - start, 1)}


def print_facts(cases):
    for arguments, ranks in cases:
        for rank, world in ranks:
            print(json.dumps(facts_of(arguments, rank, world)), flush=True)
    return 0


def check_llama_8b():
    """Runs a case without PyTorch's own history, which would cost as much again."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        script = HERE / "scripts" / "llama.py"
        command = [PYTHON, script, "--size", "8b", "--tokens", "8192"]
        record = [PROGRAM, "record", *as_rank(0, 16), "--out", f"{folder}/run", "--", *command]
        with open(f"{folder}/said", "w+", encoding="utf-8") as said:
            with subprocess.Popen(list(map(str, record)), stdout=said, stderr=said) as child:
                # Only this child's memory counts: a compiler that built the recorder may have taken
                # more.
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
            wall_s = time.monotonic() - start
            said.seek(0)
            if child.returncode != 0:
                raise AssertionError(f"exit code {child.returncode}\n{said.read()}")
        peak = report_of(f"{folder}/run")["peak"]["allocated_bytes"]
    host = usage.ru_maxrss / 2**20
    print(f"llama-8b: rank 0 of 16 in {wall_s:.1f} s and {host:.2f} GiB of host memory, "
          f"peak {peak / 2**30:.2f} GiB", flush=True)
    if host > 1:
        raise AssertionError(f"{host:.2f} GiB of host memory")


def check_fills(seed):
    """A program reads the same random values on the host whatever --init says."""
    print(f"fills, seed {seed}", flush=True)
    told = {}
    for how in ("keep", "skip"):
        with tempfile.TemporaryDirectory() as folder:
            run = OnNullDevice(folder, PYTHON, HERE / "scripts" / "fills.py", seed,
                               flags=["--init", how])
            run.expect(0, "as PyTorch counted: equal")
            if "may be others" in run.lines:
                raise AssertionError(run.lines)
            told[how] = [line for line in run.text.splitlines() if line.startswith("read:")]
            fills = json.loads((run.out / "profiles" / "rank0.json").read_text())["fills"]
            if (fills["left_out"] + fills["drawn"] > 0) != (how == "skip"):
                raise AssertionError(f"--init {how}: {fills}")
    for kept, skipped in zip(*told.values(), strict=True):
        if kept != skipped:
            raise AssertionError(f"{kept}, but {skipped} with --init skip")


def fails_in_fills(seed):
    try:
        check_fills(seed)
    except AssertionError as error:
        print(f"FAILED  fills, seed {seed}: {error}", flush=True)
        return True
    return False


def main():
    if sys.argv[1] == "facts":
        return print_facts(ONCE)
    failed = 0
    for arguments, ranks in sampled({"quick": QUICK, "long": LONG}[sys.argv[1]]):
        for rank, world in ranks:
            name = f"{' '.join(arguments)}, rank {rank} of {world}"
            try:
                peak, other = check(arguments, as_rank(rank, world))
                print(f"ok      {name}: {peak} bytes, {other:.2%} without a category", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {name}: {error}", flush=True)
    for seed in random.sample(range(1 << 16), 1 if sys.argv[1] == "quick" else 10):
        failed += fails_in_fills(seed)
    if sys.argv[1] == "long":
        check_llama_8b()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
