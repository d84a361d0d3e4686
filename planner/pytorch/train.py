"""Trains a model of transformers on random data, sharded with PyTorch's FSDP2.

`shardlens plan --engine pytorch` runs this program on a simulated GPU to say what it takes, and
`--write FILE` writes it with your settings. It is yours then: give it your data, and start it with

    torchrun --nproc-per-node 8 train.py
"""

import argparse
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

try:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification
except ImportError as error:
    raise SystemExit(f"train.py: {error}; run pip install transformers") from None

# Each is a flag, too: --seq 4096. `shardlens plan` reads and writes these lines.
SETTINGS = {
    "model": "config.json",  # a model's config.json, its folder, or its name on Hugging Face
    "batch": 1,  # samples of a rank and microbatch
    "seq": 2048,  # tokens of a sample
    "steps": 3,  # optimizer steps
    "accumulate": 1,  # microbatches of a step
    "strategy": "fsdp",  # single, ddp, fsdp or hsdp
    "replicas": 1,  # hsdp: copies of the state
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
}
CHOICES = {
    "strategy": ("single", "ddp", "fsdp", "hsdp"),
    "param_dtype": ("fp32", "bf16", "fp16"),
    "reduce_dtype": ("fp32", "bf16", "fp16"),
    "offload": ("none", "all"),
    "optimizer": ("adamw", "adam", "sgd"),
    "attention": ("auto", "sdpa", "eager"),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def parse_settings():
    parser = argparse.ArgumentParser()
    for name, default in SETTINGS.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true", default=default)
        else:
            choices = CHOICES.get(name)
            parser.add_argument(flag, type=type(default), default=default, choices=choices)
    return parser.parse_args()


def config_of(name):
    try:
        return AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise SystemExit(f"train.py: --model {name}: transformers cannot read it: {why}") from None


def make_model(settings):
    """Makes the model without memory: its weights have shapes, and no values."""
    config = config_of(settings.model)
    config.use_cache = False
    is_vision = not hasattr(config, "vocab_size")
    kind = AutoModelForImageClassification if is_vision else AutoModelForCausalLM
    with torch.device("meta"):
        attention = None if settings.attention == "auto" else settings.attention
        model = kind.from_config(config, attn_implementation=attention, dtype=torch.float32)
    return model.train()


def blocks_of(model):
    """Returns the blocks that the model repeats: its longest list of modules of one class."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    alike = [one for one in lists if len({type(block) for block in one}) == 1]
    return max(alike, key=len)


def recompute(model, which):
    """Lets every K-th block keep only its input, and compute again for backward."""
    if which == "none":
        return
    every = 1 if which == "full" else int(which.removeprefix("every:"))
    for block in list(blocks_of(model))[::every]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def mesh_of(settings):
    world = dist.get_world_size()
    if settings.strategy != "hsdp":
        return init_device_mesh("cuda", (world,), mesh_dim_names=("shard",))
    if world % settings.replicas != 0:
        raise SystemExit(f"--replicas {settings.replicas}: does not divide {world} ranks")
    shape = (settings.replicas, world // settings.replicas)
    return init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))


def shard(model, settings):
    """Shards each block, then what is left with the root."""
    words = {"true": True, "false": False}
    reshard = settings.reshard_after_forward
    flags = {
        "mesh": mesh_of(settings),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=DTYPES[settings.param_dtype], reduce_dtype=DTYPES[settings.reduce_dtype]
        ),
        "offload_policy": CPUOffloadPolicy() if settings.offload == "all" else OffloadPolicy(),
    }
    for block in blocks_of(model):
        fully_shard(
            block,
            reshard_after_forward=words[reshard] if reshard in words else int(reshard),
            **flags,
        )
    fully_shard(model, **flags)


def place(model, device):
    """Gives the weights memory, and draws their values."""
    model.to_empty(device=device)
    for buffer in model.buffers():
        buffer.data = buffer.data.to("cuda")
    with torch.no_grad():
        model.init_weights()


def make_optimizer(model, settings):
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return kind[settings.optimizer](
        parameters,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        fused=True if settings.fused else None,
    )


def random_batch(config, settings):
    """Returns the model's arguments. Put your data here."""
    if hasattr(config, "vocab_size"):
        shape = (settings.batch, settings.seq)
        tokens = torch.randint(0, config.vocab_size, shape, device="cuda")
        return {"input_ids": tokens, "labels": tokens}
    shape = (settings.batch, config.num_channels, config.image_size, config.image_size)
    return {
        "pixel_values": torch.randn(shape, device="cuda"),
        "labels": torch.randint(0, config.num_labels, (settings.batch,), device="cuda"),
    }


def train(model, optimizer, config, settings):
    is_sharded = settings.strategy in ("fsdp", "hsdp")
    for step in range(settings.steps):
        for microbatch in range(settings.accumulate):
            if is_sharded:
                model.set_is_last_backward(microbatch == settings.accumulate - 1)
            batch = random_batch(config, settings)
            loss = model(**batch).loss
            if settings.accumulate > 1:
                loss = loss / settings.accumulate
            loss.backward()
        if settings.clip_norm > 0:
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


def main():
    settings = parse_settings()
    dist.init_process_group()
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = make_model(settings)
    config = model.config
    recompute(model, settings.recompute)
    if settings.strategy in ("fsdp", "hsdp"):
        shard(model, settings)
        place(model, "cpu" if settings.offload == "all" else "cuda")
    else:
        place(model, "cuda")
    if settings.strategy == "ddp":
        model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    train(model, make_optimizer(model, settings), config, settings)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
