"""Trains as "PyTorch FSDP2: A Practical Guide" does: a model of three blocks that are sharded one
by one, Adam, a loss that is the sum of the outputs; --clip clips, --mixed-precision gathers in bf16."""

import sys

import torch
from torch import nn
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

WIDTH, VOCABULARY = 512, 10000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.grow, self.shrink = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.mix(self.first_norm(x))
        return x + self.shrink(torch.relu(self.grow(self.second_norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def sharded_model(device):
    arguments = {}
    if "--mixed-precision" in sys.argv:
        arguments["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    model = Model().to(device)
    for layer in model.layers:
        fully_shard(layer, **arguments)
    fully_shard(model, **arguments)
    assert isinstance(model, FSDPModule)
    for parameter in model.parameters():
        assert isinstance(parameter, DTensor) and parameter.placements == (Shard(0),)
    return model


def main():
    init_process_group()
    device = torch.device("cuda")
    model = sharded_model(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        tokens = torch.randint(0, VOCABULARY, (32, 512), device=device)
        loss = model(tokens).sum()
        loss.backward()
        if "--clip" in sys.argv:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        if get_rank() == 0:
            print(f"epoch {epoch}, loss {loss.item()}")
    destroy_process_group()


main()
