"""Trains blocks with a batch of the size that the flag says. Fails with a larger one than --limit."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--ignored", type=int)
parser.add_argument("--limit", type=int)
parser.add_argument("--steps", type=int, default=3)
options = parser.parse_args()
batch = options.batch
if options.limit and batch > options.limit:
    raise ValueError(f"a batch of {batch} is more than {options.limit}")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.grow, self.shrink = nn.Linear(1024, 4096), nn.Linear(4096, 1024)

    def forward(self, x):
        return x + self.shrink(torch.relu(self.grow(x)))


model = nn.Sequential(*[Block() for _ in range(8)]).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(options.steps):
    model(torch.randn(batch, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
