"""Makes process groups, and prints those that PyTorch itself then knows: the ranks of each, and how
many of these are on this rank's node."""

import json
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("nccl")
world = dist.get_world_size()
init_device_mesh("cuda", (world // 8, 8), mesh_dim_names=("replicate", "shard"))
dist.new_group([0, 1, world - 2, world - 1])
dist.new_group([0, 1])

gpus = int(os.environ["LOCAL_WORLD_SIZE"])
node = dist.get_rank() // gpus
known = []
for group in dist.distributed_c10d._world.pg_map:
    ranks = dist.get_process_group_ranks(group)
    known.append({"ranks": len(ranks), "on_node": sum(rank // gpus == node for rank in ranks)})
print("known", json.dumps(known), flush=True)

dist.new_group([world - 2, world - 1], backend="gloo")  # not NCCL's
torch.ones(1, device="cuda")
