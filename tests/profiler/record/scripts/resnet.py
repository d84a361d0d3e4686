"""Trains torchvision's ResNet-50 in bfloat16, channels last, as a user would write it."""

import torch
import torchvision


def main():
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.zeros(64, dtype=torch.long, device="cuda")
    for _ in range(3):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("peak", torch.cuda.max_memory_allocated(), "reserved", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
