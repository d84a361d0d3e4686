"""Trains a small model on one GPU. comparison_cases.py edits this text as a user would, and
compares what the versions hold."""

import torch
from torch import nn
from torch.nn import functional

LAYERS, BATCH, WIDTH, CLASSES, STEPS = 8, 2048, 512, 4096, 6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.grow = nn.Linear(WIDTH, 4 * WIDTH)
        self.shrink = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        wide = functional.gelu(self.grow(self.norm(x)))
        return x + self.shrink(wide)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        logits = model(x)
        loss = logits.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


train()
print("peak", torch.cuda.max_memory_allocated())
