#!/usr/bin/env python3
"""Predicts step times that others have published, from recordings on a null device of the same GPU,
and prints a table of both, the worst first: for docs/evidence.md.

    published_times.py [--figures FOLDER] [--programs FOLDER] [--python PYTHON] [--only WORD,...]
                       [--most N] [--host FACTOR] [--keep FOLDER] [--json FILE]

FOLDER has the published figures, one a line (../shared/published/time_cs336.jsonl, time.jsonl). Of
the former each author's own script is recorded: the programs ($SHARDLENS_PUBLISHED_PROGRAMS) are as
published_peaks.py says. Of the latter, timed_training.py or timed_bert.py is recorded with the
model, the batch and the sharding of the published run (STAND_INS); where that was compiled, or its
settings are not said, it is left out.

The figures of the authors a16 and a20 and those of llm-foundry on A100 of 40 GB gave constants, and are left
out; no other figure gave one. Steps without a warm-up are left out, since they load libraries. A recording that
--keep FOLDER has is not made again.

Exits with 1 if half of the steps are off by more than 15 % or nine of ten by more than 35 %, or if
in more than a tenth of the pairs of settings the faster one is not named, and with 77 if something
that it needs is missing.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import published_peaks as peaks

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CS336 = "time_cs336.jsonl"
MOST_SECONDS = 1500
WARMUP, STEPS = 2, 4
MEDIAN, NINE_OF_TEN, ORDER = 0.15, 0.35, 0.9

COMMON = ("--model-size {size} --batch-size {batch} --context-length {context} --mode {mode} "
          "--dtype {dtype} --warmup {warmup} ")
# Each author's command line; a01 has the words of its own module, a07's script is not published.
ARGUMENTS = {
    "a01": COMMON + "--steps {steps} --output {out}/result.json",
    "a02": COMMON + "--steps {steps} --output {out}/result.csv",
    "a04": COMMON + "--steps {steps} --output {out}/result.json",
    "a05": COMMON + "--steps {steps} --output {out}/result.json",
    "a08": COMMON + "--steps {steps} --output {out}/result.json",
    "a10": COMMON + "--steps {steps} --output {out}/result.json",
    "a11": COMMON + "--steps {steps} --disable-progress --output {out}/result.json",
    "a13": COMMON + "--steps {steps} --output {out}/result.csv",
    "a14": COMMON + "--steps {steps} --output {out}/result.json",
    "a16": COMMON + "--steps {steps} --output {out}/result.csv",
    "a17": COMMON + "--steps {steps} --output {out}/result.csv",
    "a19": COMMON + "--steps {steps} --json-output {out}/result.json --output {out}/result.csv",
    "a20": COMMON + "--repeats {steps} --device cuda --output {out}/result.jsonl",
}
LOOKED_AT = {"a16", "a20"}  # and llm-foundry on A100 of 40 GB

# Programs that timed_training.py stands for: the GPU, the ranks, and what it is called with.
LLAMA = {"7b": "--layers 32 --width 4096 --heads 32 --inner 11008 --words 32000 --tokens 4096",
         "13b": "--layers 40 --width 5120 --heads 40 --inner 13824 --words 32000 --tokens 4096",
         "70b": "--layers 80 --width 8192 --heads 64 --key-heads 8 --inner 28672 --words 32000 "
                "--tokens 4096",
         "3-8b": "--layers 32 --width 4096 --heads 32 --key-heads 8 --inner 14336 --words 128256",
         "3-70b": "--layers 80 --width 8192 --heads 64 --key-heads 8 --inner 28672 "
                  "--words 128256 --tokens 8192",
         "tiny": "--layers 22 --width 2048 --heads 32 --key-heads 4 --inner 5632 --words 32000 "
                 "--tokens 2048"}
MPT = {"125m": "--layers 12 --width 768 --heads 12", "350m": "--layers 24 --width 1024 --heads 16",
       "760m": "--layers 24 --width 1536 --heads 12", "1b": "--layers 24 --width 2048 --heads 16",
       "3b": "--layers 32 --width 2560 --heads 20", "7b": "--layers 32 --width 4096 --heads 32",
       "13b": "--layers 40 --width 5120 --heads 40", "30b": "--layers 48 --width 7168 --heads 56"}
MPT_COMMON = " --family mpt --words 50368 --tokens 2048 --sharding fsdp1"
FSDP2 = " --sharding fsdp2 "
STAND_INS = {
    "titan24a-llama38b-selective_layer-b1":
        ("a100-80", 64, LLAMA["3-8b"] + FSDP2 + "--tokens 8192 --batch 1 --checkpoint selective"),
    "titan24a-llama370b-full-b1":
        ("a100-80", 64, LLAMA["3-70b"] + FSDP2 + "--batch 1 --checkpoint full"),
    "titan24a-llama213b-no-b2": ("a100-80", 64, LLAMA["13b"] + FSDP2 + "--batch 2"),
    "titan24a-llama270b-full-b2":
        ("a100-80", 64, LLAMA["70b"] + FSDP2 + "--batch 2 --checkpoint full"),
    "litgpt-thunder-single-eager-ms": ("a100-40", 1, LLAMA["tiny"] + " --batch 4 --half"),
    "litgpt-thunder-ddp-eager-ms":
        ("a100-40", 8, LLAMA["tiny"] + " --batch 4 --half --sharding ddp"),
    "litgpt-thunder-fsdp-eager-ms":
        ("a100-40", 8, LLAMA["tiny"] + " --batch 4 --sharding fsdp1"),
}
BERT = "timed_bert.py --tokens 512 "
STAND_INS |= {
    "hf-bertlarge-bs4_fp32_AdamW-sps": ("v100-16", 1, BERT + "--batch 4"),
    "hf-bertlarge-bs1_ga4-sps": ("v100-16", 1, BERT + "--batch 1 --accumulate 4"),
    "hf-bertlarge-bs1_ga4_gradient_checkpointing-sps":
        ("v100-16", 1, BERT + "--batch 1 --accumulate 4 --checkpoint"),
    "hf-bertlarge-bs4_fp16-sps": ("v100-16", 1, BERT + "--batch 4 --half"),
    "hf-bertlarge-bs1_ga4_gc_fp16-sps":
        ("v100-16", 1, BERT + "--batch 1 --accumulate 4 --checkpoint --half"),
}
MOST_ACCUMULATED = 4  # microbatches; published runs have up to 21, which take as long each
GPUS = {
    "H100 80GB HBM3": "h100",
    "H200": "h200",
    "A800-SXM4-80GB": "a800",
    "RTX 4090": "rtx4090",
    "RTX 4090 24 GB": "rtx4090",
    "RTX 4090 (48 GB board)": "rtx4090",
}
CONFIG = re.compile(r"size (?P<size>\w+), batch (?P<batch>\w+), context (?P<context>\d+), "
                    r"(?P<mode>\w+), (?P<dtype>[\w-]+), warm-up (?P<warmup>\w+);")


@dataclasses.dataclass
class Case:
    author: str
    gpu: str
    torch: str
    fields: dict
    figures: list  # milliseconds

    ranks: int = 1
    stand_in: str = ""  # the arguments of timed_training.py

    @property
    def name(self):
        fields = self.fields
        if self.stand_in:
            return self.author
        return (f"{self.author} {GPUS[self.gpu]} {fields['size']} {fields['batch']} x "
                f"{fields['context']} {fields['mode']} {fields['dtype']}")

    @property
    def milliseconds(self):
        # An author who wrote each phase has the whole step in the largest figure; others have
        # measured the same more than once.
        return max(self.figures) if self.author == "a16" else statistics.median(self.figures)


def read_cases(path):
    cases = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        author = row["id"].split("-")[1]
        fields = CONFIG.search(row["config"]).groupdict()
        if author not in ARGUMENTS or author in LOOKED_AT or fields["warmup"] == "0":
            continue
        key = (author, row["gpu"], *[fields[name] for name in fields if name != "warmup"])
        case = cases.setdefault(key, Case(author, row["gpu"], row["torch"], fields, []))
        case.figures.append(row["value"])
    return list(cases.values())


def mpt_stand_in(row):
    """Returns the GPU, the ranks and the arguments of a run of llm-foundry; nothing for fp8."""
    found = re.match(r"foundry-(\w+)-(\w+)-(?:amp_)?bf16-(\d+)-mb(\d+)", row["id"])
    if not found or found[2] == "a100_40gb":
        return None
    size, gpu, ranks, batch = found.groups()
    gpu = {"h100_80gb": "h100", "a100_80gb": "a100-80"}[gpu]
    accumulated = int(re.search(r"grad accum (\d+)", row["config"])[1])
    arguments = f"{MPT[size]}{MPT_COMMON} --batch {batch} --accumulate " + str(
        min(accumulated, MOST_ACCUMULATED))
    if "act ckpt True" in row["config"]:
        arguments += " --checkpoint full"
    return gpu, int(ranks), arguments


def number_in(arguments, name):
    found = re.findall(rf"--{name} (\d+)", arguments)
    return int(found[-1]) if found else 1


def read_stand_ins(path):
    cases = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        stand_in = STAND_INS.get(row["id"]) or mpt_stand_in(row)
        if not stand_in:
            continue
        gpu, ranks, arguments = stand_in
        milliseconds = row["value"]
        if row["unit"] in ("tok/s/GPU", "samples/s"):
            samples = number_in(arguments, "batch") * number_in(arguments, "accumulate")
            tokens = number_in(arguments, "tokens") if row["unit"] == "tok/s/GPU" else 1
            milliseconds = 1e3 * samples * tokens / row["value"]
        cases.append(Case(row["id"], gpu, row["torch"], {"mode": row["program"]}, [milliseconds],
                          ranks, arguments))
    return cases


class Authors:
    """Finds the folder of an author by the figures in it, since FILE does not say the names."""

    def __init__(self, repository, commit):
        self.repository, self.commit = repository, commit
        self.texts = {}
        for path in peaks.git(repository, "ls-tree", "-r", "--name-only",
                              commit).decode().splitlines():
            found = re.match(r"(.*/A2-P)/results/.*bench.*\.csv$", path)
            if found:
                text = peaks.git(repository, "show", f"{commit}:{path}").decode()
                self.texts[found[1]] = self.texts.get(found[1], "") + text

    def folder_of(self, figures):
        def has(numbers, figure):
            return any(abs(figure - number) < 1e-3 or abs(figure - 1e3 * number) < 1e-3
                       for number in numbers)

        counts = {}
        for folder, text in self.texts.items():
            numbers = [float(word) for word in re.findall(r"\d+\.\d+", text)]
            counts[folder] = sum(has(numbers, figure) for figure in figures)
        folder = max(counts, key=counts.get)
        if counts[folder] < len(figures):
            raise peaks.Missing(f"{figures}: no author has these figures")
        return folder


def set_up(options, cases, folder):
    """Lays out each author's scripts beside the model; returns the folders by author."""
    folders = {}
    if all(case.stand_in for case in cases):
        return folders
    commit = re.search(r"@(\w+):", (options.figures / CS336).read_text()).group(1)
    authors = Authors(options.programs / "authors", commit)
    for author in sorted({case.author for case in cases if not case.stand_in}):
        figures = [figure for case in cases if case.author == author for figure in case.figures]
        source = authors.folder_of(figures)
        folders[author] = folder / author
        (folder / author / "profiling").mkdir(parents=True)
        (folder / author / "cs336-basics").mkdir()
        peaks.extract(options.programs / "authors", commit, f"{source}/submission/profiling",
                      folder / author / "profiling")
        peaks.extract(options.programs / "model", "HEAD", "cs336-basics",
                      folder / author / "cs336-basics")
    return folders


def command_of(case, folder, out, options):
    if case.stand_in:
        words = case.stand_in.split()
        if words[0].startswith("--"):
            words.insert(0, "timed_training.py")
        return [options.trainer if words[0] == "timed_bert.py" else options.python,
                HERE / words[0], *words[1:]]
    arguments = ARGUMENTS[case.author].format(
        **{**case.fields, "warmup": WARMUP}, steps=STEPS, out=out)
    return [options.python, HERE / "published_program.py", out / "peaks.json",
            folder / "profiling/benchmark.py", *arguments.split()]


def record(case, folder, out, options):
    """Records a case; returns what went wrong, or nothing."""
    out.mkdir(parents=True)
    world = ["--world", str(case.ranks)] if case.ranks > 1 else []
    # Stand-ins may take more memory than the published program; that changes no time.
    capacity = ["--capacity", "1TiB"] if case.stand_in else []
    try:
        done = subprocess.run(
            [options.shardlens, "record", "--device", f"null:{GPUS.get(case.gpu, case.gpu)}",
             "--time", *capacity, *world, "--timeout", str(MOST_SECONDS), "--out", out / "run", "--",
             *command_of(case, folder, out, options)],
            capture_output=True, text=True, cwd=out, timeout=MOST_SECONDS + 60,
            env={**os.environ, "PYTHONPATH": str(options.programs / "packages")})
    except subprocess.TimeoutExpired:
        return "takes too long to record"
    if done.returncode not in (0, 3, 4) or not (out / "run/profiles/rank0.slp").exists():
        return (done.stderr or done.stdout).strip()[-400:]
    return ""


def predict(case, out, options):
    done = subprocess.run(
        [options.shardlens, "profile", "time", out / "run", "--json", "--host", str(options.host)],
        capture_output=True, text=True)
    if done.returncode != 0:
        return {"problem": done.stderr.strip()[-300:]}
    return json.loads(done.stdout)


def found_of(case, predicted):
    found = {"case": case.name, "author": case.author, "gpu": GPUS.get(case.gpu, case.gpu),
             "torch": case.torch, **case.fields, "measured_ms": case.milliseconds}
    if "problem" in predicted:
        return {**found, "problem": predicted["problem"]}
    milliseconds = predicted["seconds"] * 1e3
    return {**found, "predicted_ms": milliseconds, "error": milliseconds / case.milliseconds - 1,
            "is_in_band": (predicted["low_seconds"] * 1e3 <= case.milliseconds
                           <= predicted["high_seconds"] * 1e3),
            "predicted": predicted}


def goes_to(predicted):
    parts = {**predicted["goes_to_seconds"], "host": predicted["waiting_for_host_seconds"]}
    return ", ".join(f"{name} {seconds / predicted['seconds']:.0%}"
                     for name, seconds in sorted(parts.items(), key=lambda part: -part[1])
                     if seconds > 0.05 * predicted["seconds"])


def program_of(found):
    return found["author"] if "size" in found else found["mode"]


def ordered_pairs(table):
    """Counts the pairs of one program's settings on one GPU whose faster one is named right,
    where the measured times differ by more than 5 %."""
    right = pairs = 0
    groups = {}
    for found in table:
        groups.setdefault((program_of(found), found["mode"], found["gpu"]), []).append(found)
    for group in groups.values():
        for a, b in itertools.combinations(group, 2):
            if abs(a["measured_ms"] / b["measured_ms"] - 1) < 0.05:
                continue
            pairs += 1
            right += ((a["measured_ms"] < b["measured_ms"]) ==
                      (a["predicted_ms"] < b["predicted_ms"]))
    return right, pairs


def print_table(all_found):
    table = [found for found in all_found if "problem" not in found]
    for found in all_found:
        if "problem" in found:
            print(f"not predicted: {found['case']}: {found['problem']}")
    for found in sorted(table, key=lambda found: -abs(found["error"])):
        band = "" if found["is_in_band"] else " outside its band"
        print(f"{found['error']:+7.1%} {found['case']}: {found['measured_ms']:.1f} ms, predicted "
              f"{found['predicted_ms']:.1f} ms{band}; {goes_to(found['predicted'])}")
    if not table:
        return False
    errors = sorted(abs(found["error"]) for found in table)
    median, nine = statistics.median(errors), errors[int(0.9 * (len(errors) - 1))]
    right, pairs = ordered_pairs(table)
    inside = sum(found["is_in_band"] for found in table)
    print(f"{len(table)} steps of {len({program_of(found) for found in table})} programs on "
          f"{len({found['gpu'] for found in table})} GPUs: median {median:.1%}, nine of ten within "
          f"{nine:.1%}; {inside} in their bands; the faster one named in {right} of {pairs} pairs")
    return median <= MEDIAN and nine <= NINE_OF_TEN and right >= ORDER * pairs


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--figures", type=pathlib.Path,
                        default=ROOT.parent / "shared/published")
    parser.add_argument("--programs", type=pathlib.Path,
                        default=os.environ.get("SHARDLENS_PUBLISHED_PROGRAMS"))
    parser.add_argument("--python", type=os.path.abspath, default=sys.executable)
    parser.add_argument("--trainer", type=os.path.abspath, default=sys.executable,
                        help="a Python with transformers")
    parser.add_argument("--shardlens", type=pathlib.Path,
                        default=ROOT / "build/bin/shardlens")
    parser.add_argument("--only", help="words, one of which a case's name has")
    parser.add_argument("--most", type=int, help="at most N cases")
    parser.add_argument("--host", type=float, default=1)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def results(options, cases):
    all_found = []
    with tempfile.TemporaryDirectory() as scratch:
        keep = options.keep or pathlib.Path(scratch) / "runs"
        folders = set_up(options, cases, pathlib.Path(scratch) / "authors")
        for case in cases:
            out = keep / case.name.replace(" ", "_")
            if not (out / "run").exists():
                shutil.rmtree(out, ignore_errors=True)
                problem = record(case, folders.get(case.author), out, options)
            else:
                problem = ""
            predicted = {"problem": problem} if problem else predict(case, out, options)
            found = found_of(case, predicted)
            all_found.append(found)
            print(json.dumps({key: found[key] for key in found if key != "predicted"}), flush=True)
    return all_found


def main():
    options = parse_arguments()
    if not options.programs or not options.figures.exists():
        print("skipped: no published figures, or no programs", file=sys.stderr)
        return peaks.SKIPPED
    options.programs = options.programs.resolve()
    options.shardlens = options.shardlens.resolve()
    options.keep = options.keep and options.keep.resolve()
    cases = [case for case in [*read_cases(options.figures / CS336),
                               *read_stand_ins(options.figures / "time.jsonl")]
             if not options.only or any(word in case.name for word in options.only.split(","))]
    try:
        all_found = results(options, cases[:options.most])
    except peaks.Missing as missing:
        print(f"skipped: {missing}", file=sys.stderr)
        return peaks.SKIPPED
    if options.json:
        options.json.write_text(json.dumps(all_found, indent=1) + "\n")
    return 0 if print_table(all_found) else 1


if __name__ == "__main__":
    sys.exit(main())
