"""Phase 9: what needs the whole GPU: programs that run out of memory, by PyTorch's own histories,
beside a null device with as much memory; peaks and step times of many programs; traces of
PyTorch's profiler. They are kept to check later versions with."""

import base64

import machine as machines
from phase_histories import EXPANDABLE, compare
from phase_programs import environment, full_words
from results import Failed
from steps import Step, measured, mib

SWEEP_LIMIT_S, SWEEP_S = 200, 130

CROWDED = {
    "crowded": (["crowded.py", "1"], ""),
    "crowded, expandable": (["crowded.py", "2"], EXPANDABLE),
    "crowded, split at most": (["crowded.py", "3"], "max_split_size_mb:512"),
    "crowded, collected": (["crowded.py", "4"], "garbage_collection_threshold:0.7"),
}
TRACES = {
    "plain": ["transformer.py", "--strategy", "plain", "--steps", "2"],
    "fsdp2": ["transformer.py", "--bf16", "--optimizer", "fused", "--steps", "2"],
    "graphs": ["graphs.py"],
}
FEW = ("crowded", "graphs")


def sweep(machine):
    """Peaks of each case must be those of the null device; times are kept."""
    seconds = ["--few"] if machine.few else ["--seconds", SWEEP_S]
    command = [machine.python, machines.PROGRAMS / "sweep.py", *seconds]
    place = environment(machine.gpu_environment(), has_cudnn=True)
    code, out, error = machines.run(command, env=place, limit_s=SWEEP_LIMIT_S)
    rows = machines.rows_of(out)
    if not rows:
        raise Failed(f"exit code {code}: {machines.last_line(error)}")
    failed = [row["case"] for row in rows if "error" in row]
    said = f"{len(rows)} cases, {len(failed)} with an error"
    return measured(said, rows=rows)


def trace(machine, folder, words):
    """PyTorch's profiler takes memory of its own, which is measured, too."""
    out = folder / "trace.json.gz"
    place = environment(machine.gpu_environment(), has_cudnn=True)
    command = [machine.python, machines.PROGRAMS / "trace.py", out, *full_words(words)]
    code, said, error = machines.run(command, env=place)
    if code != 0:
        raise Failed(f"exit code {code}: {machines.last_line(error)}")
    row = machines.rows_of(said)[-1]
    beside = row["total_bytes"] - row["free_bytes"] - row["reserved_bytes"]
    said = f"{mib(out.stat().st_size)}, {mib(beside)} beside PyTorch with its profiler"
    return measured(said, trace_gz=base64.b64encode(out.read_bytes()).decode(), **row)


def steps(machine):
    found = [
        Step(
            name,
            lambda folder, w=words, s=settings: compare(machine, folder, w, s, is_alone=True),
        )
        for name, (words, settings) in CROWDED.items()
        if not machine.few or name in FEW
    ]
    found.append(Step("peaks and times", lambda _: sweep(machine)))
    return found + [
        Step(f"trace of {name}", lambda folder, w=words: trace(machine, folder, w))
        for name, words in TRACES.items()
        if not machine.few or name in FEW
    ]
