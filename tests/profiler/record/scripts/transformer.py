"""A small transformer that is trained in the way that the flags say: the program of a user who has
never heard of Shardlens."""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

FSDP1 = {"fsdp1": ShardingStrategy.FULL_SHARD, "fsdp1-nodes": ShardingStrategy.HYBRID_SHARD}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )

    def attend(self, x):
        batch, tokens, width = x.shape
        heads = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(0))
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x):
        x = x + self.attend(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, 8) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def parallelize(model):
    """Gives each of two neighbours half of every MLP, sharded over the ranks with the same half."""
    sizes = (dist.get_world_size() // 2, 2)
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("shard", "tensor"))
    for block in model.blocks:
        halves = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(block.mlp, mesh["tensor"], halves)
    return mesh["shard"]


def shard(model, options):
    """FSDP2, over all ranks or, with replicas or halves of MLPs, over some."""
    arguments = {}
    if options.bf16:
        arguments["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    if options.offload:
        arguments["offload_policy"] = CPUOffloadPolicy()
    if options.strategy == "hsdp":
        sizes = (2, dist.get_world_size() // 2)
        arguments["mesh"] = init_device_mesh("cuda", sizes, mesh_dim_names=("replicate", "shard"))
    if options.strategy == "fsdp2-tp":
        arguments["mesh"] = parallelize(model)
    for block in model.blocks:
        fully_shard(block, **arguments)
    return fully_shard(model, **arguments)


def distribute(model, options):
    if options.strategy == "plain":
        return model.cuda()
    if options.strategy == "ddp":
        return DistributedDataParallel(model.cuda())
    if options.strategy in FSDP1:
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.cuda.current_device(),
            sharding_strategy=FSDP1[options.strategy],
        )
    return shard(model if options.offload else model.cuda(), options)


def parse_options():
    parser = argparse.ArgumentParser()
    strategies = ["fsdp2", "fsdp2-tp", "hsdp", *FSDP1, "ddp", "plain"]
    parser.add_argument("--strategy", choices=strategies, default="fsdp2")
    parser.add_argument("--optimizer", choices=["foreach", "fused", "single"], default="foreach")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--clip", type=float, default=0)
    parser.add_argument("--checkpoint-activations", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def train(options):
    vocabulary = 8000
    model = Transformer(vocabulary, width=512, layers=4)
    if options.checkpoint_activations:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    model = distribute(model, options)
    how = {"foreach": {"foreach": True}, "fused": {"fused": True}, "single": {"foreach": False}}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **how[options.optimizer])
    for step in range(options.steps):
        for _ in range(options.accumulate):
            tokens = torch.randint(0, vocabulary, (8, 256), device="cuda")
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits.view(-1, vocabulary), tokens.view(-1))
            loss.backward()
        if options.clip:
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    chosen = parse_options()
    if chosen.strategy != "plain":
        dist.init_process_group()
        torch.cuda.set_device(dist.get_node_local_rank())
    train(chosen)
    if chosen.strategy != "plain":
        dist.destroy_process_group()
