"""Tests what is said of memory that outlives its step, of free memory, of retries and of lines that
differ: that `shardlens record` calls programs that grow so, and no others; why a program reserves
more than it allocates, and what it takes without retries; and that two lines of an unchanged file
are not taken for one. `quick` takes a few programs of each kind.

    growth_cases.py quick|long [NAME ...]

recorded.py says which Python runs them.
"""

import json
import re
import sys

from recorded import HERE, PYTHON, OnNullDevice, report_of, run_cases, shardlens

SCRIPT = HERE / "scripts" / "explained" / "growing.py"
HOLDING = HERE / "scripts" / "explained" / "holding.py"


def programs(kind, script=SCRIPT):
    return re.findall(rf"^def ({kind}_\w+)\(", script.read_text(), re.MULTILINE)


class Programs:
    """Programs that were recorded, each as a rank of one run: of each its verdict, and what JSON says
    of growth."""

    def __init__(self, folder, names):
        self.names = names
        self.run = OnNullDevice(folder, PYTHON, SCRIPT, *names, flags=["--fail-on", "growth"])
        self.found = {name: (self._verdict(name), report_of(self.path(name))["growth"])
                      for name in names}

    def path(self, name):
        return self.run.out / "profiles" / f"rank{self.names.index(name)}.slp"

    def _verdict(self, name):
        file = f"profiles/{self.path(name).name}: "
        lines = self.run.text.splitlines()
        return next((line for line in lines if file in line), f"no verdict in {self.run.text}")


def expect_growth(done):
    wrong = [f"{name}: {verdict}" for name, (verdict, growth) in done.found.items()
             if growth is None or "but grows by" not in verdict]
    unnamed = [f"{name}: {growth['text']}" for name, (_, growth) in done.found.items() if growth and
               "growing.py:" not in growth["places"][0]["label"] + growth["places"][0]["caller"]]
    assert not wrong + unnamed, "\n".join(wrong + unnamed)
    assert done.run.code == 1, f"exit code {done.run.code}"


def expect_no_growth(done):
    wrong = [f"{name}: {verdict}" for name, (verdict, growth) in done.found.items()
             if growth is not None or "fits: " not in verdict or "grows" in verdict]
    assert not wrong, "\n".join(wrong)
    assert done.run.code == 0, f"exit code {done.run.code}"


def expect_kept_from_the_step_before(done):
    """The output of the last step is kept in one of these programs."""
    keeping, plain = ("fine_last_output", "fine_plain")
    kept = {name: report_of(done.path(name))["at_peak"]["kept_from_earlier_steps"]
            for name in (keeping, plain)}
    line = [place for place in kept[keeping] if place["label"].startswith("growing.py")]
    assert len(line) == 1 and line[0]["bytes"] == 1024 * 512 * 4, kept[keeping]
    assert (line[0]["youngest_steps"], line[0]["oldest_steps"]) == (1, 1), kept[keeping]
    assert not kept[plain], kept[plain]
    text = shardlens("profile", "report", done.path(keeping)).stdout
    assert "kept from earlier steps: 2.00 MiB" in text, text


def rows_between(a, b):
    diff = shardlens("profile", "diff", a, b, "--json")
    return json.loads(diff.stdout)["ranks"][0]["comparison"]["rows"]


def expect_unchanged_lines(done):
    """Two lines of one file compute the losses of these programs."""
    wide, narrow = (done.path(name) for name in ("fine_wide_loss", "fine_narrow_loss"))
    source = SCRIPT.read_text().splitlines()
    losses = [row for row in rows_between(wide, narrow)
              if (match := re.match(r"growing.py:(\d+) ", row["place"]))
              and "cross_entropy" in source[int(match[1]) - 1]]
    assert losses, rows_between(wide, narrow)
    assert all(0 in (row["a_bytes"], row["b_bytes"]) for row in losses), losses
    line = next(i for i, text in enumerate(source, 1) if "logits.float()" in text)
    text = shardlens("profile", "diff", narrow, wide).stdout
    assert f"growing.py:{line} " in text, text
    changed = [row for row in rows_between(wide, wide) if row["change_bytes"] != 0]
    assert not changed, changed


TWO_KEPT = ["fine_last_output", "fine_plain"]
TWO_LOSSES = ["fine_wide_loss", "fine_narrow_loss"]


def check_few_that_grow(folder):
    expect_growth(Programs(folder, ["leak_metric_graph", "leak_every_fourth", "leak_varying_lengths",
                                    "leak_own_sgd"]))


def check_few_that_do_not_grow(folder):
    done = Programs(folder, ["fine_late_settling", "fine_building_alone", "fine_requests",
                             *TWO_KEPT, *TWO_LOSSES])
    expect_no_growth(done)
    expect_kept_from_the_step_before(done)
    expect_unchanged_lines(done)


def check_all_that_grow(folder):
    done = Programs(folder, programs("leak"))
    expect_growth(done)
    assert len(done.found) >= 20, f"{len(done.found)} programs"


def check_all_that_do_not_grow(folder):
    done = Programs(folder, programs("fine"))
    expect_no_growth(done)
    assert len(done.found) >= 20, f"{len(done.found)} programs"


# --- variables that hold what grows ---------------------------------------------------------------


def holders_by(folder, names, *flags):
    """Returns of each program the report's text, and the holders in JSON."""
    run = OnNullDevice(folder, PYTHON, HOLDING, *names, flags=flags)
    for rank, name in enumerate(names):
        path = run.out / "profiles" / f"rank{rank}.slp"
        yield name, shardlens("profile", "report", path).stdout, report_of(path)["holders"], run.text


def expect_holders(folder, names):
    source = HOLDING.read_text()
    for name, text, holders, said in holders_by(folder, [*names, "free"], "--holders"):
        found = re.findall(r"^  held by +(.*)", text, re.MULTILINE)
        wanted = re.findall(rf'^def {name}\(\):\n    """(.*)"""', source, re.MULTILINE)
        assert found == wanted, f"{name}: {found}, not {wanted}\n{text}"
        assert len(holders) == len(wanted), (name, holders)
        assert all(f"held by {line}" in said for line in wanted), (name, said)
        assert all(one["tensors_per_step"] == 1 for one in holders), (name, holders)


def check_holder_of_few(folder):
    expect_holders(folder, ["held_with_graph", "held_in_slot"])


def check_all_holders(folder):
    names = programs("held", HOLDING)
    assert len(names) >= 8, names
    expect_holders(folder, names)


def check_no_holders_without_flag(folder):
    (_, text, holders, said), = holders_by(folder, ["held_by_global"])
    assert "grows by" in said and "held by" not in said + text and holders == [], said + text


# --- reserved memory ------------------------------------------------------------------------------


GIB = 1 << 30


def reserved_by(folder):
    """Returns the text of each program that reserves more than it allocates, and of one that does
    not, and what JSON has of its reserved peak."""
    names = [*programs("strand"), *programs("hold"), "compact"]
    run = OnNullDevice(folder, PYTHON, SCRIPT, *names)
    for rank, name in enumerate(names):
        path = run.out / "profiles" / f"rank{rank}.slp"
        yield name, shardlens("profile", "report", path).stdout, report_of(path)["at_reserved_peak"]


def check_why_more_is_reserved(folder):
    """A report tells free memory of other streams, of small segments and beside used blocks apart."""
    found = {name: (text, reserved) for name, text, reserved in reserved_by(folder)}
    words = {"strand_in_a_stream": r"other streams +4.00 GiB  free in .* segments of other streams",
             "strand_in_small_segments": r"whole +\S+ GiB  free in .* too small",
             "hold_segments": r"beside used blocks +\S+ GiB  free in .*\n +\S+ GiB  beside 64.00 MiB in "
                              r"16 blocks.*: growing.py:\d+ block"}
    for name, pattern in words.items():
        speaks = {other for other, (text, _) in found.items() if re.search(pattern, text)}
        assert speaks == {name}, f"{name}: {speaks}: {found[name][0]}"
    free = {name: reserved["free"] for name, (_, reserved) in found.items()}
    assert free["strand_in_a_stream"]["other_streams"]["bytes"] == 4 * GIB, free
    assert free["strand_in_small_segments"]["whole"]["too_small_bytes"] >= (20 * 200) << 20, free
    assert free["hold_segments"]["held"]["too_small_bytes"] >= (16 * 252) << 20, free
    assert all(part["too_small_bytes"] < GIB // 8 for part in free["compact"].values()), free


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


QUICK = [check_few_that_grow, check_few_that_do_not_grow, check_holder_of_few]
LONG = [check_all_that_grow, check_all_that_do_not_grow, check_all_holders, check_no_holders_without_flag,
        check_why_more_is_reserved, check_retries]

if __name__ == "__main__":
    sys.exit(run_cases(QUICK if sys.argv[1] == "quick" else LONG))
