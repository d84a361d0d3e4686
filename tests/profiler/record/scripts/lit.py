"""Trains a module with Lightning, as its documentation does, on four GPUs or on one."""

import argparse

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 512


class Block(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(4)])

    def training_step(self, batch, _):
        loss = self.blocks(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("strategy", choices=["ddp", "fsdp", "alone"])
    options = parser.parse_args()
    is_alone = options.strategy == "alone"
    strategy = "auto" if is_alone else "ddp"
    if options.strategy == "fsdp":
        strategy = FSDPStrategy(auto_wrap_policy={Block})
    trainer = Trainer(max_steps=4, devices=1 if is_alone else 4, accelerator="gpu",
                      strategy=strategy, logger=False, precision="bf16-mixed",
                      enable_checkpointing=False)
    data = TensorDataset(torch.randn(1024, WIDTH))
    trainer.fit(Module(), DataLoader(data, batch_size=16))


if __name__ == "__main__":
    main()
