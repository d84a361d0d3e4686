"""The training function of the Ray Train FSDP2 tutorial without Ray: its Vision Transformer of
1,006,090 parameters, block by block on a device mesh, in bf16 or with the parameters on the host;
images from a DataLoader with workers, checkpoints through torch.distributed.checkpoint."""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EncoderBlock(nn.Module):
    def __init__(self, width=128, heads=2):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        y = self.ln_1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.ln_2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width=128, layers=10, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(1, width, kernel_size=7, stride=7)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.layers = nn.Sequential(*[EncoderBlock() for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


def shard(model, options):
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("data_parallel",))
    arguments = {"mesh": mesh, "reshard_after_forward": True}
    if options.offload:
        arguments["offload_policy"] = CPUOffloadPolicy()
    if options.bf16:
        arguments["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)
    for block in model.layers:
        fully_shard(block, **arguments)
    fully_shard(model, **arguments)


def loader_of(batch):
    images = torch.rand(4 * batch * dist.get_world_size(), 1, 28, 28)
    data = TensorDataset(images, torch.zeros(len(images), dtype=torch.long))
    return DataLoader(data, batch_size=batch, sampler=DistributedSampler(data), num_workers=2)


def save(model, optimizer):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


def train(options):
    torch.cuda.set_device(0)
    device = torch.device("cuda")
    model = VisionTransformer()
    if not options.offload:
        model.to(device)
    shard(model, options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        running_loss, batches = 0.0, 0
        for images, labels in loader_of(options.batch):
            loss = criterion(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            batches += 1
        print(f"epoch {epoch}: loss {running_loss / batches:.3f}")
        if options.save:
            save(model, optimizer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    dist.init_process_group()
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
