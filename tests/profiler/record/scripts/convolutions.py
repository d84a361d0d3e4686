"""Trains a small convolutional network with batch norms, as a user would write it, with cuDNN or
without it."""

import argparse

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels))

    def forward(self, x):
        return nn.functional.relu(x + self.layers(x))


def make():
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2), Residual(64),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), Residual(128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cudnn", choices=["on", "off"], required=True)
    options = parser.parse_args()
    torch.backends.cudnn.enabled = options.cudnn == "on"
    model = make().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(16, 3, 64, 64, device="cuda")
    labels = torch.zeros(16, dtype=torch.long, device="cuda")
    for _ in range(3):
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
