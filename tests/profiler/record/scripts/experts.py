"""Sends tokens to experts that are spread over all ranks, as programs do: by counts (torchtitan), by a
map (Megatron), and by a mask of each expert (Mixtral). Prints what each way finds.

    experts.py TOKENS K EXPERTS
"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

TOKENS, K, EXPERTS = map(int, sys.argv[1:])
WIDTH = 64


def by_counts(indices):
    return torch.histc(indices.flatten(), bins=EXPERTS, min=0, max=EXPERTS)


def by_map(scores, indices):
    return torch.zeros_like(scores).int().scatter(1, indices, 1).bool().sum(0)


def by_masks(indices):
    mask = nn.functional.one_hot(indices, EXPERTS).permute(2, 1, 0)
    hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero().flatten().tolist()
    counts = [0] * EXPERTS
    for expert in hit:
        counts[expert] = len(torch.where(mask[expert])[1])
    return counts


def exchange(x, indices, counts, group):
    """Returns how many tokens this rank's experts get, and the rows of the buffer for them."""
    ranks = group.size()
    sorted_tokens = x[indices.flatten().argsort(stable=True) // K]
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts, group=group)
    sent_to = counts.view(ranks, -1).sum(1).tolist()
    got_from = received.view(ranks, -1).sum(1).tolist()
    tokens = x.new_empty(sum(got_from), WIDTH)
    dist.all_to_all_single(tokens, sorted_tokens, got_from, sent_to, group=group)
    gathered = [torch.empty_like(counts) for _ in range(ranks)]
    dist.all_gather(gathered, counts, group=group)
    own = EXPERTS // ranks * group.rank()
    of_map = torch.stack(gathered)[:, own:own + EXPERTS // ranks].sum().item()
    return {"received": received.view(ranks, -1).sum(0).tolist(), "rows": len(tokens),
            "gathered": of_map}


def main():
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("ep",))
    router = nn.Linear(WIDTH, EXPERTS, device="cuda")
    x = torch.randn(TOKENS, WIDTH, device="cuda")
    scores = router(x).softmax(-1)
    indices = torch.topk(scores, K, dim=-1).indices
    counts = by_counts(indices)
    found = exchange(x, indices, counts, mesh.get_group())
    found |= {"counts": counts.tolist(), "map": by_map(scores, indices).tolist(),
              "masks": by_masks(indices), "sorted": indices.flatten().sort().values.tolist()[-1]}
    print("found", json.dumps(found), flush=True)


main()
