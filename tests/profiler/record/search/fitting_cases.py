"""Runs `shardlens advise` on programs that do not fit, and checks its answer: the first
row fits; the program edited by hand takes the same bytes; and of all sets of one or two levers that
were to be tried, run one by one, none that costs less fits.

    fitting_cases.py long [PROGRAM...]

It prints a row of the table in docs/levers.md for each program. recorded.py says which Python runs the
scripts; the other programs are run by environments of tests/programs, and skipped without them.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TESTS / "profiler" / "record"), str(TESTS / "programs")]
from levers_cases import BF16, CALL, EVERY_SECOND, SAVE, Version, around  # noqa: E402
from program import FOLDER  # noqa: E402
from recorded import PROGRAM, PYTHON, Recorded, report_of, run_cases  # noqa: E402

# Seven of one kind cost less than one of the next; a part of the model costs half of the whole.
KINDS = (("optimizer=fused", "optimizer=single", "bucket-view", "expandable-segments"),
         ("empty-cache", "step-in-backward", "loss-chunks"),
         ("fsdp2", "zero-redundancy", "reshard-after-forward"),
         ("recompute",),
         ("activations", "offload"),
         ("param-dtype", "model-dtype", "autocast", "optimizer=adafactor"))


@dataclasses.dataclass(frozen=True)
class Edit:
    """Holds the edits of the script, or of a command without one, arguments and settings that one would
    write instead of a lever."""

    edits: tuple = ()
    added: tuple = ()
    environment: tuple = ()


RETRIES = 2 * 8  # of the allocator cost as a lever of little cost
SEGMENTS = Edit(environment=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),))


@dataclasses.dataclass(frozen=True)
class Program:
    """A command whose `words` in braces are replaced: {python}, {script}, {work}, an empty folder, {site}
    and {bin}, the folders of the environment's packages and programs, and {inputs}, that of what a script
    of tests/programs/inputs has made."""

    flags: tuple
    fit: str
    levers: dict  # by name: the edit
    script: str = ""  # of scripts/
    before: tuple = ()
    given: tuple = ()
    words: tuple = ("{python}", "{script}")
    environment: str = ""  # of tests/programs
    inputs: str = ""

    @property
    def home(self):
        return FOLDER / self.environment if self.environment else None

    @property
    def why_not(self):
        """Returns why the program cannot be run here, or None."""
        is_there = self.home is None or (self.home / ".made").exists()
        return None if is_there else f"{self.home} is missing; `make test-programs` makes it"

    def settings(self, levers=()):
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        path = {"PATH": f"{self.home / 'bin'}:{os.environ['PATH']}"} if self.home else {}
        own = {name: value for lever in levers for name, value in self.levers[lever].environment}
        return (offline | path if self.home else {}) | own

    def command(self, folder, levers=()):
        """Writes what the program needs into a folder, and returns its command."""
        folder.mkdir(exist_ok=True)
        edits = [self.levers[lever] for lever in levers]
        changes = (*self.before, *(pair for one in edits for pair in one.edits))
        given = (*self.given, *(word for one in edits for word in one.added))
        python = self.home / "bin" / "python" if self.home else PYTHON
        names = {"python": python, "work": folder}
        if self.home:
            names |= {"bin": self.home / "bin", "site": next(self.home.glob("lib/python3.*/site-packages"))}
        if self.inputs:
            names["inputs"] = self.made_inputs(python, folder.parent / "inputs")
        if self.script:
            names["script"] = folder / pathlib.Path(self.script).name
            names["script"].write_text(Version(self.script, edits=changes).text())
            changes = ()
        return [replaced(word, changes).format_map(names) for word in (*self.words, *given)]

    def made_inputs(self, python, folder):
        if not folder.exists():
            folder.mkdir()
            script = TESTS / "programs" / "inputs" / f"{self.inputs}.py"
            subprocess.run([python, script, folder], check=True, capture_output=True)
        return folder


def replaced(text, changes):
    for old, new in changes:
        text = text.replace(old, new)
    return text


def on_ranks(gpu, world):
    return ("--device", f"null:{gpu}", "--world", str(world), "--rank", str(world - 1))


WRAPPED = ("    for block in model.layers:\n",
           "    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper\n"
           "    for i in range(len(model.layers)):\n"
           "        model.layers[i] = checkpoint_wrapper(model.layers[i])\n"
           "    for block in model.layers:\n")
ON_HOST = ("    if not options.offload:\n        model.to(device)\n", "    model.to(device)\n")
DDP = ("(model.cuda())", "(model.cuda(), gradient_as_bucket_view=True)")
ZERO = ("torch.optim.AdamW(model.parameters()",
        "__import__('torch.distributed.optim').distributed.optim.ZeroRedundancyOptimizer("
        "model.parameters(), optimizer_class=torch.optim.AdamW")

# torchtitan's own policies, and TRL's own flags.
TITAN = {f"recompute={value}": Edit((("checkpoint:none", f"checkpoint:{value}"),)) for value in ("full", "selective")}
DENOISED = "model(noisy, times, return_dict=False)[0]"

PROGRAMS = {
    "vit": Program(
        on_ranks("l4", 4), "2700MiB",
        {"recompute=full": Edit((WRAPPED,)),
         "optimizer=fused": Edit((("lr=1e-3)", "lr=1e-3, fused=True)"),)),
         "offload=parameters": Edit((ON_HOST,), ("--offload",)),
         "expandable-segments": SEGMENTS},
        "tutorial.py",
        before=(("width=128, heads=2", "width=1024, heads=16"), ("width=128, layers=10", "width=1024, layers=24"),
                ("kernel_size=7, stride=7", "kernel_size=14, stride=14"), ("1, 17, width", "1, 257, width"),
                ("1, 28, 28", "1, 224, 224")),
        given=("--batch", "32")),
    "ddp": Program(
        on_ranks("l4", 4), "1000MiB",
        {"recompute=full": Edit(added=("--checkpoint-activations",)),
         "recompute=every:2": Edit((EVERY_SECOND,), ("--checkpoint-activations",)),
         "optimizer=fused": Edit(added=("--optimizer", "fused")),
         "bucket-view": Edit((DDP,)),
         "zero-redundancy": Edit((ZERO,)),
         "activations=host": Edit((around(CALL, SAVE),)),
         "autocast=bf16": Edit((around(CALL, BF16),))},
        "transformer.py", given=("--strategy", "ddp")),
    "unet": Program(
        ("--device", "null:l4"), "l4",
        {"recompute=full": Edit(((".cuda()\n    scheduler", ".cuda()\n    model.enable_gradient_checkpointing()\n"
                                  "    scheduler"),)),
         "optimizer=fused": Edit((("lr=1e-4)", "lr=1e-4, fused=True)"),)),
         "empty-cache": Edit((("optimizer.step()", "optimizer.step()\n        torch.cuda.empty_cache()"),)),
         "autocast=bf16": Edit(((f"predicted = {DENOISED}", f"with {BF16}:\n            predicted = {DENOISED}"),)),
         "expandable-segments": SEGMENTS},
        "levers/unet.py", given=("--size", "256", "--batch", "12"), environment="vision"),
    "torchtitan": Program(
        on_ranks("h100", 8), "h100",
        {**TITAN, "reshard-after-forward=true": Edit((("forward=default", "forward=always"),)),
         "expandable-segments": SEGMENTS},
        words=("{python}", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b",
               "--hf_assets_path", "{inputs}/tokenizer", "--dataloader.dataset", "c4_test",
               "--dataloader.dataset_path", "{inputs}/c4", "--training.local_batch_size", "2",
               "--training.seq_len", "8192", "--training.steps", "3", "--dump_folder",
               "{work}/outputs", "--parallelism.fsdp_reshard_after_forward=default", "activation-checkpoint:none"),
        environment="parallel", inputs="titan_assets"),
    "trl": Program(
        ("--device", "null:l4", "--rank", "3"), "l4",
        {"recompute=full": Edit((("checkpointing=False", "checkpointing=True"),)),
         "empty-cache": Edit(added=("--torch_empty_cache_steps", "1")),
         "expandable-segments": SEGMENTS},
        words=("{bin}/accelerate", "launch", "--config_file", "{site}/trl/accelerate_configs/fsdp2.yaml",
               "--mixed_precision", "no", "--num_processes", "4", "{site}/trl/scripts/sft.py",
               "--model_name_or_path", "{inputs}", "--dtype", "bfloat16", "--bf16", "False", "--dataset_name",
               "{inputs}/texts", "--max_length", "1024", "--output_dir", "{work}/out", "--max_steps", "3",
               "--report_to", "none", "--per_device_train_batch_size", "2", "--activation_checkpointing=False",
               "--save_strategy", "no"),
        environment="hugging_face", inputs="llama_8b"),
}


def cost_of(levers):
    cost = 0
    for lever in levers:
        name = lever.partition("=")[0]
        kind = next(i for i, names in enumerate(KINDS) if lever in names or name in names)
        whole = 2 * 8**kind
        cost += whole // 2 if "every:" in lever or "selective" in lever else whole
    return cost


def contradict(one, other):
    return one.partition("=")[0] == other.partition("=")[0]


def sets_of(levers):
    pairs = [pair for pair in itertools.combinations(levers, 2) if not contradict(*pair)]
    return [(lever,) for lever in levers] + pairs


def recorded(program, folder, levers=(), more=()):
    """Returns the recording of the program, edited by hand if there are levers, with more flags."""
    return Recorded(folder, *program.command(folder, levers), flags=[*program.flags, *more],
                    more=program.settings(levers))


def capacity_of(program):
    """Returns the flags that give the simulated GPU the memory that is to be enough."""
    return ["--capacity", program.fit] if program.fit.endswith("B") else []


def brute_force(program, folder):
    """Returns what the sets of up to two levers cost that fit, each run in a process of its own on a
    GPU with as much memory."""
    def cost_if_it_fits(levers):
        run = recorded(program, folder / "+".join(levers).replace(":", "-"), (),
                       [*capacity_of(program), "--with", ",".join(levers)])
        assert run.code in (0, 3, 4, 5), f"{levers}: {run.text}{run.lines}"
        assert run.code != 5 or "does not apply" in run.lines, f"{levers}: {run.text}{run.lines}"
        return {0: cost_of(levers), 4: cost_of(levers) + RETRIES}.get(run.code)

    sets = sets_of(program.levers)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        costs = pool.map(cost_if_it_fits, sets)
        return {levers: cost for levers, cost in zip(sets, costs) if cost is not None}


def advised(program, folder):
    """Returns the answer of `shardlens advise`, how long it took, and the memory of the host that its
    largest process took."""
    command = [PROGRAM, "advise", *program.flags, "--fit", program.fit, "--levers", ",".join(program.levers),
               "--most", "2", "--json", "--out", folder / "advice", "--", *program.command(folder / "program")]
    start = time.monotonic()
    with (folder / "answer").open("w+") as answer, (folder / "progress").open("w+") as progress:
        started = subprocess.Popen(list(map(str, command)), stdout=answer, stderr=progress,
                                   env=os.environ | program.settings())
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        texts = [file.seek(0) or file.read() for file in (answer, progress)]
    assert started.returncode == 0, "".join(texts)
    return json.loads(texts[0]), seconds, usage.ru_maxrss << 10


def case_of(name, program):
    def check(folder):
        folder = pathlib.Path(folder)
        found, seconds, host_bytes = advised(program, folder)
        best = found["tried"][0]
        assert best["fits"] and not found["as_it_is"]["fits"], found
        before, after = (one["device_bytes"] / 2**30 for one in (found["as_it_is"], best))
        print(f"| {name} | {before:.2f} of {found['fit_bytes'] / 2**30:.2f} | `{','.join(best['levers'])}` | "
              f"{after:.2f} | {1 + len(found['tried'])} | {seconds:.0f} s | {host_bytes / 2**30:.2f} |", flush=True)
        peak = report_of(recorded(program, folder / "by-hand", best["levers"],
                                  capacity_of(program)).expect(4 if best["has_retries"] else 0).out)["peak"]
        by_hand = [peak["allocated_bytes"], peak["reserved_bytes"]]
        assert by_hand == [best["allocated_bytes"], best["reserved_bytes"]], f"{by_hand}, {best}"
        fitting = brute_force(program, folder)
        cost = cost_of(best["levers"]) + (RETRIES if best["has_retries"] else 0)
        print(f"{name}: {len(fitting)} of {len(sets_of(program.levers))} sets of one or two fit", flush=True)
        assert fitting.get(tuple(best["levers"])) == cost == min(fitting.values()), f"{fitting}, {best}"

    check.__name__ = f"check_{name}"
    return check


def runnable():
    for name, program in PROGRAMS.items():
        if program.why_not:
            print(f"skipped {name}: {program.why_not}")
        else:
            yield case_of(name, program)


if __name__ == "__main__":
    sys.exit(run_cases(list(runnable())))
