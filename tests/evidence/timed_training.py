"""Trains a decoder as published programs do whose step times are known: for published_times.py.

    timed_training.py --family llama|mpt --layers N --width N --heads N [--key-heads N]
                      [--inner N] --words N --batch N --tokens N [--accumulate N]
                      [--sharding none|ddp|fsdp1|fsdp2] [--checkpoint none|full|selective]
                      [--autocast | --half] [--steps N]

llama: RMSNorm, rotary positions, a gated MLP, untied head, as torchtitan, fms-fsdp and litgpt have
it. mpt: LayerNorm, learned positions, GELU, tied head, as llm-foundry has it.
"""

import argparse
import contextlib
import os

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads, self.key_heads, self.size = o.heads, o.key_heads, o.width // o.heads
        bias = False
        self.query = nn.Linear(o.width, o.heads * self.size, bias=bias)
        self.key = nn.Linear(o.width, o.key_heads * self.size, bias=bias)
        self.value = nn.Linear(o.width, o.key_heads * self.size, bias=bias)
        self.out = nn.Linear(o.width, o.width, bias=bias)
        self.is_rotary = o.family == "llama"

    def forward(self, x, rotation):
        batch, tokens, _ = x.shape
        q = self.query(x).view(batch, tokens, self.heads, self.size)
        k = self.key(x).view(batch, tokens, self.key_heads, self.size)
        v = self.value(x).view(batch, tokens, self.key_heads, self.size)
        if self.is_rotary:
            q, k = rotated(q, rotation), rotated(k, rotation)
        if self.key_heads != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.key_heads, dim=2) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))


def rotated(x, rotation):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation[:, None, :]).flatten(3).type_as(x)


class Mlp(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.is_gated = o.family == "llama"
        self.up = nn.Linear(o.width, o.inner, bias=False)
        self.down = nn.Linear(o.inner, o.width, bias=False)
        if self.is_gated:
            self.gate = nn.Linear(o.width, o.inner, bias=False)

    def forward(self, x):
        if self.is_gated:
            return self.down(functional.silu(self.gate(x)) * self.up(x))
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        norm = nn.RMSNorm if o.family == "llama" else nn.LayerNorm
        self.before_attention, self.before_mlp = norm(o.width), norm(o.width)
        self.attention, self.mlp = Attention(o), Mlp(o)

    def forward(self, x, rotation):
        x = x + self.attention(self.before_attention(x), rotation)
        return x + self.mlp(self.before_mlp(x))


class Decoder(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.words = nn.Embedding(o.words, o.width)
        self.blocks = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.norm = (nn.RMSNorm if o.family == "llama" else nn.LayerNorm)(o.width)
        self.head = nn.Linear(o.width, o.words, bias=False)
        self.positions = nn.Embedding(o.tokens, o.width) if o.family == "mpt" else None
        self.checkpoint = o.checkpoint
        size = o.width // o.heads
        angles = torch.outer(torch.arange(o.tokens), torch.rand(size // 2))
        self.register_buffer("rotation", torch.polar(torch.ones_like(angles), angles).cuda(),
                             persistent=False)

    def forward(self, ids):
        x = self.words(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for i, block in enumerate(self.blocks):
            if self.checkpoint == "full" or (self.checkpoint == "selective" and i % 2 == 0):
                x = checkpoint(block, x, self.rotation, use_reentrant=False)
            else:
                x = block(x, self.rotation)
        return self.head(self.norm(x))


def sharded(model, o):
    if o.sharding == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if o.sharding == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        return fully_shard(model, mp_policy=policy)
    if o.sharding == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        half = torch.bfloat16
        return FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True,
            mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half, buffer_dtype=None),
            limit_all_gathers=True)
    return model


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=("llama", "mpt"), default="llama")
    for name in ("layers", "width", "heads", "words", "batch", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--key-heads", type=int, default=0)
    parser.add_argument("--inner", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--sharding", choices=("none", "ddp", "fsdp1", "fsdp2"), default="none")
    parser.add_argument("--checkpoint", choices=("none", "full", "selective"), default="none")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    o = parser.parse_args()
    o.key_heads = o.key_heads or o.heads
    o.inner = o.inner or 4 * o.width
    return o


def main():
    o = parse_arguments()
    if o.sharding != "none":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        torch.distributed.init_process_group("nccl")
    for name in ("kaiming_uniform_", "normal_"):
        setattr(nn.init, name, lambda tensor, *_, **__: tensor)
    with torch.device("cuda"):
        model = Decoder(o)
    if o.half:
        model = model.bfloat16()
    model = sharded(model, o)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.zeros(o.batch, o.tokens, dtype=torch.long, device="cuda")
    autocast = (torch.autocast("cuda", torch.bfloat16) if o.autocast
                else contextlib.nullcontext())
    for _ in range(o.steps):
        for _ in range(o.accumulate):
            with autocast:
                loss = functional.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
            (loss / o.accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


main()
