"""Gathers the optimizer's whole state with FSDP1, where a rank has the state of some parameters
only, and prints how many parameters and elements it has."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
model = nn.Sequential(*[nn.Linear(64, 64, bias=layer % 2 == 0) for layer in range(4)]).to("cuda")
model = FSDP(model, use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 64, device="cuda")).sum().backward()
optimizer.step()
state = FSDP.optim_state_dict(model, optimizer)["state"]
print("gathered", len(state), sum(one["exp_avg"].numel() for one in state.values()))
dist.destroy_process_group()
