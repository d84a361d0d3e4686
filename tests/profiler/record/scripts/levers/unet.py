"""Trains diffusers' UNet to remove noise, as the library's tutorial does. Nothing is downloaded."""

import argparse

import torch
from diffusers import DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 1 << 10

    def __getitem__(self, index):
        return torch.rand(3, self.size, self.size) * 2 - 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    model = UNet2DModel(
        sample_size=options.size, in_channels=3, out_channels=3, layers_per_block=2,
        block_out_channels=(128, 128, 256, 256, 512, 512),
        down_block_types=(*["DownBlock2D"] * 4, "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", *["UpBlock2D"] * 4)).cuda()
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Images(options.size), batch_size=options.batch)
    for _, images in zip(range(options.steps), loader):
        clean = images.cuda()
        noise = torch.randn_like(clean)
        times = torch.randint(1000, (options.batch,), device="cuda")
        noisy = scheduler.add_noise(clean, noise, times)
        predicted = model(noisy, times, return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(predicted, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
