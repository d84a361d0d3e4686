"""Trains a model of blocks on one GPU, with tokens from a DataLoader and a schedule of learning rates."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, WIDTH, TOKENS = 4000, 512, 256


class Tokens(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        tokens = torch.randint(VOCABULARY, (TOKENS + 1,))
        return {"inputs": tokens[:-1], "labels": tokens[1:]}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.grow = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.shrink = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.shrink(nn.functional.gelu(self.grow(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    for batch in DataLoader(Tokens(), batch_size=16):
        optimizer.zero_grad()
        logits = model(batch["inputs"].cuda())
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].cuda().flatten())
        loss.backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
