"""Tests what is said of memory that outlives its step, of retries and of lines that differ: that
`shardlens record` calls programs that grow so, and no others; what a program takes without retries;
and that two lines of an unchanged file are not taken for one.

    growth_cases.py quick|long [NAME ...]

recorded.py says which Python runs them.
"""

import json
import re
import sys

from recorded import HERE, PYTHON, OnNullDevice, report_of, run_cases, shardlens

SCRIPT = HERE / "scripts" / "explained" / "growing.py"


def programs(kind):
    return re.findall(rf"^def ({kind}_\w+)\(", SCRIPT.read_text(), re.MULTILINE)


def record(folder, names):
    """Returns the recorded run, and for each program its verdict and what JSON says of growth."""
    run = OnNullDevice(folder, PYTHON, SCRIPT, *names, flags=["--fail-on", "growth"])
    lines = run.text.splitlines()
    found = {}
    for rank, name in enumerate(names):
        file = f"profiles/rank{rank}.slp: "
        verdict = next((line for line in lines if file in line), f"no verdict in {run.text}")
        found[name] = verdict, report_of(run.out / "profiles" / f"rank{rank}.slp")["growth"]
    return run, found


def check_programs_that_grow(folder):
    run, found = record(folder, programs("leak"))
    wrong = [f"{name}: {verdict}" for name, (verdict, growth) in found.items()
             if growth is None or "but grows by" not in verdict]
    unnamed = [f"{name}: {growth['text']}" for name, (_, growth) in found.items() if growth and
               "growing.py:" not in growth["places"][0]["label"] + growth["places"][0]["caller"]]
    assert not wrong + unnamed, "\n".join(wrong + unnamed)
    assert len(found) >= 20 and run.code == 1, f"{len(found)} programs, exit code {run.code}"


def check_programs_that_do_not_grow(folder):
    run, found = record(folder, programs("fine"))
    wrong = [f"{name}: {verdict}" for name, (verdict, growth) in found.items()
             if growth is not None or "fits: " not in verdict or "grows" in verdict]
    assert not wrong, "\n".join(wrong)
    assert len(found) >= 20 and run.code == 0, f"{len(found)} programs, exit code {run.code}"


def check_kept_from_the_step_before(folder):
    record(folder, ["fine_last_output", "fine_plain"])
    kept = [report_of(f"{folder}/run/profiles/rank{rank}.slp")["at_peak"]["kept_from_earlier_steps"]
            for rank in range(2)]
    line = [place for place in kept[0] if place["label"].startswith("growing.py")]
    assert len(line) == 1 and line[0]["bytes"] == 1024 * 512 * 4, kept[0]
    assert (line[0]["youngest_steps"], line[0]["oldest_steps"]) == (1, 1), kept[0]
    assert not kept[1], kept[1]
    text = shardlens("profile", "report", f"{folder}/run/profiles/rank0.slp").stdout
    assert "kept from earlier steps: 2.00 MiB" in text, text


def takes(folder, *flags):
    """Returns what each of the programs takes without retries."""
    run = OnNullDevice(folder, PYTHON, SCRIPT, *programs("strand"), flags=flags)
    pattern = r"(?:fits: |without them it takes )([\d.]+ GiB) (?:of|\(including)"
    return re.findall(pattern, run.text), run.text


def check_retries(folder):
    """A program takes without retries as much as on a GPU that is large enough."""
    limited, text = takes(f"{folder}/limited", "--capacity", "7GiB")
    free, _ = takes(f"{folder}/free")
    assert len(limited) == 2 and limited == free, f"{limited}, not {free}\n{text}"
    assert text.count("fits with retries") == 2, text


def rows_between(a, b):
    diff = shardlens("profile", "diff", a, b, "--json")
    return json.loads(diff.stdout)["ranks"][0]["comparison"]["rows"]


def check_unchanged_lines(folder):
    record(folder, ["fine_wide_loss", "fine_narrow_loss"])
    wide, narrow = (f"{folder}/run/profiles/rank{rank}.slp" for rank in range(2))
    source = SCRIPT.read_text().splitlines()
    losses = 0
    for row in rows_between(wide, narrow):
        match = re.match(r"growing.py:(\d+) ", row["place"])
        if match and "cross_entropy" in source[int(match.group(1)) - 1]:
            losses += 1
            assert 0 in (row["a_bytes"], row["b_bytes"]), row
    assert losses >= 1, rows_between(wide, narrow)
    changed = [row for row in rows_between(wide, wide) if row["change_bytes"] != 0]
    assert not changed, changed


QUICK = [check_programs_that_grow, check_programs_that_do_not_grow, check_kept_from_the_step_before,
         check_unchanged_lines]
LONG = [check_retries]

if __name__ == "__main__":
    sys.exit(run_cases(QUICK if sys.argv[1] == "quick" else LONG))
