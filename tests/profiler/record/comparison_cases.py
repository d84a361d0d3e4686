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


class Recipes:
    """A file of recipes beside scripts, and `shardlens matrix` on it."""

    def __init__(self, folder, recipes):
        self.folder = pathlib.Path(folder)
        self.file = self.folder / "recipes.json"
        self.file.write_text(json.dumps({"device": "null:h100", "recipes": recipes}))

    def script(self, name, edits=()):
        text = SOURCE
        for old, new in edits:
            text = text.replace(old, new, 1)
        path = self.folder / name
        path.write_text(text)
        return [PYTHON, str(path)]

    def run(self, name, *flags):
        """Returns (exit code, JSON)."""
        done = shardlens("matrix", self.file, "--baseline", self.folder / "base", "--out",
                         self.folder / name, "--json", *flags)
        expect(done.stdout, done.stderr)
        return done.returncode, json.loads(done.stdout)


def states_in(answer):
    return {one["name"]: one["state"] for one in answer["recipes"]}


def figures_in(recipe):
    return [recipe[key] for key in ("name", "state", "allocated_bytes", "reserved_bytes")]


def check_matrix(folder):
    """Three of five recipes share a script; a change to it makes them grow, and its line is named."""
    train, other = str(pathlib.Path(folder) / "train.py"), str(pathlib.Path(folder) / "other.py")
    recipes = Recipes(folder, {
        "shared": {"command": [PYTHON, train], "with": [None, "recompute", "optimizer=fused"]},
        "other": {"command": [PYTHON, other], "world": [2, 4]},
    })
    recipes.script("train.py")
    recipes.script("other.py")
    code, answer = recipes.run("first", "--update")
    expect(code == 0 and set(states_in(answer).values()) == {"added"}, answer)
    recipes.script("train.py", KEEP_LOGITS)
    comment = pathlib.Path(folder) / "comment.md"
    code, answer = recipes.run("second", "--markdown", comment)
    states = states_in(answer)
    grown = sorted(name for name, state in states.items() if state == "grew")
    expect(code == 1 and grown == [f"shared,with={it}" for it in
                                   ("none", "optimizer=fused", "recompute")], answer)
    expect([states["other,world=2"], states["other,world=4"]] == ["same", "same"], answer)
    lines = (pathlib.Path(folder) / "train.py").read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "return self.head(x)" in text)
    cause = answer["causes"][0]
    expect(cause["place"] == f"train.py:{line} forward" and sorted(cause["recipes"]) == grown, answer)
    expect(f"train.py:{line} forward" in comment.read_text(), comment.read_text())
    for recipe in answer["recipes"]:
        counted = re.search(r"^peak (\d+)$", (pathlib.Path(recipe["run"]) / "log.txt").read_text(),
                            re.MULTILINE)
        expect(recipe["allocated_bytes"] == int(counted.group(1)), recipe)
    code, answer = recipes.run("third", "--update")
    expect(code == 1, answer)
    code, answer = recipes.run("fourth")
    expect(code == 0 and set(states_in(answer).values()) == {"same"}, answer)
    parts = [recipes.run("parts", "--part", f"{part}/2") for part in (1, 2)]
    expect([code for code, _ in parts] == [0, 0], parts)
    rows = [[figures_in(part) for part in answer["recipes"]] for _, answer in parts]
    whole = [figures_in(recipe) for recipe in answer["recipes"]]
    expect(rows == [whole[0::2], whole[1::2]], (rows, whole))


def check_matrix_endings(folder):
    """A recipe that fails, one that no longer fits, one that is gone and one that is new."""
    command = Recipes(folder, {}).script("train.py")
    known = {name: {"command": command} for name in ("small", "broken", "gone")}
    code, answer = Recipes(folder, known).run("first", "--update")
    expect(code == 0, answer)
    broken = Recipes(folder, {}).script("broken.py", [("import torch", "raise KeyError('lost')\nimport torch")])
    now = {"small": {"command": command, "capacity": "600MiB"}, "broken": {"command": broken},
           "new": {"command": command}}
    code, answer = Recipes(folder, now).run("second", "--update")
    states = states_in(answer)
    expect(states == {"small": "no_longer_fits", "broken": "failed", "new": "added"}, answer)
    expect(code == 1 and answer["gone"] == ["gone"], answer)
    why = next(one["why"] for one in answer["recipes"] if one["name"] == "broken")
    expect("lost" in why, why)
    kept = sorted(path.name for path in (pathlib.Path(folder) / "base").iterdir())
    expect(kept == ["broken", "new", "small"], kept)
    del now["small"]
    code, answer = Recipes(folder, now).run("third")
    expect(code == 5, answer)


def check_matrix_of_40(folder):
    names = [f"script{number}.py" for number in range(10)]
    folder = pathlib.Path(folder)
    recipes = Recipes(folder, {
        name.removesuffix(".py"): {"command": [PYTHON, str(folder / name)], "world": [1, 8],
                                   "device": ["null:h100", "null:a100-40"]}
        for name in names
    })
    for name in names:
        recipes.script(name)
    code, answer = recipes.run("first", "--update")
    expect(code == 0 and len(answer["recipes"]) == 40, answer)
    recipes.script("script3.py", KEEP_LOGITS)
    code, answer = recipes.run("second")
    grown = [name for name, state in states_in(answer).items() if state == "grew"]
    expect(code == 1 and len(grown) == 4, answer)
    expect(all(name.startswith("script3,") for name in grown), answer)
    expect(answer["causes"][0]["place"].startswith("script3.py:"), answer)


# Steps of products, after which the host pauses. Memory is the same for any number of them.
PACED_STEPS = """
import time, torch
a, b = torch.empty(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.empty(64, device="cuda"))])
for _ in range(6):
    for _ in range(PRODUCTS):
        torch.mm(a, a, out=b)
    time.sleep(PAUSE_S)
    optimizer.step()
"""


def check_matrix_times(folder):
    """More products take longer; what the host takes longer is in doubt only."""
    folder = pathlib.Path(folder)
    recipes = Recipes(folder, {name: {"command": [PYTHON, str(folder / f"{name}.py")]}
                               for name in ("gpu", "host")})

    def write(name, products, pause_s):
        text = PACED_STEPS.replace("PRODUCTS", str(products)).replace("PAUSE_S", str(pause_s))
        (folder / f"{name}.py").write_text(text)

    write("gpu", 100, 0)
    write("host", 4, 0.3)
    code, answer = recipes.run("memory", "--update")
    expect(code == 0 and answer["recipes"][0]["time"] is None, answer)
    code, answer = recipes.run("untraced", "--time", "--update")
    expect(code == 0 and set(states_in(answer).values()) == {"same"}, answer)
    expect(all("make the baseline with --time" in one["doubts"][-1] for one in answer["recipes"]), answer)
    expect(all(one["time"]["basis"] == "cold" for one in answer["recipes"]), answer)
    write("gpu", 110, 0)
    write("host", 4, 0.4)
    comment = folder / "comment.md"
    code, answer = recipes.run("slower", "--fail-slower", "8%", "--markdown", comment)
    expect(code == 1 and states_in(answer) == {"gpu": "slower", "host": "same"}, answer)
    gpu, host = answer["recipes"]
    expect(abs(gpu["time_growth_percent"] - 10) < 0.5, gpu)
    expect(abs(gpu["time"]["seconds"] / gpu["base_time"]["seconds"] - 1.1) < 0.005, gpu)
    expect(20 < host["time_growth_percent"] < 50 and "is not counted" in host["doubts"][-1], host)
    expect("| takes longer |" in comment.read_text(), comment.read_text())
    code, answer = recipes.run("allowed", "--fail-slower", "12%")
    expect(code == 0 and states_in(answer) == {"gpu": "same", "host": "same"}, answer)


QUICK = [check_kept_logits, check_matrix_endings, check_matrix_times]
LONG = [*QUICK, check_matrix, check_matrix_of_40,
        check_layer_more, check_batch_doubled, check_other_optimizer]


def main():
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
