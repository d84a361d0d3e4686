"""A program whose own hooks say in which module PyTorch's counter of allocated bytes was highest;
named_cases.py compares that with the recording.

    modules.py SEED plain|checkpoint|inference|fsdp2|ddp

The sizes of the model are drawn. It prints {"module": its name, or its class for the model itself, or
null outside of all modules} for the last time that the counter reached a new height.
"""

import json
import os
import random
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

SEED, KIND = int(sys.argv[1]), sys.argv[2]


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.gate = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return self.down(torch.sigmoid(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width, inner)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self, width, inners):
        super().__init__()
        self.embed = nn.Linear(64, width)
        self.layers = nn.ModuleList(Block(width, inner) for inner in inners)
        self.head = nn.Linear(width, 16)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if KIND == "checkpoint" else layer(x)
        return self.head(x)


class Watch:
    """Knows the modules that run, the outermost first, and the highest count so far."""

    def __init__(self, model):
        self.running, self.most, self.where = [], 0, None
        for name, module in model.named_modules():
            shown = name or type(module).__name__
            module.register_forward_pre_hook(self.entering(shown))
            module.register_forward_hook(self.leaving(shown), always_call=True)
            module.register_full_backward_pre_hook(self.entering(shown))
            module.register_full_backward_hook(self.leaving(shown))

    def look(self):
        now = torch.cuda.max_memory_allocated()
        if now > self.most:
            self.most, self.where = now, self.running[-1] if self.running else None

    def entering(self, name):
        def enter(*_):
            self.look()
            self.running.append(name)

        return enter

    def leaving(self, name):
        def leave(*_):
            self.look()
            if name in self.running:
                del self.running[len(self.running) - 1 - self.running[::-1].index(name):]

        return leave


def sharded(model):
    if KIND == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if KIND == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    return model


def main():
    if KIND in ("fsdp2", "ddp"):
        dist.init_process_group("nccl", world_size=int(os.environ["WORLD_SIZE"]),
                                rank=int(os.environ["RANK"]))
    draw = random.Random(SEED)
    width = draw.choice([64, 96, 128])
    inners = [width * draw.randint(2, 9) for _ in range(draw.randint(2, 5))]
    model = Model(width, inners).cuda()
    watch = Watch(model)
    trained = sharded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = 1024 * draw.randint(4, 16)
    for _ in range(3):
        data = torch.randn(batch, 64, device="cuda")
        with torch.set_grad_enabled(KIND != "inference"):
            loss = trained(data).pow(2).mean()
        if KIND == "inference":
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.running.clear()
    watch.look()
    print(json.dumps({"module": watch.where}))


if __name__ == "__main__":
    main()
