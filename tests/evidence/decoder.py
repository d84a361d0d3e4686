"""A decoder of 24 layers whose attention is written out, as in published training programs: for
docs/evidence.md.

    shardlens record --device null:h100 -- python tests/evidence/decoder.py CONTEXT fp32|bf16
"""

import sys

import torch
from torch import nn
from torch.nn import functional

CONTEXT, AUTOCAST = int(sys.argv[1]), sys.argv[2] == "bf16"
LAYERS, WIDTH, HEADS, WORDS, BATCH, STEPS = 24, 1024, 16, 10000, 4, 6


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.projections = nn.ModuleList(linear(WIDTH, WIDTH) for _ in range(3))
        self.output = linear(WIDTH, WIDTH)
        self.gate, self.up = linear(WIDTH, 4 * WIDTH), linear(WIDTH, 4 * WIDTH)
        self.down = linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        batch, words, _ = x.shape
        heads = [p(x).view(batch, words, HEADS, -1).transpose(1, 2) for p in self.projections]
        scores = heads[0] @ heads[1].transpose(-1, -2) / 8
        mask = torch.ones(words, words, dtype=torch.bool, device=x.device).tril()
        weights = torch.softmax(torch.where(mask, scores, float("-inf")), -1)
        return self.output((weights @ heads[2]).transpose(1, 2).reshape(batch, words, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.before_attention(x))
        y = self.before_mlp(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


with torch.device("cuda"):
    model = nn.Sequential(
        nn.Embedding(WORDS, WIDTH), *[Block() for _ in range(LAYERS)], linear(WIDTH, WORDS)
    )
    samples = torch.randint(0, WORDS, (BATCH, CONTEXT))
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(STEPS):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=AUTOCAST):
        loss = functional.cross_entropy(model(samples).view(-1, WORDS), samples.view(-1))
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
