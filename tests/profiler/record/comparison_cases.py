"""Edits a script as a user would (scripts/versions.py), records both versions on the null device,
and compares what is said about the difference with what PyTorch counts in each, and with what the
edit must do.

    comparison_cases.py quick|long [CASE...]

In every case memory that only one version has comes from the edit, the rest is in both within 1 %
of the peak that PyTorch counted, and the first row is the cause. `shardlens profile diff` and
`shardlens view --report` say the same.

recorded.py says which Python runs them.
"""

import json
import pathlib
import re
import sys

from recorded import HERE, PYTHON, OnNullDevice, run_cases, shardlens

SOURCE = (HERE / "scripts" / "versions.py").read_text()
LAYERS, BATCH, CLASSES, STEPS = 8, 2048, 4096, 6
KEEP_LOGITS = [
    ("    for _ in range(STEPS):\n", "    history = []\n    for _ in range(STEPS):\n"),
    ("        loss = logits", "        history.append(logits)\n        loss = logits"),
    ("import torch\n", "import math\n\nimport torch\n"),
]


class Version:
    """A version of the script that was recorded, with the peak that PyTorch counted."""

    def __init__(self, folder, name, edits=()):
        text = SOURCE
        for old, new in edits:
            if text.count(old) < 1:
                raise AssertionError(f"the script has no {old!r}")
            text = text.replace(old, new, 1)
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir()
        script = self.folder / f"{name}.py"
        script.write_text(text)
        self.lines = text.splitlines()
        self.run = OnNullDevice(self.folder, PYTHON, script).expect(0)
        self.peak = int(re.search(r"^peak (\d+)$", self.run.text, re.MULTILINE).group(1))

    def line_of(self, text):
        return next(i for i, line in enumerate(self.lines, 1) if text in line)


def comparison_of(before, after):
    """Returns what both commands say about two versions."""
    runs = (before.run.out, after.run.out)
    diff = json.loads(shardlens("profile", "diff", *runs, "--json").stdout)
    of_diff = diff["ranks"][0]["comparison"]
    report = after.folder / "report.json"
    view = shardlens("view", *runs, "--report", report, "--no-cache")
    if view.returncode != 0:
        raise AssertionError(view.stderr)
    of_view = json.loads(report.read_text())["strategies"][1]["comparison"]
    for key, other in {"in_both_bytes": "in_both_bytes", "only_a_bytes": "only_baseline_bytes",
                       "only_b_bytes": "only_here_bytes"}.items():
        if of_diff[key] != of_view[other]:
            raise AssertionError(f"{key}: {of_diff[key]} and {of_view[other]}")
    places = [[(row["place"], row["change_bytes"]) for row in one["rows"]]
              for one in (of_diff, of_view)]
    if places[0] != places[1]:
        raise AssertionError(f"the rows differ: {places}")
    return of_diff


def expect(is_so, what):
    if not is_so:
        raise AssertionError(json.dumps(what, indent=1))


def is_near(measured, truth):
    return abs(measured - truth) <= truth / 100


def check_kept_logits(folder):
    """The script is renamed, too, and an import shifts all of its lines."""
    before = Version(folder, "train")
    after = Version(folder, "train_again", KEEP_LOGITS)
    said = comparison_of(before, after)
    kept = (STEPS - 1) * BATCH * CLASSES * 4
    expect(after.peak - before.peak == kept, [before.peak, after.peak])
    expect(said["in_both_bytes"] == before.peak, said)
    expect([said["only_a_bytes"], said["only_b_bytes"]] == [0, kept], said)
    line = after.line_of("return self.head(x)")
    expect(len(said["rows"]) == 1, said)
    expect(said["rows"][0]["place"] == f"train_again.py:{line} forward", said)
    expect(said["rows"][0]["change_bytes"] == kept, said)


def check_layer_more(folder):
    before = Version(folder, "train")
    after = Version(folder, "deeper", [("STEPS = 8,", "STEPS = 9,")])
    said = comparison_of(before, after)
    expect(is_near(said["in_both_bytes"], before.peak), said)
    row = said["rows"][0]
    expect(row["place"] == f"deeper.py:{after.line_of('functional.gelu(')} forward", said)
    expect(LAYERS * row["change_bytes"] == row["a_bytes"], said)


def check_batch_doubled(folder):
    before = Version(folder, "train")
    edits = [("8, 2048,", "8, 4096,"), ("import torch\n", "\nimport torch\n")]
    after = Version(folder, "larger", edits)
    said = comparison_of(before, after)
    expect(is_near(said["in_both_bytes"], before.peak), said)
    row = said["rows"][0]
    expect(row["place"] == f"larger.py:{after.line_of('functional.gelu(')} forward", said)
    expect(row["b_bytes"] == 2 * row["a_bytes"], said)
    expect(row["a_blocks"] == row["b_blocks"], said)


def check_other_optimizer(folder):
    before = Version(folder, "train")
    edits = [("AdamW(model.parameters())", "SGD(model.parameters(), lr=0.1)")]
    after = Version(folder, "train_sgd", edits)
    said = comparison_of(before, after)
    expect(is_near(said["in_both_bytes"], after.peak), said)
    row = said["rows"][0]
    expect(row["category"] == "optimizer_state" and row["b_bytes"] == 0, said)
    expect(is_near(-row["change_bytes"], before.peak - after.peak), said)


QUICK = [check_kept_logits]
LONG = [*QUICK, check_layer_more, check_batch_doubled, check_other_optimizer]


def main():
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
