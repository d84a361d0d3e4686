"""Pulls each lever of `shardlens record --with` on programs that know no levers, edits the same
programs by hand, and compares the peaks, allocated and reserved: they are equal to the byte.

    levers_cases.py [quick|long|table [SCRIPT|LEVER...]]

Without arguments it tries the scripts of transformers and Lightning. `table` prints the table of
docs/levers.md instead. Cases whose Python lacks a library are left out. recorded.py says which
Python runs the programs.
"""

import dataclasses
import functools
import pathlib
import re
import subprocess
import sys
import tempfile

from recorded import HERE, PYTHON, OnNullDevice, Recorded, report_of, sampled

WORLD = ("--world", "16", "--rank", "5")
ALONE = ()
FOUR = ("--world", "4", "--rank", "3")


@dataclasses.dataclass(frozen=True)
class Version:
    """A script with edits, arguments and settings of the environment."""

    script: str
    arguments: tuple = ()
    edits: tuple = ()
    environment: tuple = ()

    def text(self):
        text = (HERE / "scripts" / self.script).read_text()
        for old, new in self.edits:
            if old not in text:
                raise AssertionError(f"{self.script} has no {old!r}")
            text = text.replace(old, new, 1)
        return text


@dataclasses.dataclass(frozen=True)
class Case:
    lever: str
    before: Version
    by_hand: Version
    flags: tuple = WORLD
    is_quick: bool = False
    by_hand_flags: tuple = None  # if these differ

    def needs(self):
        imports = re.findall(r"^(?:import|from) (\w+)", self.before.text(), re.MULTILINE)
        return [name for name in imports if name in ("transformers", "lightning", "torchvision", "diffusers")]


def case(lever, script, edits=(), *, before=(), given=(), added=(), flags=WORLD, environment=(),
         is_quick=False):
    """A script with the arguments `given` and the edits `before`; by hand it gets `edits`, and more
    arguments or settings."""
    start = Version(script, tuple(given), tuple(before))
    hand = Version(script, (*given, *added), (*before, *edits), tuple(environment))
    return Case(lever, start, hand, tuple(flags), is_quick)


# --- edits ----------------------------------------------------------------------------------------

WRAP = ("    for block in model.blocks:\n        fully_shard(block, **arguments)\n", "")
CALL = ("logits = model(tokens)",
        "with {}:\n                logits = model(tokens)")
ADAMW = "torch.optim.AdamW(model.parameters(), lr=1e-3, **how[options.optimizer])"
ADAMW_ALONE = ADAMW.replace("**how[options.optimizer]", "foreach=None")
EVERY_SECOND = ("check_fn=lambda module: isinstance(module, Block)",
                "check_fn=lambda module, own=set(model.blocks[::2]): module in own")
GUIDE_WRAPPED = ("    for layer in model.layers:\n",
                 "    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
                 "checkpoint_wrapper\n"
                 "    for i in range({first}, 3, {every}):\n"
                 "        model.layers[i] = checkpoint_wrapper(model.layers[i])\n"
                 "    for layer in model.layers:\n")
GUIDE_STEP = ("        optimizer.step()\n", "        optimizer.step()\n        {}\n")
IN_BACKWARD = """\
each = {{p: {make} for p in model.parameters()}}
    def step_one(p):
        each[p].step()
        each[p].zero_grad()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_one)
"""


def around(template, inside):
    """Returns the edit that puts a statement into another one, or after it."""
    return (template[0], template[1].format(inside))


SAVE = "torch.autograd.graph.save_on_cpu(pin_memory=True)"
BF16 = 'torch.autocast("cuda", torch.bfloat16)'
# The program's own line keeps no output of the model: neither may the edited one.
GUIDE_CALL = ("        loss = model(tokens).sum()\n",
              "        with {}:\n            loss = model(tokens)\n        loss = loss.sum()\n")
RESNET_CALL = ("loss = torch.nn.functional.cross_entropy(model(images), labels)",
               "with {}:\n                loss = model(images)\n            "
               "loss = torch.nn.functional.cross_entropy(loss, labels)")
LLAMA_CALL = ("        logits = model(tokens).float()\n",
              "        with {}:\n            logits = model(tokens)\n        logits = logits.float()\n")


# Cross entropy in parts, written into a program.
IN_PARTS = """
def loss_in_parts(logits, targets, parts):
    from torch.utils.checkpoint import checkpoint

    def summed(some, labels):
        return torch.nn.functional.cross_entropy(some, labels, reduction="sum")

    losses = []
    for some, labels in zip(logits.chunk(parts), targets.chunk(parts)):
        losses.append(checkpoint(summed, some, labels, use_reentrant=False))
    return sum(losses) / (targets != -100).sum()
"""


# The selective recomputation of torchtitan, written into a program.
SELECTIVE = """
def selected():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    seen = {"forward": 0, "recompute": 0}
    kept = {torch.ops.aten._scaled_dot_product_flash_attention.default,
            torch.ops.aten._scaled_dot_product_efficient_attention.default,
            torch.ops.aten._scaled_dot_product_cudnn_attention.default,
            torch.ops.aten.max.default, torch.ops._c10d_functional.reduce_scatter_tensor.default}
    def policy(context, operator, *args, **kwargs):
        if operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            when = "recompute" if context.is_recompute else "forward"
            seen[when] += 1
            saves = seen[when] % 2 == 1
        else:
            saves = operator in kept
        return CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)


def select(blocks):
    from torch.utils.checkpoint import checkpoint
    for block in blocks:
        block.forward = __import__("functools").partial(
            checkpoint, block.forward, use_reentrant=False, context_fn=selected)
"""


def selecting(blocks, before, start):
    """Returns the edits that recompute selectively, before a line; `start` begins the functions."""
    return [(start, SELECTIVE + "\n\n" + start),
            (before, f"    select({blocks})\n{before}")]


def with_replicas(ranks):
    return (f"torch.distributed.device_mesh.init_device_mesh('cuda', (16 // {ranks}, {ranks}), "
            "mesh_dim_names=('replicate', 'shard'))")


def of_transformer():
    yield case("recompute", "transformer.py", added=["--checkpoint-activations"], is_quick=True)
    for strategy in ("fsdp1", "hsdp", "ddp", "fsdp2-tp"):
        yield case("recompute", "transformer.py", given=["--strategy", strategy],
                   added=["--checkpoint-activations"])
    yield case("recompute", "transformer.py", given=["--strategy", "plain"],
               added=["--checkpoint-activations"], flags=ALONE)
    for strategy in ("fsdp2", "ddp"):
        yield case("recompute=every:2", "transformer.py", [EVERY_SECOND],
                   given=["--strategy", strategy], added=["--checkpoint-activations"])
    yield case("offload=parameters", "transformer.py",
               [("model if options.offload else model.cuda()", "model.cuda()")], added=["--offload"])
    yield case("param-dtype=bf16,reduce-dtype=fp32", "transformer.py", added=["--bf16"],
               is_quick=True)
    yield case("reduce-dtype=bf16", "transformer.py",
               [("arguments = {}\n", 'arguments = {"mp_policy": MixedPrecisionPolicy('
                 'reduce_dtype=torch.bfloat16)}\n')])
    yield case("param-dtype=bf16", "transformer.py",
               [("sharding_strategy=FSDP1",
                 "mixed_precision=__import__('torch').distributed.fsdp.MixedPrecision("
                 "param_dtype=torch.bfloat16), sharding_strategy=FSDP1")],
               given=["--strategy", "fsdp1"])
    for optimizer in ("fused", "single"):
        yield case(f"optimizer={optimizer}", "transformer.py", added=["--optimizer", optimizer])
    for value in ("True", "False", "4"):
        yield case(f"reshard-after-forward={value.lower()}", "transformer.py",
                   [("arguments = {}\n", f'arguments = {{"reshard_after_forward": {value}}}\n')])
    yield case("reshard-after-forward=false", "transformer.py",
               [('{"fsdp1": ShardingStrategy.FULL_SHARD', '{"fsdp1": ShardingStrategy.SHARD_GRAD_OP')],
               given=["--strategy", "fsdp1"])
    yield case("wrap=blocks", "transformer.py",
               [("    return fully_shard(model", WRAP[0] + "    return fully_shard(model")],
               before=[WRAP], is_quick=True)
    yield case("wrap=size:6000000", "transformer.py",
               [("    return fully_shard(model",
                 "    fully_shard(list(model.blocks[:2]), **arguments)\n"
                 "    fully_shard(list(model.blocks[2:]), **arguments)\n"
                 "    return fully_shard(model")], before=[WRAP])
    yield case("set-to-none", "transformer.py",
               [("zero_grad(set_to_none=False)", "zero_grad()")],
               before=[("zero_grad()", "zero_grad(set_to_none=False)")])
    make = "torch.optim.AdamW([p], lr=1e-3)"
    for strategy, flags in (("fsdp2", WORLD), ("plain", ALONE)):
        yield case("step-in-backward", "transformer.py",
                   [(f"optimizer = {ADAMW_ALONE}\n", IN_BACKWARD.format(make=make)),
                    ("        optimizer.step()\n", ""), ("        optimizer.zero_grad()\n", "")],
                   before=[("**how[options.optimizer]", "foreach=None")],
                   given=["--strategy", strategy], flags=flags)
    for strategy, flags in (("fsdp2", WORLD), ("ddp", WORLD), ("plain", ALONE)):
        given = ["--strategy", strategy]
        yield case("activations=host", "transformer.py", [around(CALL, SAVE)], given=given,
                   flags=flags)
        yield case("autocast=bf16", "transformer.py", [around(CALL, BF16)], given=given, flags=flags)
    for strategy, flags in (("ddp", WORLD), ("plain", ALONE)):
        yield case("model-dtype=bf16", "transformer.py",
                   [("    model = Transformer(vocabulary, width=512, layers=4)\n",
                     "    model = Transformer(vocabulary, width=512, layers=4).to(torch.bfloat16)\n")],
                   given=["--strategy", strategy], flags=flags)
    ddp = ["--strategy", "ddp"]
    yield case("bucket-view", "transformer.py",
               [("(model.cuda())", "(model.cuda(), gradient_as_bucket_view=True)")], given=ddp,
               is_quick=True)
    yield case("bucket-size=5", "transformer.py",
               [("(model.cuda())", "(model.cuda(), bucket_cap_mb=5)")], given=ddp)
    yield Case("fsdp2", Version("transformer.py", ("--strategy", "ddp")),
               Version("transformer.py", ("--strategy", "fsdp2")), WORLD)
    yield case("zero-redundancy", "transformer.py",
               [(ADAMW, "__import__('torch.distributed.optim').distributed.optim."
                 "ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, "
                 "lr=1e-3, **how[options.optimizer])")], given=ddp)
    for lever, setting in (("expandable-segments", "expandable_segments:True"),
                           ("max-split=20", "max_split_size_mb:20"),
                           ("gc-threshold=0.8", "garbage_collection_threshold:0.8"),
                           ("roundup=4", "roundup_power2_divisions:4")):
        yield case(lever, "transformer.py", environment=[("PYTORCH_CUDA_ALLOC_CONF", setting)])
    yield case("empty-cache", "transformer.py",
               [("        optimizer.step()\n",
                 "        optimizer.step()\n        torch.cuda.empty_cache()\n")])
    yield case("attention=math", "transformer.py",
               [("import torch\n", "import torch\n"
                 "torch.backends.cuda.enable_flash_sdp(False)\n"
                 "torch.backends.cuda.enable_mem_efficient_sdp(False)\n"
                 "torch.backends.cuda.enable_cudnn_sdp(False)\n")])
    yield case("optimizer=adafactor", "transformer.py",
               [(ADAMW, "torch.optim.Adafactor(model.parameters(), lr=1e-3)")],
               given=["--strategy", "plain"], flags=ALONE)
    yield case("recompute,optimizer=fused,param-dtype=bf16,reduce-dtype=fp32", "transformer.py",
               added=["--checkpoint-activations", "--optimizer", "fused", "--bf16"])


def of_new_levers():
    """Levers on what is recomputed, on ranks, and on sequences."""
    optimizer = "    optimizer = torch.optim."
    for given in ([], ["--strategy", "ddp"]):
        inner = "model.module.blocks" if given else "model.blocks"
        yield case("recompute=selective", "transformer.py",
                   selecting(inner, optimizer, "def parse_options():"), given=given)
    yield case("recompute=selective", "guide.py", selecting("model.layers", optimizer, "def main():"))
    yield case("recompute=selective", "llama.py", selecting("model.blocks", optimizer, "def main():"))
    yield case("recompute=selective", "levers/loader.py", selecting("model.blocks", optimizer, "def main():"),
               flags=ALONE)
    yield case("recompute=selective", "trainer.py",
               [("def main():", SELECTIVE + "\n\ndef main():"),
                ("    with tempfile", "    model.activation_checkpointing_enable({'use_reentrant': "
                 "False, 'context_fn': selected})\n    with tempfile")], flags=ALONE)
    yield case("hsdp=8", "transformer.py", added=["--strategy", "hsdp"])
    yield case("hsdp=4", "guide.py",
               [("    arguments = {}\n", f'    arguments = {{"mesh": {with_replicas(4)}}}\n')],
               before=[(" and parameter.placements == (Shard(0),)", "")])
    yield case("hsdp=4", "transformer.py",
               [("sharding_strategy=FSDP1[options.strategy]",
                 "sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh="
                 "init_device_mesh('cuda', (4, 4), mesh_dim_names=('replicate', 'shard'))")],
               given=["--strategy", "fsdp1"])
    yield Case("fsdp2", Version("transformer.py", ("--strategy", "plain")),
               Version("transformer.py", ("--strategy", "fsdp2")), WORLD)
    yield case("fsdp2", "levers/loader.py",
               [("    optimizer = torch.optim.",
                 "    import torch.distributed.fsdp as fsdp\n"
                 "    torch.distributed.init_process_group()\n"
                 "    for block in model.blocks:\n        fsdp.fully_shard(block)\n"
                 "    fsdp.fully_shard(model)\n    optimizer = torch.optim.")])
    yield case("sequence=100", "levers/loader.py", [("TOKENS = 4000, 512, 256", "TOKENS = 4000, 512, 100")],
               flags=ALONE)
    yield case("sequence=300", "levers/loader.py", [("TOKENS = 4000, 512, 256", "TOKENS = 4000, 512, 300")],
               flags=ALONE)
    yield case("sequence=128", "trainer.py", [("(VOCABULARY, (256,))", "(VOCABULARY, (128,))")],
               flags=ALONE)
    for script in ("transformer.py", "guide.py"):
        yield Case("world=32", Version(script), Version(script), WORLD,
                   by_hand_flags=("--world", "32", *WORLD[2:]))
        yield Case("gpu=l4", Version(script), Version(script), WORLD,
                   by_hand_flags=("--device", "null:l4", *WORLD))
    accumulate = [("batch_size=16)", "batch_size=4)"),
                  ("    for batch in DataLoader", "    for i, batch in enumerate(DataLoader"),
                  ("=4):", "=4)):"),
                  ("        optimizer.zero_grad()\n", "        if i % 4 == 0:\n"
                   "            optimizer.zero_grad()\n"),
                  ("        optimizer.step()\n", "        if i % 4 == 3:\n"
                   "            optimizer.step()\n")]
    yield case("batch=4", "levers/loader.py", accumulate, flags=ALONE)
    yield case("empty-cache", "levers/loader.py",
               [("        optimizer.step()\n",
                 "        optimizer.step()\n        torch.cuda.empty_cache()\n")], flags=ALONE)
    yield case("batch=16", "tutorial.py",
               [("DataLoader(data, batch_size=batch,", "DataLoader(data, batch_size=batch // 4,"),
                ("            optimizer.zero_grad()\n", "            if batches % 4 == 0:\n"
                 "                optimizer.zero_grad()\n"),
                ("            optimizer.step()\n", "            if batches % 4 == 3:\n"
                 "                optimizer.step()\n")])


def of_losses():
    def function(start):
        return start, IN_PARTS + "\n\n" + start

    for given, flags in ((["--strategy", "fsdp2"], WORLD), (["--strategy", "plain"], ALONE)):
        yield case("loss-chunks=4", "transformer.py",
                   [function("def parse_options():"),
                    ("nn.functional.cross_entropy(logits.view(-1, vocabulary), tokens.view(-1))",
                     "loss_in_parts(logits.view(-1, vocabulary), tokens.view(-1), 4)")],
                   given=given, flags=flags)
    yield case("loss-chunks=8", "llama.py",
               [function("def main():"),
                ("F.cross_entropy(logits.view(-1, vocabulary), tokens.view(-1))",
                 "loss_in_parts(logits.view(-1, vocabulary), tokens.view(-1), 8)")], flags=ALONE)
    labels = 'batch["labels"].cuda().flatten()'
    yield case("loss-chunks=8", "levers/loader.py",
               [function("def main():"),
                (f"nn.functional.cross_entropy(logits.flatten(0, 1), {labels})",
                 f"loss_in_parts(logits.flatten(0, 1), {labels}, 8)")], flags=ALONE)


def of_guide():
    yield case("recompute", "guide.py", [(GUIDE_WRAPPED[0],
                                          GUIDE_WRAPPED[1].format(first=0, every=1))])
    yield case("recompute=every:2", "guide.py",
               [(GUIDE_WRAPPED[0], GUIDE_WRAPPED[1].format(first=0, every=2))])
    yield case("param-dtype=bf16,reduce-dtype=fp32", "guide.py", added=["--mixed-precision"])
    yield case("offload=parameters", "guide.py",
               [("    arguments = {}\n", "    from torch.distributed.fsdp import CPUOffloadPolicy\n"
                 '    arguments = {"offload_policy": CPUOffloadPolicy()}\n')])
    for value in ("True", "False", "2"):
        yield case(f"reshard-after-forward={value.lower()}", "guide.py",
                   [("    arguments = {}\n",
                     f'    arguments = {{"reshard_after_forward": {value}}}\n')])
    for name, how in (("fused", "fused=True"), ("single", "foreach=False, fused=False")):
        yield case(f"optimizer={name}", "guide.py", [("lr=1e-2", f"lr=1e-2, {how}")])
    yield case("activations=host", "guide.py", [around(GUIDE_CALL, SAVE)])
    yield case("autocast=bf16", "guide.py", [around(GUIDE_CALL, BF16)])
    yield case("empty-cache", "guide.py", [around(GUIDE_STEP, "torch.cuda.empty_cache()")])
    yield case("wrap=blocks", "guide.py",
               [("    fully_shard(model, **arguments)\n",
                 "    for layer in model.layers:\n        fully_shard(layer, **arguments)\n"
                 "    fully_shard(model, **arguments)\n")],
               before=[("    for layer in model.layers:\n        fully_shard(layer, **arguments)\n",
                        "")])
    yield case("set-to-none", "guide.py", [("zero_grad(set_to_none=False)", "zero_grad()")],
               before=[("zero_grad()", "zero_grad(set_to_none=False)")])
    yield case("step-in-backward", "guide.py",
               [("optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)\n",
                 IN_BACKWARD.format(make="torch.optim.Adam([p], lr=1e-2)")),
                ("        optimizer.step()\n", ""), ("        optimizer.zero_grad()\n", "")])
    yield case("expandable-segments", "guide.py",
               environment=[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")])
    yield case("model-dtype=bf16", "guide.py",
               [("Model().to(device)", "Model().to(device, torch.bfloat16)")])


def of_others():
    yield case("recompute", "tutorial.py",
               [("    for block in model.layers:\n",
                 "    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
                 "checkpoint_wrapper\n    for i in range(len(model.layers)):\n"
                 "        model.layers[i] = checkpoint_wrapper(model.layers[i])\n"
                 "    for block in model.layers:\n")])
    yield case("param-dtype=bf16,reduce-dtype=bf16", "tutorial.py", added=["--bf16"])
    yield case("reshard-after-forward=false", "tutorial.py",
               [('"reshard_after_forward": True', '"reshard_after_forward": False')])
    yield case("offload=parameters", "tutorial.py",
               [("    if not options.offload:\n        model.to(device)\n",
                 "    model.to(device)\n")], added=["--offload"])
    yield case("optimizer=fused", "tutorial.py", [("lr=1e-3)", "lr=1e-3, fused=True)")])
    yield case("optimizer=single", "llama.py", [("fused=True", "foreach=False")])
    yield case("recompute", "llama.py",
               [("    for block in model.blocks:\n",
                 "    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
                 "checkpoint_wrapper\n    for i in range(len(model.blocks)):\n"
                 "        model.blocks[i] = checkpoint_wrapper(model.blocks[i])\n"
                 "    for block in model.blocks:\n")])
    yield case("activations=host", "llama.py", [around(LLAMA_CALL, SAVE)])
    yield case("attention=math", "llama.py",
               [("import torch\n", "import torch\n"
                 "torch.backends.cuda.enable_flash_sdp(False)\n"
                 "torch.backends.cuda.enable_mem_efficient_sdp(False)\n"
                 "torch.backends.cuda.enable_cudnn_sdp(False)\n")])
    yield case("recompute", "resnet.py",
               [("    optimizer = torch.optim.SGD",
                 "    from functools import partial\n"
                 "    from torch.utils.checkpoint import checkpoint\n"
                 "    for part in (model.layer1, model.layer2, model.layer3, model.layer4):\n"
                 "        for block in part:\n"
                 "            block.forward = partial(checkpoint, block.forward, "
                 "use_reentrant=False)\n    optimizer = torch.optim.SGD")], flags=ALONE)
    yield case("activations=host", "resnet.py", [around(RESNET_CALL, SAVE)], flags=ALONE)
    yield case("autocast=off", "resnet.py",
               [('torch.autocast("cuda", torch.bfloat16)', 'torch.autocast("cuda", enabled=False)')],
               flags=ALONE)
    yield case("model-dtype=bf16", "resnet.py",
               [("resnet50().cuda()", "resnet50().to(torch.bfloat16).cuda()")], flags=ALONE)
    yield case("optimizer=single", "resnet.py", [("momentum=0.9", "momentum=0.9, foreach=False")],
               flags=ALONE)


def of_trainer():
    yield case("recompute", "trainer.py", added=["--recompute"], flags=ALONE)
    for lever, argument in (("recompute=every:2", "activation_checkpointing_kwargs="
                             '{"every_n_layers": 2}'),):
        yield case(lever, "trainer.py", [("max_steps=3", f"max_steps=3, {argument}")],
                   added=["--recompute"], flags=ALONE)
    for lever, argument in (("optimizer=adafactor", 'optim="adafactor"'),
                            ("empty-cache", "torch_empty_cache_steps=1")):
        yield case(lever, "trainer.py", [("max_steps=3", f"max_steps=3, {argument}")], flags=ALONE)
    yield case("batch=1", "trainer.py",
               [("train_batch_size=4, gradient_accumulation_steps=2",
                 "train_batch_size=1, gradient_accumulation_steps=8")], flags=ALONE)
    yield case("batch=2", "trainer.py",
               [("train_batch_size=4, gradient_accumulation_steps=2",
                 "train_batch_size=2, gradient_accumulation_steps=4")],
               before=[("Trainer, TrainingArguments\n", "Seq2SeqTrainingArguments as TrainingArguments, Trainer\n")],
               flags=ALONE)
    yield case("attention=eager", "trainer.py",
               [("use_cache=False", 'use_cache=False, attn_implementation="eager"')], flags=ALONE)
    for strategy in ("ddp", "fsdp"):
        yield case("optimizer=single", "lit.py", [("lr=1e-3", "lr=1e-3, foreach=False")],
                   given=[strategy], flags=FOUR)
        yield case("batch=8", "lit.py",
                   [("batch_size=16", "batch_size=8"),
                    ("Trainer(max_steps=4", "Trainer(accumulate_grad_batches=2, max_steps=4")],
                   given=[strategy], flags=FOUR)
    yield case("bucket-view", "lit.py",
               [('else "ddp"\n', 'else __import__("lightning").pytorch.strategies.DDPStrategy('
                 'gradient_as_bucket_view=True)\n')], given=["ddp"], flags=FOUR)


ALLOCATOR = (("max-split=20", "max_split_size_mb:20"), ("gc-threshold=0.8", "garbage_collection_threshold:0.8"),
             ("roundup=4", "roundup_power2_divisions:4"))


def of_second_programs():
    """Levers on a program of another kind than the one above."""
    for lever, setting in ALLOCATOR:
        environment = [("PYTORCH_CUDA_ALLOC_CONF", setting)]
        yield case(lever, "guide.py", environment=environment)
        yield case(lever, "trainer.py", environment=environment, flags=ALONE)
    yield case("expandable-segments", "lit.py", given=["ddp"], flags=FOUR,
               environment=[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")])
    yield case("reduce-dtype=bf16", "guide.py",
               [("    arguments = {}\n",
                 '    arguments = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)}\n')])
    yield case("bucket-size=5", "lit.py",
               [('else "ddp"\n', 'else __import__("lightning").pytorch.strategies.DDPStrategy(bucket_cap_mb=5)\n')],
               given=["ddp"], flags=FOUR)
    yield case("zero-redundancy", "lit.py",
               [("return torch.optim.AdamW(self.parameters(), lr=1e-3)",
                 "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
                 "        return ZeroRedundancyOptimizer(self.parameters(), optimizer_class=torch.optim.AdamW, "
                 "lr=1e-3)")], given=["ddp"], flags=FOUR)
    yield case("recompute", "levers/unet.py",
               [(").cuda()\n", ").cuda()\n    model.enable_gradient_checkpointing()\n")], flags=ALONE)
    yield case("optimizer=fused", "levers/unet.py", [("lr=1e-4)", "lr=1e-4, fused=True)")], flags=ALONE)
    yield case("autocast=bf16", "levers/unet.py",
               [("predicted = model(noisy, times, return_dict=False)[0]",
                 f"with {BF16}:\n            predicted = model(noisy, times, return_dict=False)[0]")], flags=ALONE)
    yield case("activations=host", "levers/unet.py",
               [("predicted = model(noisy, times, return_dict=False)[0]",
                 f"with {SAVE}:\n            predicted = model(noisy, times, return_dict=False)[0]")], flags=ALONE)


CASES = [*of_transformer(), *of_new_levers(), *of_losses(), *of_guide(), *of_others(), *of_trainer(),
         *of_second_programs()]


# --- running --------------------------------------------------------------------------------------


@functools.cache
def has(library):
    question = [PYTHON, "-c", f"import importlib.util as u, sys; sys.exit(not u.find_spec('{library}'))"]
    return subprocess.run(question, check=False).returncode == 0


@functools.cache
def peaks(version, flags):
    """Returns the peaks of a version, allocated and reserved, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / pathlib.Path(version.script).name
        script.write_text(version.text())
        recorded = Recorded if "--device" in flags else OnNullDevice
        run = recorded(folder, PYTHON, script, *version.arguments, flags=list(flags),
                       more=dict(version.environment)).expect(0)
        peak = report_of(run.out)["peak"]
        return peak["allocated_bytes"], peak["reserved_bytes"]


def compared(one):
    """Returns the peaks by hand and with the lever. A lever that changes nothing is not recorded."""
    by_hand = peaks(one.by_hand, one.by_hand_flags or one.flags)
    return by_hand, peaks(one.before, (*one.flags, "--with", one.lever))


def by_turns(cases):
    """Returns the first case of each lever, then the second of each, and so on."""
    seen, turns = {}, []
    for one in cases:
        seen[one.lever] = seen.get(one.lever, 0) + 1
        turns.append((seen[one.lever], one))
    return [one for _, one in sorted(turns, key=lambda turn: turn[0])]


def check_idle():
    """A lever that changes nothing, or that the program does already, leaves no recording."""
    for lever, script, why in (("bucket-view", ["guide.py"], "it applies to programs that use Distributed"),
                               ("step-in-backward", ["guide.py", "--clip"], "the program clips gradients"),
                               ("optimizer=fused", ["llama.py"], "does that already")):
        with tempfile.TemporaryDirectory() as folder:
            run = OnNullDevice(folder, PYTHON, HERE / "scripts" / script[0], *script[1:],
                               flags=[*WORLD, "--with", lever])
            run.expect(5, f"{lever} does not apply: ", why)
            if list(run.out.rglob("*.slp")):
                raise AssertionError(f"{lever} was recorded")


def text_of(both):
    return " / ".join(f"{number / 2**20:.2f}" for number in both)


def main():
    length, *scripts = sys.argv[1:] or ["trainers", "trainer.py", "lit.py"]
    cases = [one for one in by_turns(CASES) if all(map(has, one.needs()))]
    if length == "quick":
        cases = [one for one in cases if one.is_quick]
    if scripts:
        cases = [one for one in cases if one.before.script in scripts or one.lever in scripts]
    if length != "table":
        cases = sampled(cases)
    failed = 0
    if length != "table" and not scripts:
        check_idle()
    for one in cases:
        name = " ".join([pathlib.Path(one.before.script).name, *one.before.arguments])
        try:
            by_hand, pulled = compared(one)
        except AssertionError as error:
            failed += 1
            print(f"FAILED  {one.lever}, {name}: {error}", flush=True)
            continue
        failed += by_hand != pulled
        if length == "table":
            print(f"| `{one.lever}` | {name} | {text_of(by_hand)} | {text_of(pulled)} |", flush=True)
        else:
            print(f"{'ok    ' if by_hand == pulled else 'FAILED'}  {one.lever}, {name}: "
                  f"by hand {text_of(by_hand)}, pulled {text_of(pulled)}",
                  flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
