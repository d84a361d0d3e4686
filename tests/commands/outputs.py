"""Compares what the programs say with what they said before one interpreter ran all steps.

    outputs.py BIN             compares shardlens in the folder BIN with tests/fixtures/outputs
    outputs.py BIN --record    writes those fixtures with it

A schedule has to be the same text. JSON has to have every key that it had, with the same value;
newer keys may stand beside them. MEANT lists what was changed on purpose, with the reason. The
cases name a GPU and a PyTorch version, so nothing depends on the machine.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
OUTPUTS = os.path.join(FIXTURES, "outputs", "before.json.gz")

# Configurations by name. Each is planned, and its schedule is printed.
STRATEGIES = {
    "single": "--strategy single --workers 1",
    "ddp": "--strategy ddp --workers 2",
    "fsdp": "--workers 2",
    "fsdp-4": "--workers 4 --batch 16",
    "kept": "--workers 2 --reshard-after-forward false",
    "regather": "--workers 4 --reshard-after-forward 2",
    "hsdp": "--strategy hsdp --workers 4 --replicas 2",
    "bf16": "--workers 2 --param-dtype bf16",
    "bf16-reduce": "--workers 2 --param-dtype bf16 --reduce-dtype bf16 --clip-norm 1",
    "fp16": "--workers 2 --param-dtype fp16 --clip-norm 1",
    "offload-params": "--workers 2 --offload params",
    "offload-optimizer": "--workers 2 --offload optimizer",
    "offload-all": "--workers 2 --offload all --clip-norm 1",
    "accumulate": "--workers 2 --accumulate 3 --sync last",
    "accumulate-every": "--workers 2 --accumulate 3",
    "recompute": "--workers 2 --recompute full",
    "recompute-some": "--workers 2 --recompute every:2",
    "root": "--workers 2 --wrap root",
    "sizes": "--workers 2 --wrap size:100000",
    "frozen": "--workers 2 --freeze conv_proj.*",
    "ignored": "--workers 2 --ignore heads.*",
    "fp32-kept": "--workers 2 --param-dtype bf16 --keep-fp32 .*ln.*",
    "prefetch": "--workers 2 --forward-prefetch 2 --backward-prefetch 3",
    "sgd": "--workers 2 --optimizer sgd --momentum 0.9",
}
OTHER_PLANS = {
    "transformer": "--model transformer --workers 2 --param-dtype bf16",
    "simple-model": "--model simple-model --workers 2",
    "llama-1b": "--model llama-1b --seq 512 --batch 2 --workers 8 --param-dtype bf16 --explain",
    "llama-1b-recompute": "--model llama-1b --seq 512 --batch 2 --workers 8 --recompute full",
    "vit-b16": "--model vit-b16 --batch 8 --workers 4 --param-dtype bf16",
    "does-not-fit": "--model llama-8b --seq 4096 --batch 8 --workers 2",
    "batch": "--workers 2 --solve batch",
    "world": "--model llama-1b --seq 512 --batch 2 --param-dtype bf16 --solve world",
}
RECORDINGS = {
    "report": ["profile", "report", "{fixtures}/profile/v1.3.slp", "--json"],
    "report-v1": ["profile", "report", "{fixtures}/profile/v1.slp", "--json"],
    "alive": ["profile", "alive", "{fixtures}/profile/v1.3.slp", "--json"],
    "diff": ["profile", "diff", "{fixtures}/profile/v1.2.slp", "{fixtures}/profile/v1.3.slp",
             "--json"],
    "timeline": ["profile", "report", "{timeline}", "--json"],
    "inspect": ["checkpoint", "inspect", "{checkpoint}", "--json"],
    "doctor-help": ["doctor", "--help"],
}

# (case, place in its JSON): the reason why it changed.
MEANT = {}


def plan_words(words):
    return ["plan", "--gpu", "h100", "--torch", "2.15", *words.split()]


def commands():
    """Returns the words of each case by its name."""
    all_words = {}
    for name, words in STRATEGIES.items():
        model = "" if "--model" in words else "--model vit-tutorial "
        all_words["plan " + name] = [*plan_words(model + words), "--json"]
        all_words["schedule " + name] = [*plan_words(model + words), "--text"]
    for name, words in OTHER_PLANS.items():
        all_words["plan " + name] = [*plan_words(words), "--json"]
    return all_words | RECORDINGS


class Programs:
    """Runs cases in a folder of their own, in which the files that they read were made."""

    def __init__(self, folder, scratch):
        self.program = os.path.join(os.path.abspath(folder), "shardlens")
        self.places = {
            "fixtures": FIXTURES,
            "timeline": os.path.join(scratch, "timeline.slp"),
            "checkpoint": os.path.join(scratch, "checkpoint"),
        }
        self.scratch = scratch
        self.run([*plan_words("--workers 2"), "--timeline", self.places["timeline"]])
        self.run(["checkpoint", "import", "{fixtures}/safetensors/small.safetensors", "--out",
                  "{checkpoint}"])

    def run(self, words):
        words = [word.format(**self.places) for word in words]
        done = subprocess.run([self.program, *words], cwd=self.scratch, capture_output=True,
                              text=True, check=False)
        text = done.stdout
        for name, place in self.places.items():
            text = text.replace(place, "{" + name + "}")
        return {"exit": done.returncode, "out": text, "err": done.stderr}


def differences(before, now, where=""):
    """Lists where a JSON value lost or changed something; additions do not count."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for key, value in before.items():
            place = f"{where}.{key}".strip(".")
            found += differences(value, now[key], place) if key in now else [place + " is gone"]
        return found
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now))
        return [fault for i, (a, b) in pairs for fault in differences(a, b, f"{where}[{i}]")]
    return [] if before == now else [f"{where}: {before!r} has become {now!r}"]


def faults_of(name, before, now):
    if before["exit"] != now["exit"]:
        return [f"exit code {before['exit']} has become {now['exit']}: {now['err']}"]
    if not before["out"].startswith("{"):
        return [] if before["out"] == now["out"] else ["its text has changed"]
    found = differences(json.loads(before["out"]), json.loads(now["out"]))
    return [fault for fault in found if not any(fault.startswith(m) for n, m in MEANT if n == name)]


def changed(output):
    """Returns the output with its last number, or its last word, changed."""
    at = list(re.finditer(r"[0-9]+(?=[^0-9]*$)|\w+(?=\W*$)", output["out"]))[0]
    other = "7" if at[0][0] != "7" else "8"
    return output | {"out": output["out"][:at.start()] + other + output["out"][at.start() + 1:]}


def record(programs):
    fixture = {}
    for name, words in commands().items():
        fixture[name] = programs.run(words)
        if fixture[name]["exit"] not in (0, 3, 4):
            sys.exit(f"{name}: {fixture[name]['err']}")
    os.makedirs(os.path.dirname(OUTPUTS), exist_ok=True)
    with gzip.GzipFile(OUTPUTS, "w", mtime=0) as file:
        file.write(json.dumps(fixture, indent=1).encode())
    print(f"{len(fixture)} outputs in {OUTPUTS}")


def compare(programs):
    with gzip.open(OUTPUTS) as file:
        fixture = json.load(file)
    if set(fixture) != set(commands()):
        sys.exit(f"cases and fixtures differ: {set(fixture) ^ set(commands())}")
    for name, before in fixture.items():
        if not faults_of(name, before, changed(before)):
            sys.exit(f"{name}: a change would not be found")
    failed = 0
    for name, words in commands().items():
        faults = faults_of(name, fixture[name], programs.run(words))
        for fault in faults:
            print(f"{name}: {fault}")
        failed += bool(faults)
    print(f"{len(fixture) - failed} of {len(fixture)} outputs are as they were")
    sys.exit(1 if failed else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        programs = Programs(arguments.bin, scratch)
        record(programs) if arguments.record else compare(programs)


if __name__ == "__main__":
    main()
