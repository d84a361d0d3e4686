"""Holds `shardlens plan --engine pytorch` against a program that was written apart from its own
(written_apart.py): the same peaks, allocated and reserved, to the byte.

    running_cases.py long [CASE...]

recorded.py says which Python runs them; it needs transformers.
"""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "profiler/record"))
from recorded import NO_PYTORCH, PYTHON, OnNullDevice, report_of, run_cases, shardlens  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6,
         "num_attention_heads": 8, "vocab_size": 8000, "num_key_value_heads": 2}
CONFIGS = {
    "llama": SIZES,
    "qwen3": {**SIZES, "head_dim": 64},
    "mistral": {**SIZES, "head_dim": 64},
    "gemma2": {**SIZES, "head_dim": 64},
    "gpt_oss": {**SIZES, "head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**SIZES, "head_dim": 64, "moe_intermediate_size": 256, "num_experts": 8,
                  "num_experts_per_tok": 2},
    "phi3": {**SIZES, "pad_token_id": 0},
    "deepseek_v3": {**SIZES, "num_key_value_heads": 8, "moe_intermediate_size": 256, "n_routed_experts": 8,
                    "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
                    "q_lora_rank": 128, "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32,
                    "v_head_dim": 64},
    "gpt2": {"n_embd": 256, "n_layer": 6, "n_head": 4, "vocab_size": 8000},
    "vit": {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
            "intermediate_size": 512},
}
FLAGS = {
    "recompute": ["--recompute", "full"],
    "offload": ["--offload", "all"],
    "hsdp": ["--strategy", "hsdp", "--replicas", "2"],
    "ddp": ["--strategy", "ddp"],
    "single": ["--strategy", "single"],
    "tp": ["--tp", "2"],
    "root": ["--wrap", "root"],
    "kept": ["--reshard-after-forward", "false"],
    "nodes": ["--reshard-after-forward", "4"],
    "fp16": ["--param-dtype", "fp16"],
    "clip": ["--clip-norm", "1"],
    "accumulate": ["--accumulate", "3"],
    "last": ["--sync", "last"],
    "fused": ["--fused"],
    "sgd": ["--optimizer", "sgd"],
    "adam": ["--optimizer", "adam"],
    "sdpa": ["--attention", "sdpa"],
    "eager": ["--attention", "eager"],
    "lora": ["--lora", "8"],
    "nf4": ["--quantize", "nf4"],
}
CASES = [
    *[(model, ()) for model in CONFIGS if model not in ("qwen3_moe", "phi3", "deepseek_v3")],
    ("llama", ("recompute",)), ("qwen3", ("recompute", "fused")), ("gpt_oss", ("recompute",)),
    ("llama", ("lora",)), ("qwen3", ("lora", "recompute")), ("llama", ("lora", "nf4", "ddp")),
    ("mistral", ("lora", "nf4", "single", "recompute")),
    ("llama", ("lora", "nf4")), ("qwen3", ("lora", "nf4", "recompute")), ("llama", ("lora", "nf4", "hsdp")),
    ("llama", ("lora", "nf4", "fp16")),
    ("llama", ("tp",)), ("mistral", ("tp", "recompute")), ("qwen3", ("tp",)), ("gemma2", ("tp",)),
    ("gpt_oss", ("tp",)), ("gpt_oss", ("tp", "recompute")), ("qwen3_moe", ("tp",)), ("phi3", ("tp",)),
    ("deepseek_v3", ("tp", "recompute")),
    # The settings that the simulation of FSDP2 by rules, which this replaced, was compared with.
    ("llama", ("fused",)), ("llama", ("kept",)), ("llama", ("nodes",)), ("llama", ("hsdp",)),
    ("llama", ("offload",)), ("llama", ("offload", "clip")), ("llama", ("clip",)),
    ("llama", ("accumulate",)), ("llama", ("accumulate", "last")), ("vit", ("accumulate", "last")),
    ("llama", ("fp16",)), ("vit", ("fp16", "clip")), ("llama", ("fp16", "accumulate", "fused")),
    ("vit", ("hsdp", "fused")), ("vit", ("sdpa",)), ("vit", ("eager", "clip")),
    # The settings that it refused.
    ("llama", ("root",)), ("llama", ("sgd",)), ("llama", ("adam",)), ("llama", ("single",)),
    ("llama", ("ddp",)), ("llama", ("ddp", "accumulate", "last")),
    ("torchvision:vit_b_16", ()), ("torchvision:resnet50", ("ddp",)), ("timm:vit_tiny_patch16_224", ()),
]


def config_in(folder, model):
    path = folder / model
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"model_type": model, **CONFIGS[model]}))
    return path


def peaks_of(run):
    peak = report_of(run)["peak"]
    return peak["allocated_bytes"], peak["reserved_bytes"]


def plan(*flags):
    return shardlens("plan", "--engine", "pytorch", "--python", PYTHON, "--gpu", "h100", "--world", "8",
                     "--batch", "4", "--seq", "512",
                     *([] if "fp16" in flags else ["--param-dtype", "bf16"]), *flags)


def case_of(model, words):
    def check(folder):
        folder = pathlib.Path(folder)
        config = model if ":" in model else config_in(folder, model)
        flags = [flag for word in words for flag in FLAGS[word]]
        done = plan("--model", config, "--out", folder / "plan", *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        apart = OnNullDevice(folder, PYTHON, HERE / "written_apart.py", config, *words,
                             flags=["--world", "8", "--rank", "0"]).expect(0)
        planned, recorded = peaks_of(folder / "plan"), peaks_of(apart.out)
        assert planned == recorded and planned[0] > 0, f"planned {planned}, written apart {recorded}"

    check.__name__ = "_".join(["check", model.rpartition(":")[2], *words])
    return check


def check_written(folder):
    """The program that --write gives takes what the plan said, and no file is overwritten."""
    folder = pathlib.Path(folder)
    config = config_in(folder, "llama")
    flags = ["--model", config, "--recompute", "every:2", "--fused"]
    done = plan(*flags, "--out", folder / "plan")
    assert done.returncode == 0, done.stdout + done.stderr
    script = folder / "mine.py"
    done = plan(*flags, "--write", script)
    assert done.returncode == 0 and "torchrun" in done.stdout, done.stderr
    mine = OnNullDevice(folder, PYTHON, script, flags=["--world", "8", "--rank", "0"]).expect(0)
    assert peaks_of(mine.out) == peaks_of(folder / "plan")
    again = plan(*flags, "--write", script)
    assert again.returncode == 2 and "exists" in again.stderr, again.stderr


def check_solved(folder):
    folder = pathlib.Path(folder)
    config = config_in(folder, "llama")
    flags = ["--engine", "pytorch", "--python", PYTHON, "--gpu", "h100", "--capacity", "3GiB", "--model",
             config, "--seq", "512", "--param-dtype", "bf16", "--solve", "batch"]
    done = shardlens("plan", *flags, "--out", folder / "solved")
    assert done.returncode == 0 and "is the largest that fits" in done.stdout, done.stdout + done.stderr


def check_searched(folder):
    """Each setting that a search names takes what the command beside it takes, and by brute force none
    that is cheaper takes as little: of six settings, those that fit are those that fit alone."""
    folder = pathlib.Path(folder)
    flags = ["--engine", "pytorch", "--python", PYTHON, "--gpu", "h100", "--world", "8", "--capacity", "2200MiB",
             "--model", config_in(folder, "llama"), "--seq", "512", "--batch", "8", "--param-dtype", "bf16",
             "--tp", "1", "--reshard-after-forward", "true"]
    done = shardlens("plan", *flags, "--search", "--json", "--out", folder / "searched")
    found = json.loads(done.stdout)
    rejected = {one["flags"]: one["reason"] for one in found["rejected"]}
    front = {one["flags"]: one for one in found["front"]}
    taken, fits = {}, {}
    for offload in ("", "--offload all"):
        for recompute in ("", "--recompute every:2", "--recompute full"):  # the cheapest first
            name = " ".join(filter(None, (recompute, offload)))
            run = folder / (name or "alone")
            alone = shardlens("plan", *flags, *name.split(), "--out", run)
            fits[name or "as given"] = alone.returncode == 0
            taken[name or "as given"] = peaks_of(run)
    assert set(front) | set(rejected) == set(taken), found
    least = None
    for name, peaks in taken.items():
        is_worth_it = fits[name] and (least is None or peaks[1] < least)
        least = peaks[1] if is_worth_it else least
        assert (name in front) == is_worth_it, f"{name}: {peaks}, {found}"
        if is_worth_it:
            one = front[name]
            assert (one["allocated_bytes"], one["reserved_bytes"]) == peaks, f"{name}: {peaks}, {one}"
        if not fits[name]:
            assert rejected[name].startswith(("does not fit", "fits only with retries")), rejected
    assert 0 < len(front) < 6 and not all(fits.values()), found
    assert done.returncode == 0 and next(iter(front)) == found["front"][0]["flags"], found


def check_preset(folder):
    """A preset is transformers' model, and --json says what the text says."""
    out = pathlib.Path(folder) / "run"
    done = shardlens("plan", "--engine", "pytorch-fsdp2", "--python", PYTHON, "--gpu", "h100",
                     "--workers", "8", "--model", "vit-tutorial", "--batch", "8", "--json", "--out", out)
    assert done.returncode == 0 and "fits" in done.stderr, done.stdout + done.stderr
    assert json.loads(done.stdout)["ranks"][0]["peak"] == report_of(out)["peak"]


def check_refusals(folder):
    folder = pathlib.Path(folder)
    (folder / "config.json").write_text('{"model_type": "banana"}')
    for words, flags in (
        ("transformers cannot read it", ["--model", folder]),
        ("does not divide", ["--model", config_in(folder, "llama"), "--strategy", "hsdp", "--replicas", "3"]),
        ("give one of adamw", ["--model", config_in(folder, "llama"), "--optimizer", "lion"]),
        ("has no plan for this model", ["--model", config_in(folder, "gpt2"), "--tp", "2"]),
        ("needs --lora", ["--model", config_in(folder, "llama"), "--quantize", "nf4"]),
        ("needs --lora, and whole matrices", ["--model", config_in(folder, "llama"), "--quantize", "nf4", "--lora", "8",
                                  "--offload", "all"]),
    ):
        done = plan(*flags, "--out", folder / "refused")
        assert done.returncode in (2, 5) and words in done.stderr, done.stdout + done.stderr
        assert not done.stdout and not (folder / "refused").exists(), done.stdout
    done = plan("--banana", "2")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def has_transformers():
    question = "import importlib.util as u; assert u.find_spec('transformers')"
    return subprocess.run([PYTHON, "-c", question], capture_output=True, check=False).returncode == 0


def main():
    if not has_transformers():
        print(f"skipped: {PYTHON} has no transformers")
        return NO_PYTORCH
    return run_cases([*(case_of(*case) for case in CASES), check_written, check_solved, check_searched, check_preset, check_refusals])


if __name__ == "__main__":
    sys.exit(main())
