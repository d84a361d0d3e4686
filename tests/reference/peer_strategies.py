"""Shards a model as PyTorch's users do: FSDP2, HSDP and DDP, for fsdp2_null.py.

What FSDP2 and DDP leave to the user is a *variant*. VARIANTS names those of a strategy; we are
compared with the lowest peak of all.
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
RESHARD = {"true": True, "false": False}


def _fully_shard_options(options):
    keywords = {"reshard_after_forward": RESHARD.get(options.reshard_after_forward)}
    if keywords["reshard_after_forward"] is None:
        keywords["reshard_after_forward"] = int(options.reshard_after_forward)
    if options.param_dtype != "fp32":
        # Only for reduced precision: in fp32 a policy that casts nothing still looks at the inputs
        # of every block.
        keywords["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=DTYPES[options.param_dtype], reduce_dtype=DTYPES[options.reduce_dtype]
        )
    if options.offload == "all":
        keywords["offload_policy"] = CPUOffloadPolicy()
    if options.strategy == "hsdp":
        keywords["mesh"] = init_device_mesh(
            "cuda",
            (options.replicas, options.world // options.replicas),
            mesh_dim_names=("replicate", "shard"),
        )
    return keywords


def _fully_shard_tables(tables, keywords):
    """Makes embedding and head groups of their own. The head stays gathered until backward."""
    *others, head = tables
    for modules in others:
        fully_shard(modules, **keywords)
        for module in modules:
            if isinstance(module, nn.Embedding):
                module.set_unshard_in_backward(False)  # its gradient needs no weights
    fully_shard(head, **keywords | {"reshard_after_forward": False})


def _set_prefetch(blocks, options):
    """Sets explicit lists of `count` blocks instead of FSDP2's own order."""
    for i, block in enumerate(blocks):
        if ahead := blocks[i + 1 : i + 1 + options.forward_prefetch]:
            block.set_modules_to_forward_prefetch(ahead)
        behind = blocks[max(i - options.backward_prefetch, 0) : i]
        if options.backward_prefetch and behind:
            block.set_modules_to_backward_prefetch(behind[::-1])


def make_fsdp(peer, options):
    with torch.device("meta"):
        model = peer.make()
    keywords = _fully_shard_options(options)
    for block in peer.blocks(model):
        fully_shard(block, **keywords)
    if options.variant == "own-groups":
        _fully_shard_tables(peer.tables(model), keywords)
        keywords.pop("reshard_after_forward")  # the default keeps the root gathered
    fully_shard(model, **keywords)
    _set_prefetch(peer.blocks(model), options)
    model.to_empty(device="cpu" if options.offload == "all" else "cuda")
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.cuda())  # offload is for parameters only
    return model


def _reduce_bucket(dtype, bucket):
    """Does what DDP does with a bucket, or what its bf16_compress_hook or fp16_compress_hook do:
    those need an answer of the collective, and the fake process group gives none."""
    buffer = bucket.buffer()
    if dtype != buffer.dtype:
        compressed = buffer.to(dtype).div_(dist.get_world_size())
        dist.all_reduce(compressed)
        buffer.copy_(compressed)
    done = torch.futures.Future(devices=[buffer.device])
    done.set_result(buffer)
    return done


def make_ddp(peer, options):
    with torch.device("meta"):
        model = peer.make()
    model.to_empty(device="cuda")
    peer.tie(model)
    model = nn.parallel.DistributedDataParallel(
        model,
        gradient_as_bucket_view=options.variant != "default",
        # Rank 0's order of buckets and the others' shapes cannot be read from a null device.
        find_unused_parameters=True,  # keeps the buckets as they are; costs 4 bytes a parameter
        init_sync=False,
    )
    model.register_comm_hook(DTYPES[options.reduce_dtype], _reduce_bucket)
    return model


def forward_context(options):
    """DDP computes in reduced precision by autocast, FSDP2 by its own policy."""
    if options.strategy != "ddp" or options.param_dtype == "fp32":
        return contextlib.nullcontext()
    return torch.autocast("cuda", DTYPES[options.param_dtype])


MAKE = {"fsdp": make_fsdp, "hsdp": make_fsdp, "ddp": make_ddp}
VARIANTS = {
    "root": "as the tutorial: a group a block, and all else in the root's, gathered as the blocks",
    "own-groups": "embedding and head are groups too (one if tied); head and root stay gathered",
    "default": "DistributedDataParallel(model)",
    "bucket-view": "gradient_as_bucket_view=True",
}


def variants_of(options):
    return ["default", "bucket-view"] if options.strategy == "ddp" else ["root", "own-groups"]
