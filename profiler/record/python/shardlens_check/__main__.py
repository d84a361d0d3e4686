"""Runs one of the small programs that `shardlens check-gpu` compares:

    python -m shardlens_check CASE

Together they use what most training programs use: a model with attention, optimizers in three
forms, autocast, recomputation, FSDP2 on one rank, convolutions, streams, requests of odd sizes, and
memory that runs out. Each takes below 2 GiB, so that a GPU that others use suffices, and computes
the same shapes every time. They know nothing of Shardlens.
"""

import sys

import torch
from torch import nn
from torch.nn import functional

STEPS = 4


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x):
        batch, tokens, width = x.shape
        heads = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self, vocabulary=8000, width=512, layers=6, is_recomputed=False):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, 8) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.is_recomputed = is_recomputed

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            if self.is_recomputed:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


def train(model, optimizer, is_autocast=False, clip=None):
    for _ in range(STEPS):
        tokens = torch.randint(8000, (4, 257), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=is_autocast):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()


def plain():
    model = Decoder().cuda()
    train(model, torch.optim.AdamW(model.parameters(), foreach=True))


def autocast():
    model = Decoder(is_recomputed=True).cuda()
    train(model, torch.optim.AdamW(model.parameters(), fused=True), is_autocast=True)


def fsdp2():
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("nccl")
    model = Decoder().cuda()
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    train(model, torch.optim.SGD(model.parameters(), momentum=0.9), clip=1.0)
    dist.destroy_process_group()


def convolutions():
    """PyTorch's own kernels; which ones cuDNN takes depends on more than shapes."""
    torch.backends.cudnn.enabled = False
    layers = [nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after),
                            nn.ReLU())
              for before, after in ((3, 32), (32, 64), (64, 128))]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for _ in range(STEPS):
        loss = model(torch.randn(16, 3, 96, 96, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def streams():
    """Requests of many sizes on two streams, some of which outlive others."""
    side = torch.cuda.Stream()
    kept = []
    for number in range(400):
        size = 1 + (number * 7919) % 3_000_017
        with torch.cuda.stream(side if number % 3 == 0 else torch.cuda.current_stream()):
            block = torch.empty(size, dtype=torch.uint8, device="cuda")
        if number % 6 == 0:
            block.record_stream(torch.cuda.current_stream())
        if number % 4:
            kept.append(block)
        if number % 50 == 49:
            torch.cuda.synchronize()
            del kept[::2]
        if number % 150 == 149:
            torch.cuda.empty_cache()


def runs_out():
    """Fills 1 GiB, a part of the GPU that PyTorch itself limits, frees every second block, and asks
    for more than is left in one piece: cached memory is given back, and then memory runs out."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((1 << 30) / total)
    kept = [torch.empty(24 << 20, dtype=torch.uint8, device="cuda") for _ in range(40)]
    del kept[::2]
    kept.append(torch.empty(200 << 20, dtype=torch.uint8, device="cuda"))
    del kept[:5]
    for size in (90, 400, 700):
        try:
            kept.append(torch.empty(size << 20, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))


CASES = (plain, autocast, fsdp2, convolutions, streams, runs_out)

if __name__ == "__main__":
    {case.__name__: case for case in CASES}[sys.argv[1]]()
