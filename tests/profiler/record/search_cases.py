"""Searches with `shardlens advise`, `solve` and `sweep`, and compares what they find with recordings of
all values, and of the program edited by hand.

    search_cases.py quick|long [CASE...]

recorded.py says which Python runs the programs.
"""

import json
import os
import pathlib
import sys

from recorded import HERE, PYTHON, Recorded, report_of, run_cases, shardlens

SCRIPT = HERE / "scripts" / "levers" / "batches.py"
SMALL = ("--device", "null:l4", "--capacity", "1700MiB")


def searched(code, command, folder, *arguments, flags=SMALL, env=None):
    """Returns the JSON of a search that ends with this exit code."""
    out = pathlib.Path(folder) / command
    done = shardlens(command, *flags, "--json", "--out", out, *arguments, env=env)
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def expect(is_so, what):
    if not is_so:
        raise AssertionError(json.dumps(what, indent=1))


def check_failing(folder):
    """A program that fails with a number stops the search, with the program's own error."""
    found = searched(5, "solve", folder, "--", PYTHON, SCRIPT, "--limit", "2", "--batch", "{batch}")
    expect("ValueError: a batch of 4" in found["problem"], found)
    expect([found["is_solved"], found["largest_that_fits"]] == [False, 2], found)


def check_ignored(folder):
    found = searched(5, "solve", folder, "--", PYTHON, SCRIPT, "--batch", "8", "--ignored", "{batch}")
    expect("may ignore {batch}" in found["problem"] and not found["is_solved"], found)


def check_never(folder):
    found = searched(3, "solve", folder, "--from", "100000", "--", PYTHON, SCRIPT, "--batch",
                     "{batch}")
    expect("does not fit with batch=100000" in found["problem"], found)


def check_solved(folder):
    """The largest batch of the search is that of a sweep over all candidates."""
    command = ["--", PYTHON, SCRIPT, "--batch", "{batch}"]
    found = searched(0, "solve", folder, "--from", "1500", *command)
    largest = found["largest_that_fits"]
    around = ",".join(str(value) for value in range(largest - 3, largest + 4))
    swept = searched(0, "sweep", folder, "--values", f"batch={around}", *command)
    fitting = [run["values"]["batch"] for run in swept["runs"] if run["outcome"] == "measured"]
    expect(max(fitting) == largest and len(swept["runs"]) == 7, [found, swept])


def check_advised(folder):
    """The best set fits, and the program edited by hand takes the same bytes."""
    flags = ("--device", "null:l4", "--fit", "1570MiB")
    found = searched(0, "advise", folder, "--levers", "optimizer=fused,recompute=full", "--", PYTHON,
                     SCRIPT, flags=flags)
    best = found["tried"][0]
    expect(best["fits"] and best["levers"] == ["optimizer=fused", "recompute=full"], found)
    expect(not found["as_it_is"]["fits"] and found["is_complete"], found)
    text = SCRIPT.read_text().replace("(model.parameters())", "(model.parameters(), fused=True)")
    text = text.replace("x + self.shrink(torch.relu(self.grow(x)))",
                        "torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)")
    text = text.replace("    def forward(", "    def inner(self, x):\n        return x + self.shrink("
                        "torch.relu(self.grow(x)))\n\n    def forward(")
    edited = pathlib.Path(folder) / "edited.py"
    edited.write_text(text.replace("import torch\n", "import torch\nimport torch.utils.checkpoint\n", 1))
    run = Recorded(folder, PYTHON, edited, flags=["--device", "null:l4"]).expect(0)
    peak = report_of(run.out)["peak"]
    expect([best["allocated_bytes"], best["reserved_bytes"]]
           == [peak["allocated_bytes"], peak["reserved_bytes"]], [best, peak])


def check_broken(folder):
    """A lever that breaks the program is shown with the program's own error, and never fits."""
    found = searched(3, "advise", folder, "--levers", "model-dtype=bf16", "--", PYTHON, SCRIPT,
                     flags=("--device", "null:l4", "--fit", "1500MiB"))
    only, = found["tried"]
    expect([only["outcome"], only["fits"]] == ["failed", False] and "dtype" in only["why"], found)


def check_early(folder):
    """Sets end when the steps of the program are alike; the best one runs to its end."""
    found = searched(0, "advise", folder, "--levers", "recompute=full", "--", PYTHON, SCRIPT, "--steps",
                     "12", flags=("--device", "null:l4", "--fit", "1650MiB"))
    best = found["tried"][0]
    expect(found["steps_of_sets"] == 3 and best["fits"] and "--steps 3" not in best["command"], found)
    steps = report_of(best["run"])["steps"]
    expect(len(steps) >= 12, steps)


def check_timed(folder):
    """Times are those that `profile time` finds in the kept recordings; a lever takes as long as the
    program edited by hand; and what fits is in the order of its time."""
    found = searched(0, "advise", folder, "--by", "time", "--levers", "optimizer=fused,recompute=full",
                     "--", PYTHON, SCRIPT, flags=("--device", "null:h100"))
    expect(found["by"] == "time" and found["as_it_is"]["time"]["basis"] == "cold", found)
    times = {}
    for run in [found["as_it_is"], *found["tried"]]:
        done = shardlens("profile", "time", run["run"], "--json")
        alone = json.loads(done.stdout)
        expect(abs(alone["seconds"] / run["time"]["seconds"] - 1) < 1e-6, [alone, run])
        expect(run["time"]["low_seconds"] < alone["seconds"] < run["time"]["high_seconds"], run)
        times[",".join(run["levers"])] = alone["seconds"]
    expect(list(times)[1:] == sorted(list(times)[1:], key=times.get), times)
    expect(times["optimizer=fused"] < times[""] < times["recompute=full"], times)
    edited = pathlib.Path(folder) / "edited.py"
    edited.write_text(SCRIPT.read_text().replace("(model.parameters())",
                                                 "(model.parameters(), fused=True)"))
    run = Recorded(folder, PYTHON, edited, flags=["--device", "null:h100", "--time"]).expect(0)
    by_hand = json.loads(shardlens("profile", "time", run.out, "--json").stdout)["seconds"]
    expect(abs(by_hand / times["optimizer=fused"] - 1) < 0.05, [by_hand, times])
    swept = searched(0, "sweep", folder, "--time", "--values", "batch=2048,4096", "--", PYTHON, SCRIPT,
                     "--batch", "{batch}", flags=("--device", "null:l4"))
    half, whole = (one["time"] for one in swept["runs"])
    expect(1.3 < whole["seconds"] / half["seconds"] < 2, swept)
    expect(any("no step that others measured" in doubt for doubt in half["doubts"]), half)


# Parts of a report that differ between two runs of one program, such as times and samples of the host.
_OWN = ("source", "command", "time", "host", "counters", "events")


def _common(part):
    """Returns a report without what differs between two runs of one program."""
    if isinstance(part, dict):
        return {key: _common(value) for key, value in part.items()
                if not any(word in key for word in _OWN)}
    return [_common(one) for one in part] if isinstance(part, list) else part


def _counted(run):
    """Returns PyTorch's own counters of a run."""
    facts = json.loads((pathlib.Path(run) / "profiles" / "rank0.json").read_text())
    return {key: value for key, value in facts.items() if key.startswith(("alloc", "peak", "retries"))}


def check_forked(folder):
    """Variants that were forked are those of new processes, in every number of their reports: of each
    block, stack, step and phase. The best is confirmed by a new process."""
    levers = "optimizer=fused,recompute=full,activations=host"
    found = searched(0, "advise", folder, "--levers", levers, "--", PYTHON, SCRIPT,
                     flags=("--device", "null:l4", "--fit", "1700MiB"))
    best, *others = found["tried"]
    expect(best["fits"] and not best["was_forked"], found)
    expect(len(others) >= 2 and all(run["was_forked"] for run in others), found)
    for run in others:
        alone = Recorded(folder, PYTHON, SCRIPT,
                         flags=["--device", "null:l4", "--capacity", "1TiB", "--with",
                                ",".join(run["levers"])]).expect(0)
        one, other = _common(report_of(run["run"])), _common(report_of(alone.out))
        expect(one == other, [key for key in one if one[key] != other.get(key)])
        expect(_counted(run["run"]) == _counted(alone.out), run)


REFORKING = """
import os, sys
if "AGAIN" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"AGAIN": "1"})
"""
SETTING = """
import os
os.environ["OMP_SCHEDULE"] = "static"
"""
SETTING_LATER = """
import os, torch
os.environ["OMP_SCHEDULE"] = "static"
import sqlite3
"""
ASKING = """
import asks_for_gpus
"""
FORKING = """
import os
if child := os.fork():
    os.waitpid(child, 0)
else:
    os._exit(0)
"""


def check_unforkable(folder):
    """A program that executes itself again, or sets a variable before it imports PyTorch, runs as a new
    process each time. One is forked that forks itself, sets a variable before a later import, or imports
    a library that asks CUDA for its GPUs. What they take is the same."""
    peaks = set()
    library = pathlib.Path(folder) / "site-packages"
    library.mkdir()
    (library / "asks_for_gpus.py").write_text("import torch\ntorch._C._cuda_getDeviceCount()\n")
    programs = ((REFORKING, False), (SETTING, False), (SETTING_LATER, True), (ASKING, True), (FORKING, True))
    for before, is_forked in programs:
        script = pathlib.Path(folder) / "program.py"
        script.write_text(before + SCRIPT.read_text())
        found = searched(0, "sweep", folder, "--values", "batch=512,1024,2048", "--", PYTHON, script,
                         "--batch", "{batch}", env=os.environ | {"PYTHONPATH": str(library)})
        forked = [run["was_forked"] for run in found["runs"]]
        expect(forked == [False, is_forked, is_forked], [before, found])
        peaks.add(tuple((run["allocated_bytes"], run["reserved_bytes"]) for run in found["runs"]))
    expect(len(peaks) == 1, list(peaks))


def check_no_python(folder):
    """A command that starts no Python is said to start none: nothing fits, and nothing is advised."""
    python = pathlib.Path(PYTHON).parent
    found = searched(5, "advise", folder, "--", "true", flags=SMALL,
                     env=os.environ | {"PATH": f"{python}:{os.environ['PATH']}"})
    expect("has started no Python" in found["as_it_is"]["why"] and not found["tried"], found)


def check_placeholders(folder):
    """Commands without a placeholder, or with another one, are refused before anything runs."""
    for arguments, word in ((["solve"], "0 placeholders"), (["sweep"], "give --values"),
                            (["sweep", "--values", "seq=1"], "give --values")):
        done = shardlens(*arguments, *SMALL, "--out", folder, "--", PYTHON, SCRIPT)
        expect(done.returncode == 2 and word in done.stderr, done.stderr)


def check_viewed(folder):
    """What-if in the viewer finds out which levers apply to a plain recording, and records it with one: with
    the memory that `record --with` finds. What was recorded before is shown, and not run again."""
    flags = ["--device", "null:l4", "--steps", "2"]
    run = Recorded(folder, PYTHON, SCRIPT, "--batch", "256", flags=flags).expect(0)
    script = pathlib.Path(folder) / "viewed.json"

    def viewed(*commands):
        done = shardlens("view", run.out, "--do", ",".join(("whatif", *commands)), "--report", script)
        expect(done.returncode == 0, done.stderr)
        return [one["name"] for one in json.loads(script.read_text())["strategies"]]

    variant = run.out / "with" / "optimizer=fused"
    names = viewed("whatif.lever.run", "whatif.lever.run")
    log = variant / "log.txt"
    expect(names == ["run", "optimizer=fused"], [names, log.read_text() if log.exists() else ""])
    facts = json.loads((run.out / "with" / "as_it_is" / "profiles" / "rank0.json").read_text())
    expect(facts["lever_sites"] and _counted(run.out) == _counted(run.out / "with" / "as_it_is"), facts)
    broken = ["whatif.lever.previous"] * 2 + ["whatif.lever.run"]  # not applicable: nothing is run
    expect(viewed(*broken) == ["run"], facts)
    made = log.stat().st_mtime_ns
    expect(viewed("whatif.lever.run") == names and log.stat().st_mtime_ns == made, names)
    again = pathlib.Path(folder) / "again"
    again.mkdir()
    by_hand = Recorded(again, PYTHON, SCRIPT, "--batch", "256", flags=[*flags, "--with", "optimizer=fused"])
    expect(_common(report_of(variant)) == _common(report_of(by_hand.expect(0).out)), facts["verdict"])


QUICK = [check_placeholders, check_no_python, check_failing]
LONG = [*QUICK, check_ignored, check_never, check_solved, check_advised, check_broken, check_early, check_forked,
        check_unforkable, check_timed, check_viewed]


def main():
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
