"""Holds `shardlens plan --engine pytorch` against written_apart.py in each case in which the
simulation of FSDP2 by rules, which it replaced, was compared with PyTorch.

    replaced_cases.py long [CASE...]
    replaced_cases.py table          prints what each case says, beside PyTorch's peak of the program
                                     that the simulation was about

What has no flag is edited in the program that `--write` gives, as its reader would. recorded.py says
which Python runs them; it needs transformers.
"""

import json
import pathlib
import sys
import tempfile

from running_cases import HERE, has_transformers, peaks_of
from recorded import NO_PYTORCH, PYTHON, Recorded, run_cases, shardlens

ROWS = HERE.parents[1] / "fixtures" / "replaced_engine.jsonl"
GPU = {"gpu": "h100", "capacity": "1TiB"}  # whether a case fits is not compared


def llama(layers, width, heads, mlp, kv_heads, tied):
    return {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": width,
            "num_attention_heads": heads, "intermediate_size": mlp, "num_key_value_heads": kv_heads,
            "vocab_size": 128256, "rope_theta": 500000.0, "tie_word_embeddings": tied}


def vit(patch, layers, heads, width, mlp, image=224, channels=3, classes=1000):
    labels = {"id2label": {str(i): f"label {i}" for i in range(classes)}}
    return {"model_type": "vit", "patch_size": patch, "num_hidden_layers": layers,
            "num_attention_heads": heads, "hidden_size": width, "intermediate_size": mlp,
            "image_size": image, "num_channels": channels, **labels}


SIZES = {
    "vit-tutorial": vit(7, 10, 2, 128, 128, image=28, channels=1, classes=10),
    "vit-b16": vit(16, 12, 12, 768, 3072),
    "vit-l16": vit(16, 24, 16, 1024, 4096),
    "vit-h14": vit(14, 32, 16, 1280, 5120),
    "vit-22b": vit(14, 48, 48, 6144, 24576),
    "llama-1b": llama(16, 2048, 32, 8192, 32, True),
    "llama-8b": llama(32, 4096, 32, 14336, 8, False),
}
# Why a case has no answer.
WRITING = "another Llama, written by hand: record that program"
NO_MODEL = "transformers has no such model: write the program, and record it"

ROOT = "    fully_shard(model, **flags)\n"
EDITS = {  # setting: what stands in the program, and what takes its place
    "ends": [(ROOT, """\
    table, head = model.get_input_embeddings(), model.get_output_embeddings() or model.classifier
    is_one = isinstance(table, nn.Embedding) and table.weight is head.weight
    for group in [[table, head]] if is_one else (table, head):
        fully_shard(group, reshard_after_forward=reshard, **flags)
""" + ROOT)],
    "prefetch": [(ROOT, ROOT + """\
    blocks = blocks_of(model)
    for i, block in enumerate(blocks):
        if AHEAD:
            block.set_modules_to_forward_prefetch(blocks[i + 1 : i + 1 + AHEAD])
        if BEHIND:
            block.set_modules_to_backward_prefetch(blocks[max(i - BEHIND, 0) : i][::-1])
""")],
    "loop": [('"fused": settings.fused or None}', '"foreach": False}')],
    "zero=keep": [("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)")],
    "zero=before": [("        optimizer.zero_grad()\n", ""),
                    ("        for left in", "        optimizer.zero_grad()\n        for left in")],
}


class Replaced:
    """A case: the flags of `plan`, the edits of its program, and the words of written_apart.py."""

    def __init__(self, row):
        get = row.get
        world, strategy, loop = row["world"], get("strategy", "fsdp"), get("loop", "foreach")
        dtype, reduce = get("param_dtype", "fp32"), get("reduce_dtype", "fp32")
        reshard = get("reshard_after_forward", "true")
        zero, passes = get("zero_grad", "after"), get("accumulate", 1)
        ahead, behind = get("forward_prefetch", 0), get("backward_prefetch", 0)
        self.model, self.was, self.why_not = row["model"], row["peak"], None
        if "writing" in row or self.model not in SIZES:
            self.why_not = WRITING if "writing" in row else NO_MODEL
        self.flags = ["--batch", row["batch"], "--strategy", strategy, "--param-dtype", dtype,
                      "--reduce-dtype", reduce, "--reshard-after-forward", reshard,
                      "--optimizer", "adam", "--offload", get("offload", "none"),
                      "--clip-norm", get("clip_norm", 0), "--accumulate", passes,
                      "--sync", get("sync", "every"), "--seq", 2048]
        self.ranks = ["--world", world, "--rank", get("rank", 0)]
        self.words = [f"batch={row['batch']}", "seq=2048", "adam", f"reduce={reduce}",
                      f"accumulate={passes}"]
        self.words += [dtype] if dtype != "bf16" else []
        self.words += {"true": [], "false": ["kept"]}.get(reshard, [f"nodes={reshard}"])
        for word, is_so in (("hsdp", strategy == "hsdp"), ("offload", "offload" in row),
                            ("clip", "clip_norm" in row and row["clip_norm"] > 0),
                            ("last", get("sync") == "last"), ("fused", loop == "fused")):
            self.words += [word] if is_so else []
        self.flags += ["--replicas", 2] if strategy == "hsdp" else []
        self.flags += ["--fused"] if loop == "fused" else []
        self.edits = [name for name, is_so in (("ends", get("variant") == "own-groups"),
                                               ("prefetch", ahead or behind),
                                               ("loop", loop == "single"),
                                               (f"zero={zero}", zero != "after")) if is_so]
        self.prefetch = ahead, behind
        self.words += [f"prefetch={ahead},{behind}" if name == "prefetch" else name for name in self.edits]
        shown = {key: value for key, value in row.items() if key not in ("model", "world", "batch", "peak")}
        self.name = "_".join([self.model, str(world), str(row["batch"]),
                              *(f"{key}={value}" for key, value in shown.items())])

    def planned(self, folder, config):
        """Returns the peaks of the plan; of its program, edited, where a setting has no flag."""
        flags = ["--engine", "pytorch", "--model", config, "--python", PYTHON, *self.flags]
        if not self.edits:
            gpu = [word for name, value in GPU.items() for word in ("--" + name, value)]
            done = shardlens("plan", *flags, *gpu, *self.ranks, "--out", folder / "plan")
            assert done.returncode == 0, done.stdout + done.stderr
            return peaks_of(folder / "plan")
        program = folder / "mine.py"
        done = shardlens("plan", *flags, "--write", program)
        assert done.returncode == 0, done.stderr
        text = program.read_text()
        for old, new in [edit for name in self.edits for edit in EDITS[name]]:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the program"
            text = text.replace(old, new)
        for word, count in zip(("AHEAD", "BEHIND"), self.prefetch):
            text = text.replace(word, str(count))
        program.write_text(text)
        return self.recorded(folder / "edited", program)

    def recorded(self, folder, *command):
        folder.mkdir()
        flags = ["--device", "null:" + GPU["gpu"], "--capacity", GPU["capacity"], *self.ranks]
        return peaks_of(Recorded(folder, PYTHON, *command, flags=flags).expect(0).out)

    def peaks(self, folder):
        """Returns the peaks of the plan, and of the program written apart: allocated, reserved."""
        folder = pathlib.Path(folder)
        config = folder / "model"
        config.mkdir()
        (config / "config.json").write_text(json.dumps(SIZES[self.model]))
        apart = self.recorded(folder / "apart", HERE / "written_apart.py", config, *self.words)
        return self.planned(folder, config), apart

    def check(self):
        def check(folder):
            planned, apart = self.peaks(folder)
            assert planned == apart and planned[0] > 0, f"planned {planned}, written apart {apart}"

        check.__name__ = "check_" + self.name
        return check

    def table_row(self):
        edits = ", ".join(self.edits) or "-"
        if self.why_not:
            return f"| {self.name} | {self.was} | - | - | {self.why_not} |"
        with tempfile.TemporaryDirectory() as folder:
            planned, apart = self.peaks(folder)
        says = "equal" if planned == apart else f"written apart: {list(apart)}"
        return f"| {self.name} | {self.was} | {list(planned)} | {edits} | {says} |"


def main():
    if not has_transformers():
        print(f"skipped: {PYTHON} has no transformers")
        return NO_PYTORCH
    rows = [Replaced(json.loads(line)) for line in ROWS.read_text().splitlines()]
    if sys.argv[1:2] == ["table"]:
        print("| case | simulated program, bytes | plan, bytes | edited | says |\n|---|---|---|---|---|")
        for row in rows:
            print(row.table_row(), flush=True)
        return 0
    return run_cases([row.check() for row in rows if not row.why_not])


if __name__ == "__main__":
    sys.exit(main())
