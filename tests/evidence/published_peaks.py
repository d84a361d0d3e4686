#!/usr/bin/env python3
"""Records programs whose peaks others have published, each author's own script on a null device of
the same GPU, and prints a table of both: for docs/evidence.md.

    published_peaks.py [--figures FILE] [--programs FOLDER] [--python PYTHON] [--only WORD,...]
                       [--out-of-memory] [--most N] [--jobs N] [--keep FOLDER] [--json FILE]

FILE has the published figures, one a line (../shared/published/memory_cs336.jsonl). FOLDER
($SHARDLENS_PUBLISHED_PROGRAMS) has clones, or folders like their .git: `authors` of the authors'
scripts and results (OpenMOSS/SummerQuest-2026, with the commit that FILE names), and `model` of
the model (stanford-cs336/assignment2-systems, MIT); nothing of them is kept. Its `packages` has
einops, einx, jaxtyping and tqdm for PYTHON, which has PyTorch 2.11 and NumPy.

Exits with 1 if a peak differs by more than addresses explain, or if a program could not be
recorded, and with 77 if something that it needs is missing.
"""

import argparse
import concurrent.futures
import csv
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MIB = 1 << 20
SKIPPED = 77
MOST_SECONDS = 900

# The scripts all have these.
COMMON = ("--model-size {size} --batch-size {batch} --context-length {context} --mode {mode} "
          "--warmup {warmup}")
TYPED = COMMON + " --dtype {dtype}"


@dataclasses.dataclass(frozen=True)
class Script:
    """An author's script, and its command line for a row."""

    name: str
    arguments: str
    unsaid: dict = dataclasses.field(default_factory=dict)  # that only the author's results say
    gpu: str = ""  # that only the author's results say, one of CARDS


SCRIPTS = {
    "a01": Script("memory_snapshot.py", TYPED + " --output {out}/peaks.csv"),
    "a02": Script("memory_snapshot.py", TYPED + " --single-run --raw-dir {out} "
                  "--row-json {out}/result.json", gpu="RTX 4090 (48 GB board, 540 MiB beside)"),
    "a04": Script("memory_snapshot.py", TYPED + " --steps 1 --seed 42 --output {out}/result.json "
                  "--snapshot-output {out}/snapshot.pickle "
                  "--timeline-output {out}/timeline.png"),
    "a05": Script("memory_profile_xl.py", COMMON + " --output-dir {out}/results",
                  unsaid={"dtype": "fp32", "warmup": "1"},
                  gpu="RTX 4090 (48 GB board, 520 MiB beside)"),
    "a08": Script("memory_snapshot.py", TYPED + " --snapshot {out}/snapshot.pickle "
                  "--output {out}/result.json"),
    "a10": Script("memory_snapshot.py", TYPED + " --seed 0 "
                  "--snapshot-output {out}/snapshot.pickle --metadata-output {out}/result.json"),
    "a11": Script("memory_snapshot.py", TYPED + " --seed 42 --enable-nvtx --max-entries 10000 "
                  "--snapshot-output {out}/snapshot.pickle --summary-output {out}/result.json",
                  unsaid={"batch": "1", "warmup": "5"}),
    "a16": Script("memory_snapshot.py", TYPED + " --output {out}/snapshot.pickle"),
    "a17": Script("memory_snapshot.py", "--model-size xl --batch-size 4 --warmup 1 "
                  "--output-dir {out}/results --snapshot-dir {out}/snapshots"),
    "a19": Script("benchmark.py", TYPED + " --steps 1 --memory-history "
                  "--memory-snapshot {out}/snapshot.pickle --output {out}/result.csv"),
    "a20": Script("benchmark.py", TYPED + " --repeats 1 --device cuda --allow-oom "
                  "--memory-snapshot {out}/snapshot.pickle"),
    "a21": Script("memory_snapshot.py", TYPED + " --output {out}/steps.csv "
                  "--snapshot-output {out}/snapshot.pickle "
                  "--summary-output {out}/result.json"),
}
# Authors whose script runs all cases in one process and writes a table of them.
TABLES = {"a17": "results/peaks.csv"}
# Out of memory on another card of 24 GB, by an author whom FILE lacks: MiB allocated and reserved.
OTHER_AUTHOR = "a21"
OTHER_FIGURES = {
    ("large", 2048): (24246604800, 24641536000),
    ("xl", 1024): (24375179264, 24670896128),
    ("xl", 128): (24617335808, 24773656576),
    ("xl", 2048): (24589125632, 24704450560),
}


@dataclasses.dataclass(frozen=True)
class Card:
    """A GPU as its owner's PyTorch printed it."""

    device: str
    capacity: int = 0  # MiB; 0: as the null device has it
    beside: int = 0    # MiB beside PyTorch, one figure a GPU: only counts where memory runs out

    def flags(self):
        flags = ["--device", f"null:{self.device}"]
        if self.capacity:
            flags += ["--capacity", f"{self.capacity}MiB"]
        if self.beside:
            flags += ["--beside", f"{self.beside}MiB"]
        return flags


CARDS = {
    "H100 80GB HBM3": Card("h100", beside=708),
    "H200": Card("h200"),
    "A800-SXM4-80GB": Card("a800", beside=501),
    "RTX 4090": Card("rtx4090", beside=470),
    "RTX 4090 24 GB": Card("rtx4090", capacity=24111, beside=470),
    "RTX 4090 (48 GB board)": Card("rtx4090", capacity=48519, beside=470),
    # Two of one size. The driver of the second refused 512 MiB, though 528 MiB were free and only
    # 455 to 475 MiB in use beside PyTorch.
    "RTX 4090 (48 GB board, 540 MiB beside)": Card("rtx4090", capacity=48639, beside=540),
    "RTX 4090 (48 GB board, 520 MiB beside)": Card("rtx4090", capacity=48639, beside=520),
}


@dataclasses.dataclass
class Case:
    name: str      # of its figures in FILE: "cs336-a01-mem0"
    gpu: str
    torch: str
    fields: dict
    real: dict     # bytes allocated and reserved
    decimals: int  # of a MiB that the figures have

    @property
    def author(self):
        return self.name.split("-")[1]

    @property
    def ran_out(self):
        return self.fields["status"] in ("oom", "failed")


CONFIG = re.compile(r"size (?P<size>\w+), batch (?P<batch>\w+), context (?P<context>\d+), "
                    r"(?P<mode>\w+), (?P<dtype>\w+), warm-up (?P<warmup>\w+); "
                    r"status (?P<status>\w+)")


def read_cases(path):
    """Returns the cases of the authors whose scripts are known."""
    cases = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        name, metric = row["id"].rsplit("-", 1)
        if name.split("-")[1] not in SCRIPTS:
            continue
        script = SCRIPTS[name.split("-")[1]]
        fields = {**CONFIG.search(row["config"]).groupdict(), **script.unsaid}
        case = cases.setdefault(
            name, Case(name, script.gpu or row["gpu"], row["torch"], fields, {}, 3))
        case.real[metric] = round(row["value"] * MIB)
    for i, ((size, context), (allocated, reserved)) in enumerate(OTHER_FIGURES.items()):
        fields = {"size": size, "batch": 1, "context": context, "mode": "train_step",
                  "dtype": "fp32", "warmup": 1, "status": "oom"}
        name = f"cs336-{OTHER_AUTHOR}-mem{i}"
        cases[name] = Case(name, "RTX 4090 24 GB", "2.11.0+cu126", fields,
                           {"allocated": allocated, "reserved": reserved}, 6)
    return list(cases.values())


class Missing(Exception):
    """The test needs something that this machine lacks."""


def git(repository, *arguments):
    folder = repository / ".git" if (repository / ".git").exists() else repository
    done = subprocess.run(["git", "--git-dir", folder, "-c", "core.quotepath=off", *arguments],
                          capture_output=True)
    if done.returncode != 0:
        raise Missing(f"{repository}: git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout


def extract(repository, commit, folder, out):
    """Writes what `folder` has in a commit into `out`."""
    with tempfile.TemporaryFile() as archive:
        archive.write(git(repository, "archive", f"{commit}:{folder}"))
        archive.seek(0)
        subprocess.run(["tar", "x", "-C", out], stdin=archive, check=True)


def numbers_of(text):
    """Returns the figures of a table, in bytes where they may be MiB."""
    numbers = [float(word) for word in re.findall(r"\d+(?:\.\d+)?", text)]
    return {round(value) for number in numbers for value in (number, number * MIB)}


class Authors:
    """Finds the folder of an author by the figures in it, since FILE does not say the names."""

    FOLDER = "assignments/A2-P"

    def __init__(self, repository, commit):
        self.repository, self.commit = repository, commit
        self.peaks = {}  # texts by folder
        for path in git(repository, "ls-tree", "-r", "--name-only", commit).decode().splitlines():
            if path.endswith(f"{self.FOLDER}/results/memory/peaks.csv"):
                folder = path.removesuffix("/results/memory/peaks.csv")
                self.peaks[folder] = git(repository, "show", f"{commit}:{path}").decode()

    def folder_of(self, cases):
        # Authors may have the same figures; the one whose table also has the mode is meant.
        modes = {case.fields["mode"] for case in cases}
        found = [folder for folder, text in self.peaks.items()
                 if self.has_figures(text, cases) and all(mode in text for mode in modes)]
        if not found:
            raise Missing(f"{cases[0].name}: no author has these figures")
        return found[0]

    @staticmethod
    def has_figures(text, cases):
        numbers = numbers_of(text)
        return all(any(abs(value - number) <= MIB / 1000 for number in numbers)
                   for case in cases for value in case.real.values())


def set_up(options, cases, folder):
    """Lays out each author's scripts beside the model; returns the folders by author."""
    commit = re.search(r"@(\w+):", options.figures.read_text()).group(1)
    authors = Authors(options.programs / "authors", commit)
    folders = {}
    for author in sorted({case.author for case in cases}):
        source = authors.folder_of([case for case in cases if case.author == author])
        folders[author] = folder / author
        (folder / author / "profiling").mkdir(parents=True)
        (folder / author / "cs336-basics").mkdir()
        extract(options.programs / "authors", commit, f"{source}/submission/profiling",
                folder / author / "profiling")
        extract(options.programs / "model", "HEAD", "cs336-basics",
                folder / author / "cs336-basics")
    return folders


def command_of(case, folder, out, python):
    script = SCRIPTS[case.author]
    return [python, HERE / "published_program.py", out / "peaks.json",
            folder / "profiling" / script.name,
            *script.arguments.format(out=out, **case.fields).split()]


def failure_of(report):
    """Returns what was asked for when memory ran out last, in bytes."""
    failures = report["out_of_memory"]
    return failures[-1]["requested_bytes"] if failures else None


def rows_of(cases, found, out):
    """Returns what was found for the cases of one process, by the table that the script wrote."""
    table = csv.DictReader((out / TABLES[cases[0].author]).read_text().splitlines())
    rows = {(row["context_length"], row["batch_size"], row["mode"]): row for row in table}
    each = []
    for case in cases:
        row = rows[case.fields["context"], case.fields["batch"], case.fields["mode"]]
        recorded = {metric: int(row[f"peak_{metric}_bytes"]) for metric in case.real}
        each.append({**found, "case": case.name, **case.fields, "real": case.real,
                     "recorded": recorded, "bands": None})
    return each


def record(cases, folder, out, options):
    """Records cases that ran in one process, mostly a single one; returns what was found for each,
    dictionaries that can be JSON."""
    found = record_process(cases[0], folder, out, options)
    has_table = cases[0].author in TABLES and "problem" not in found
    each = rows_of(cases, found, out) if has_table else [found]
    if not options.keep:
        shutil.rmtree(out)
    return each


def record_process(case, folder, out, options):
    out.mkdir(parents=True)
    start = time.monotonic()
    done = subprocess.run(
        [options.record, "record", *CARDS[case.gpu].flags(), "--timeout", str(MOST_SECONDS),
         "--out", out / "run", "--", *command_of(case, folder, out, options.python)],
        capture_output=True, text=True, cwd=out,
        env={**os.environ, "PYTHONPATH": str(options.programs / "packages")})
    found = {"case": case.name, "gpu": case.gpu, "torch": case.torch, **case.fields,
             "real": case.real, "seconds": round(time.monotonic() - start, 1)}
    recording = out / "run/profiles/rank0.slp"
    if not (out / "peaks.json").exists() or not recording.exists():
        return {**found, "problem": (done.stderr or done.stdout).strip()[-400:]}
    facts = json.loads(recording.with_suffix(".json").read_text())
    report = json.loads(subprocess.run([options.record, "profile", "report", recording, "--json"],
                                       capture_output=True, text=True, check=True).stdout)
    found["recorded"] = json.loads((out / "peaks.json").read_text())
    found["as_pytorch_counted"] = facts.get("as_pytorch_counted")
    found["bands"] = report["ranks"][0].get("bands")
    found["retries"] = facts.get("retries")
    found["asked_bytes"] = failure_of(report["ranks"][0])
    return found


def difference(found, metric):
    """Returns by how many bytes the recording is above the published figure, 0 within its
    rounding."""
    real = found["real"].get(metric)
    if real is None:
        return 0
    bytes_above = found["recorded"][metric] - real
    return 0 if abs(bytes_above) <= MIB / 1000 else bytes_above


def is_in_band(found, metric):
    band = (found.get("bands") or {}).get(metric)
    real = found["real"].get(metric)
    if band is None or real is None:
        return False
    return band["least_bytes"] <= real + MIB / 1000 and real <= band["most_bytes"] + MIB / 1000


def verdict_of(found):
    """Returns "equal", "addresses", or what differs."""
    if "problem" in found:
        return "not recorded"
    unlike = [metric for metric in ("allocated", "reserved") if difference(found, metric)]
    if not unlike:
        return "equal"
    if all(is_in_band(found, metric) for metric in unlike):
        return "addresses"
    return ", ".join(f"{metric} {difference(found, metric) / found['real'][metric]:+.3%}"
                     for metric in unlike)


def text_of(found):
    words = [found["case"], found["gpu"], found["size"], f"batch {found['batch']}",
             f"context {found['context']}", found["mode"], found["dtype"], found["status"]]
    if "recorded" in found:
        words += [f"{found['real'].get('allocated', 0) / MIB:.3f}/"
                  f"{found['real'].get('reserved', 0) / MIB:.3f}",
                  f"{found['recorded']['allocated'] / MIB:.3f}/"
                  f"{found['recorded']['reserved'] / MIB:.3f}"]
    return " | ".join([*words, verdict_of(found), f"{found['seconds']} s",
                       found.get("problem", "").replace("\n", " ")[-200:]])


def size_of(case):
    """Orders cases by what they take, the quickest first."""
    return (case.fields["mode"] == "train_step", case.fields["size"] == "xl",
            int(case.fields["context"]) * int(case.fields["batch"]))


def wanted_cases(options):
    cases = [case for case in read_cases(options.figures)
             if not options.only or any(word in case.name for word in options.only.split(","))]
    if options.out_of_memory:
        cases = [case for case in cases if case.ran_out]
    return sorted(cases, key=size_of)[:options.most]


def by_process(cases):
    """Returns lists of the cases that one process runs."""
    processes = {}
    for case in cases:
        key = case.author if case.author in TABLES else case.name
        processes.setdefault(key, []).append(case)
    return list(processes.values())


def check_needs(options):
    if options.programs is None:
        raise Missing("--programs and SHARDLENS_PUBLISHED_PROGRAMS name no folder")
    for path in (options.figures, options.programs, options.python, options.record):
        if not path.exists():
            raise Missing(f"{path} is missing; see docs/evidence.md")


def run(options):
    check_needs(options)
    cases = wanted_cases(options)
    folder = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="published_peaks_"))
    try:
        folders = set_up(options, read_cases(options.figures), folder / "programs")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            runs = [pool.submit(record, each, folders[each[0].author], folder / each[0].name,
                                options) for each in by_process(cases)]
            found = []
            for done in concurrent.futures.as_completed(runs):
                found += done.result()
                print(*map(text_of, done.result()), sep="\n", flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    if options.json:
        options.json.write_text("".join(json.dumps(one) + "\n" for one in found))
    verdicts = [verdict_of(one) for one in found]
    explained = sum(verdict in ("equal", "addresses") for verdict in verdicts)
    print(f"{len(found)} cases: {verdicts.count('equal')} equal, "
          f"{verdicts.count('addresses')} within the range over orders of addresses")
    return 0 if explained == len(found) else 1


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs = os.environ.get("SHARDLENS_PUBLISHED_PROGRAMS")
    deps = pathlib.Path(os.environ.get("SHARDLENS_DEPS", ROOT / ".deps"))
    parser.add_argument("--figures", type=pathlib.Path,
                        default=ROOT.parent / "shared/published/memory_cs336.jsonl")
    parser.add_argument("--programs", type=pathlib.Path,
                        default=programs and pathlib.Path(programs))
    parser.add_argument("--python", type=pathlib.Path,
                        default=deps / "recorded-2.11/bin/python")
    parser.add_argument("--record", type=pathlib.Path, default=ROOT / "build/bin/shardlens")
    parser.add_argument("--only", help="cases with one of these words in their names")
    parser.add_argument("--out-of-memory", action="store_true", help="only those that ran out")
    parser.add_argument("--most", type=int, help="only that many, the quickest first")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="keeps the recordings there")
    parser.add_argument("--json", type=pathlib.Path, help="writes what was found, one case a line")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(run(parse()))
    except Missing as missing:
        print(f"published_peaks: skipped: {missing}", file=sys.stderr)
        sys.exit(SKIPPED)
