"""The tutorial's model, data and sample order in plain PyTorch, for comparison with Shardlens.

Used by fsdp2_losses.py (recorded losses) and by ../bench/peer.py (step time).
"""

import gzip
import os
import pathlib
import tempfile

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torchvision.models import VisionTransformer

DATA_FOLDER = "/usr/share/datasets/fashion-mnist"


def make_model(seed):
    """Makes the ViT of 1,006,090 parameters, with another conv_proj, as images have 1 channel."""
    torch.manual_seed(seed)
    model = VisionTransformer(
        image_size=28,
        patch_size=7,
        num_layers=10,
        num_heads=2,
        hidden_dim=128,
        mlp_dim=128,
        num_classes=10,
    )
    model.conv_proj = nn.Conv2d(1, 128, kernel_size=7, stride=7)
    return model


def make_mesh(world_size, replicas=1):
    """Makes a mesh of all ranks, or HSDP's with more than one replica: replicas, then shards."""
    if replicas == 1:
        return init_device_mesh("cpu", (world_size,))
    sizes = (replicas, world_size // replicas)
    return init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard"))


def shard(model, mesh, **options):
    """Applies FSDP2: one group a block and one for the rest, gathered again in backward."""
    options = {"mesh": mesh, "reshard_after_forward": True} | options
    for block in model.encoder.layers.children():
        fully_shard(block, **options)
    fully_shard(model, **options)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # Gloo has no averaging reduction: sum, then divide.
            module.set_force_sum_reduction_for_comms(True)
    return model


def _read_idx(folder, name, header_bytes):
    path = pathlib.Path(folder) / name
    packed = path.with_name(name + ".gz")
    raw = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return torch.from_numpy(numpy.frombuffer(raw, numpy.uint8, offset=header_bytes).copy())


def load_training_data(folder=DATA_FOLDER):
    """Returns images [60000, 1, 28, 28] uint8 and labels [60000] int64."""
    images = _read_idx(folder, "train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    return images, _read_idx(folder, "train-labels-idx1-ubyte", 8).long()


def normalize(images):
    return (images.float() / 255 - 0.5) / 0.5


def sample_order(count, seed, epoch, rank, world_size):
    """Returns one rank's samples in an epoch; `count` is a multiple of the world size."""
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    return torch.randperm(count, generator=generator)[rank::world_size]


def _rank_main(rank, world_size, store, threads, function, arguments):
    torch.set_num_threads(threads)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
    )
    try:
        function(rank, world_size, *arguments)
    finally:
        dist.destroy_process_group()


def run_ranks(world_size, threads, function, *arguments):
    """Calls function(rank, world_size, *arguments) in world_size processes over Gloo.

    They meet in a file and talk over the loopback interface, so no port has to be chosen.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            _rank_main,
            (world_size, f"{folder}/store", threads, function, arguments),
            nprocs=world_size,
        )
