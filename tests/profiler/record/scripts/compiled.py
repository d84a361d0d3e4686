"""Trains blocks that torch.compile compiles whole, plain, in CUDA graphs, by DDP (whose own code it
cannot) or by FSDP2."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, TOKENS, WORDS, LAYERS = 256, 128, 1000, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, WIDTH // 4)).transpose(1, 3).unbind(2)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        y = torch.where(x > 0, self.up(x).chunk(4, -1)[0], x)  # a function that is watched
        return x + self.down(F.gelu(self.up(y)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy((x @ self.words.weight.T).flatten(0, 1), words.flatten())


def make(strategy):
    model = Model().cuda()
    if strategy == "plain":
        return torch.compile(model)
    if strategy == "graphs":
        return torch.compile(model, mode="reduce-overhead")
    if strategy == "ddp":
        return torch.compile(DistributedDataParallel(model))
    for block in model.blocks:
        block.compile()
        fully_shard(block)
    return fully_shard(model)


def main(strategy):
    if strategy in ("ddp", "fsdp2"):
        dist.init_process_group("nccl")
    model = make(strategy)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        words = torch.randint(WORDS, (8, TOKENS), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert counters["stats"]["unique_graphs"] == 1, counters
    assert strategy == "ddp" or not counters["graph_break"], counters


main(sys.argv[1])
