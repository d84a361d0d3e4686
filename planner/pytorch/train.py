"""Trains a model of transformers, torchvision or timm on random data, sharded with FSDP2.

`shardlens plan --engine pytorch` runs this program on a simulated GPU to say what it takes, and
`--write FILE` writes it with your settings. It is yours then: give it your data, and start it with

    torchrun --nproc-per-node 8 train.py
"""

import argparse
import importlib
import json
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# Each is a flag, too: --seq 4096. `shardlens plan` reads and writes these lines.
SETTINGS = {
    "model": "config.json",  # config.json, a name on Hugging Face, llama:SIZES, timm:NAME, ...
    "batch": 1,  # samples of a rank and microbatch
    "seq": 2048,  # tokens of a sample
    "steps": 3,  # optimizer steps
    "accumulate": 1,  # microbatches of a step
    "sync": "every",  # every or last: the microbatch whose gradients are reduced
    "strategy": "fsdp",  # single, ddp, fsdp or hsdp
    "replicas": 1,  # hsdp: copies of the state
    "tp": 1,  # ranks among which each layer is split
    "wrap": "block",  # block or root: what is gathered at once
    "reshard_after_forward": "true",  # true, false, or a number of ranks
    "param_dtype": "fp32",  # in which parameters are gathered and computed with
    "reduce_dtype": "fp32",  # in which gradients are reduced
    "offload": "none",  # all: parameters, gradients and optimizer state are on the host
    "recompute": "none",  # full, or every:K: blocks that keep only their input
    "optimizer": "adamw",  # adamw, adam or sgd
    "fused": False,  # step in one kernel
    "lr": 1e-4,  # learning rate
    "weight_decay": 0.0,  # of adamw, or an L2 term of the others
    "clip_norm": 0.0,  # 0: no clipping
    "attention": "auto",  # sdpa, eager, or what transformers chooses
    "lora": 0,  # rank of peft's adapters, which alone are trained; 0: all weights are
    "quantize": "none",  # nf4: bitsandbytes' four bits for the blocks' matrices, under lora
}
CHOICES = {
    "sync": ("every", "last"), "strategy": ("single", "ddp", "fsdp", "hsdp"),
    "wrap": ("block", "root"), "offload": ("none", "all"), "quantize": ("none", "nf4"),
    "param_dtype": ("fp32", "bf16", "fp16"), "reduce_dtype": ("fp32", "bf16", "fp16"),
    "optimizer": ("adamw", "adam", "sgd"), "attention": ("auto", "sdpa", "eager"),
}  # fmt: skip
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def parse_settings():
    parser = argparse.ArgumentParser()
    for name, default in SETTINGS.items():
        kind = {"type": type(default), "choices": CHOICES.get(name)}
        kind = {"action": "store_true"} if isinstance(default, bool) else kind
        parser.add_argument("--" + name.replace("_", "-"), default=default, **kind)
    settings = parser.parse_args()
    has_whole = settings.lora > 0 and settings.offload == "none" and settings.tp == 1
    if settings.quantize == "nf4" and not has_whole:
        stop("--quantize nf4: needs --lora, and whole matrices on the GPU: no --offload, no --tp")
    return settings


def stop(why):
    raise SystemExit(f"train.py: {why}")


def library(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        stop(f"{error}; run pip install --upgrade {name.partition('.')[0]}")


def config_of(name):
    """Reads a configuration of transformers, or makes one from sizes: llama:hidden_size=512."""
    auto = library("transformers").AutoConfig
    kind, _, sizes = name.partition(":")
    try:
        if not sizes:
            return auto.from_pretrained(name)
        given = dict(size.split("=") for size in sizes.split(","))
        return auto.for_model(kind, **{size: json.loads(value) for size, value in given.items()})
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        stop(f"--model {name}: transformers cannot read it: {why}; or use torchvision:NAME, timm:NAME")


def make_model(settings):
    """Makes the model; one of transformers without memory: its weights have shapes, no values."""
    kind, _, name = settings.model.partition(":")
    if kind in ("torchvision", "timm"):
        torch.manual_seed(0)  # each rank keeps its part of the same weights
        is_timm = kind == "timm"
        make = library("timm").create_model if is_timm else library("torchvision.models").get_model
        model = make(name)
        model.config = SimpleNamespace(num_channels=3, image_size=224, num_labels=1000)
        return model.train()
    models, config = library("transformers"), config_of(settings.model)
    config.use_cache = False
    is_vision = not hasattr(config, "vocab_size")
    auto = models.AutoModelForImageClassification if is_vision else models.AutoModelForCausalLM
    attention = None if settings.attention == "auto" else settings.attention
    with torch.device("meta"):
        return auto.from_config(config, attn_implementation=attention, dtype=torch.float32).train()


def blocks_of(model):
    """Returns the blocks that the model repeats: of the class whose lists hold the most weights."""
    lists = [one for one in model.modules() if isinstance(one, nn.ModuleList | nn.Sequential)]
    alike = [one for one in lists if len({type(block) for block in one}) == 1]
    largest = max(alike, key=lambda one: sum(weight.numel() for weight in one.parameters()))
    return [module for module in model.modules() if type(module) is type(largest[0])]


def recompute(model, which):
    """Lets every K-th block keep only its input, and compute again for backward."""
    if which == "none":
        return
    every = 1 if which == "full" else int(which.removeprefix("every:"))
    for block in blocks_of(model)[::every]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def quantize(model, storage):
    """Gives each matrix of the blocks four bits, with random values, in numbers of that dtype."""
    bnb = library("bitsandbytes").nn
    inner = [(block, *pair) for block in blocks_of(model) for pair in block.named_modules()]
    for block, name, old in [one for one in inner if type(one[2]) is nn.Linear]:
        values = 0.02 * torch.randn(old.weight.shape, dtype=torch.bfloat16, device="cuda")
        flags = {"quant_type": "nf4", "quant_storage": storage}
        new = bnb.Linear4bit(*values.T.shape, False, torch.bfloat16, device="meta", **flags)
        new.weight = bnb.Params4bit(values, requires_grad=False, **flags).to("cuda")
        new.quant_state = new.weight.quant_state  # FSDP2 makes other parameters of the weights
        if old.bias is not None:
            new.bias = nn.Parameter(torch.zeros_like(old.bias, device="cuda"))
        new._is_hf_initialized = True
        block.set_submodule(name, new)


def adapt(model, settings):
    """Freezes the weights, and adds small adapters that learn."""
    if settings.quantize == "nf4":
        # FSDP2 casts what it gathers to param_dtype: only numbers that have it stay as they are.
        quantize(model, DTYPES[settings.param_dtype])
    if settings.lora == 0:
        return model
    peft = library("peft")
    flags = {"r": settings.lora, "lora_alpha": 2 * settings.lora, "target_modules": "all-linear"}
    return peft.get_peft_model(model, peft.LoraConfig(**flags))


def require_plan(model):
    base = getattr(model, "base_model", None)
    if not (getattr(base, "tp_plan", None) or getattr(base, "ep_plan", None)):
        stop("--tp: transformers has no plan for this model; remove it")
    if not hasattr(model, "_expand_parallel_plan"):
        stop("--tp: needs transformers 5.23; run pip install --upgrade transformers")


def split(model, mesh):
    """Splits layers and experts over the ranks of `mesh`, as transformers' plans for the model say."""
    distributed = library("transformers.distributed")
    names = dict([*model.named_modules(), *model.named_parameters()])  # tied weights have one
    plan = model._expand_parallel_plan(model.tp_plan).items()
    plan = {name: style for name, style in plan if name in names}
    distributed.tensor_parallel.apply_tensor_parallelism(model, mesh, plan)
    if not model.tp_plan.keys() & model.ep_plan.keys():  # each rank has some experts, as a whole
        plan, how = model._expand_parallel_plan(model.ep_plan), {"ep_implementation": "all_reduce"}
        distributed.expert_parallel.apply_expert_parallelism(model, mesh, mesh, plan, **how)
    model.tie_weights()


def mesh_of(settings):
    """Returns the ranks as a grid: copies of the state, shards of a copy, parts of a layer."""
    world, replicas = dist.get_world_size(), settings.replicas
    if world % (replicas * settings.tp) != 0:
        stop(f"--replicas {replicas} --tp {settings.tp}: the product does not divide {world} ranks")
    sizes = {"replicate": replicas, "shard": world // replicas // settings.tp, "tp": settings.tp}
    sizes = {name: size for name, size in sizes.items() if size > 1 or name == "shard"}
    return init_device_mesh("cuda", tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def shard(model, mesh, settings):
    """Shards each block, then what is left with the root."""
    dtypes = DTYPES[settings.param_dtype], DTYPES[settings.reduce_dtype]
    flags = {
        "mesh": mesh["replicate", "shard"] if settings.replicas > 1 else mesh["shard"],
        "mp_policy": MixedPrecisionPolicy(*dtypes),
        "offload_policy": CPUOffloadPolicy() if settings.offload == "all" else OffloadPolicy(),
    }
    reshard = json.loads(settings.reshard_after_forward)
    for block in blocks_of(model) if settings.wrap == "block" else ():
        fully_shard(block, reshard_after_forward=reshard, **flags)
    fully_shard(model, **flags)


def place(model, device):
    """Gives the weights memory, and draws the values of those that had none."""
    if not any(weight.is_meta for weight in model.parameters()):
        model.to(device)
        return
    for module in model.modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(tensor.is_meta for tensor in own):
            module.to_empty(device=device, recurse=False)
    for buffer in model.buffers():
        buffer.data = buffer.data.to("cuda")
    with torch.no_grad():
        model.init_weights()
        for module in model.modules():
            if hasattr(module, "reset_lora_parameters"):
                module.reset_lora_parameters("default", init_lora_weights=True)


def make_optimizer(model, settings):
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    flags = {"weight_decay": settings.weight_decay, "fused": settings.fused or None}
    return kinds[settings.optimizer](weights, lr=settings.lr, **flags)


def loss_of(model, config, settings):
    """Computes the loss of a random batch. Put your data here."""
    if hasattr(config, "vocab_size"):
        tokens = torch.randint(0, config.vocab_size, (settings.batch, settings.seq), device="cuda")
        return model(input_ids=tokens, labels=tokens).loss
    shape = (settings.batch, config.num_channels, config.image_size, config.image_size)
    images = torch.randn(shape, device="cuda")
    labels = torch.randint(0, config.num_labels, (settings.batch,), device="cuda")
    if isinstance(config, SimpleNamespace):
        return nn.functional.cross_entropy(model(images), labels)
    return model(pixel_values=images, labels=labels).loss


def train(model, optimizer, config, settings):
    is_sharded = settings.strategy in ("fsdp", "hsdp")
    dtype = DTYPES[settings.param_dtype]
    cast = torch.autocast("cuda", dtype, enabled=not is_sharded and dtype != torch.float32)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    for step in range(settings.steps):
        for left in reversed(range(settings.accumulate)):
            reduce = left == 0 or settings.sync == "every"
            if is_sharded:
                model.set_is_last_backward(left == 0)
                model.set_requires_gradient_sync(reduce)
            model.require_backward_grad_sync = reduce  # of DistributedDataParallel
            with cast:
                loss = loss_of(model, config, settings)
            if settings.accumulate > 1:
                loss = loss / settings.accumulate
            scaler.scale(loss).backward()
        if settings.clip_norm > 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


def main():
    settings = parse_settings()
    model = make_model(settings)
    config = model.config
    if settings.tp > 1:
        require_plan(model)
    dist.init_process_group()
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    mesh = mesh_of(settings)
    recompute(model, settings.recompute)
    if settings.tp > 1:
        split(model, mesh["tp"])
    model = adapt(model, settings)
    if settings.strategy in ("fsdp", "hsdp"):
        shard(model, mesh, settings)
    place(model, "cpu" if settings.offload == "all" else "cuda")
    if settings.strategy == "ddp":
        model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    train(model, make_optimizer(model, settings), config, settings)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
