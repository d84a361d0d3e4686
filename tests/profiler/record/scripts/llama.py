"""A Llama of the size that the flags say, sharded block by block by FSDP2 and made on the GPU shard
by shard: the program of a user who has never heard of Shardlens."""

import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

# width, layers, heads, heads of keys and values, width of the MLP, vocabulary
SIZES = {
    "1b": (2048, 16, 32, 8, 8192, 128256),
    "8b": (4096, 32, 32, 8, 14336, 128256),
}


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, width, heads, pairs):
        super().__init__()
        self.head_width = width // heads
        self.q = linear(width, width)
        self.k = linear(width, pairs * self.head_width)
        self.v = linear(width, pairs * self.head_width)
        self.out = linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = linear(width, inner)
        self.up = linear(width, inner)
        self.down = linear(inner, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, heads, pairs, inner):
        super().__init__()
        self.before_attention = Norm(width)
        self.attention = Attention(width, heads, pairs)
        self.before_mlp = Norm(width)
        self.mlp = Mlp(width, inner)

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class Llama(nn.Module):
    def __init__(self, width, layers, heads, pairs, inner, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, heads, pairs, inner) for _ in range(layers)])
        self.norm = Norm(width)
        self.head = linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_model(size):
    with torch.device("meta"):
        model = Llama(*SIZES[size])
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=precision)
    fully_shard(model, mp_policy=precision)
    model.to_empty(device="cuda")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="1b")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    start = time.time()
    dist.init_process_group("nccl")
    model = make_model(options.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    vocabulary = SIZES[options.size][-1]
    for _ in range(options.steps):
        tokens = torch.randint(vocabulary, (1, options.tokens), device="cuda")
        logits = model(tokens).float()
        loss = F.cross_entropy(logits.view(-1, vocabulary), tokens.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"{time.time() - start:.1f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
