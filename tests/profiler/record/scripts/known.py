"""Runs small programs, drawn by seed, on the GPU and on the CPU, and compares what the host reads
from both: values, shapes that follow from values, and decisions. Prints "equal" with their number.

usage: known.py PROGRAMS SEED, or known.py collectives|masks|checks"""

import math
import random
import sys

import torch
from torch import distributed as dist

MAKERS = (
    lambda device, n: torch.arange(n, device=device),
    lambda device, n: torch.ones(n, dtype=torch.long, device=device),
    lambda device, n: torch.zeros(n, dtype=torch.bool, device=device),
    lambda device, n: torch.full((n,), 3, device=device),
    lambda device, n: torch.tensor(range(n, 0, -1)).to(device),
    lambda device, n: torch.linspace(-1, 1, n, device=device),
)
STEPS = (
    lambda a, b, k: a + b,
    lambda a, b, k: a * (b > k),
    lambda a, b, k: a == b,
    lambda a, b, k: torch.where(a > k, a, b),
    lambda a, b, k: a.flip(0),
    lambda a, b, k: a.cumsum(0),
    lambda a, b, k: a.masked_fill(b > k, 1),
    lambda a, b, k: torch.cat([a, b.to(a.dtype)])[:: k + 1],
    lambda a, b, k: a.roll(k),
    lambda a, b, k: a.long().clamp(min=0) % (k + 1),
    lambda a, b, k: a.unsqueeze(0).expand(2, -1).reshape(-1),
    lambda a, b, k: a.index_select(0, b.long().clamp(0, a.numel() - 1)),
    lambda a, b, k: a.sort(stable=True).values,
    lambda a, b, k: a.float().mean().expand(a.numel()),
    lambda a, b, k: a.long().clamp(1, 2).prod().expand(a.numel()),  # PyTorch compiles it by itself
    lambda a, b, k: a[(a > k).nonzero().flatten()],
    lambda a, b, k: a[a.bool()],
    lambda a, b, k: a.unique(),
    lambda a, b, k: a.long().clamp(0, 9).bincount(),
    lambda a, b, k: set_part(a, b, k),
    lambda a, b, k: a.to(torch.float16).to(a.dtype),
    lambda a, b, k: (a.float().outer(b.float()) @ b.float()).round(),
    lambda a, b, k: a.logical_or(b.bool()),
    lambda a, b, k: torch.stack([a, b.to(a.dtype)]).max(0).values,
)


def set_part(a, b, k):
    changed = a.clone()
    changed[k:] = b.to(a.dtype)[k:]
    return changed.add_(1) if changed.dtype != torch.bool else changed


def run(seed, device):
    """Returns what a program reads: it takes the same steps wherever its values are the same."""
    draw = random.Random(seed)
    values = [draw.choice(MAKERS)(device, 8) for _ in range(3)]
    read = []
    for _ in range(12):
        step, k = draw.choice(STEPS), draw.randrange(4)
        a, b = draw.choice(values), draw.choice(values)
        size = min(a.numel(), b.numel())
        if size == 0:
            continue
        made = step(a[:size], b[:size], k)
        if bool((made.long() > k).any()):  # decides
            values.append(made.flatten()[:8])
        # A sum's last bits depend on how its elements are laid out.
        read.append((tuple(made.shape), str(made.dtype), made.float().cpu().mul(1e4).round().tolist()))
    return read


def compare(programs, seed):
    for number in range(seed, seed + programs):
        on_gpu, on_cpu = run(number, "cuda"), run(number, "cpu")
        if on_gpu != on_cpu:
            sys.exit(f"program {number}: {on_gpu}\nis not\n{on_cpu}")
    print(f"equal: {programs} programs from seed {seed}")


def collectives():
    """Prints the results of collectives among 4 ranks that all have the values of this one."""
    dist.init_process_group("nccl")
    size, rank = dist.get_world_size(), dist.get_rank()
    mine = torch.arange(4, device="cuda") + 1
    total, most, gathered = mine.clone(), mine.clone(), mine.new_zeros(4 * size)
    dist.all_reduce(total)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    dist.all_gather_into_tensor(gathered, mine)
    listed = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(listed, mine)
    shard, exchanged = mine.new_zeros(1), torch.empty_like(mine)
    dist.reduce_scatter_tensor(shard, mine)
    dist.all_to_all_single(exchanged, mine)
    parts = list(torch.empty_like(mine).chunk(size))
    dist.all_to_all(parts, list(mine.chunk(size)))
    dist.broadcast(mine, src=(rank + 1) % size)
    print(total.tolist(), most.tolist(), gathered.tolist() == mine.tolist() * size,
          [one.tolist() for one in listed] == [mine.tolist()] * size, shard.tolist(),
          exchanged.tolist(), mine.tolist(), [part.item() for part in parts])


def masks():
    """Finds where each row ends, if it does, as generation asks about the tokens that it has drawn,
    and takes means of no numbers."""
    print("nothing", torch.empty(0, device="cuda").mean().item())
    ends = torch.full((4,), 7, device="cuda")
    is_end = torch.rand(4, 8, device="cuda") > 0.5
    ends[is_end.any(1)] = is_end.int().argmax(1)[is_end.any(1)]
    print("ends", ends.tolist())
    drawn = torch.randn(8, device="cuda")
    asked = [torch.isnan(drawn), torch.isinf(drawn), torch.isfinite(drawn), torch.isneginf(drawn)]
    print("finite", [bool(one.any()) for one in asked], drawn[~asked[0]].shape[0])
    read = torch.tensor([1, float("nan"), float("inf")], device="cuda")
    large = torch.randn(1 << 21, device="cuda")
    answers = torch.isfinite(large)
    said = [bool(answers.all()), bool(torch.isnan(large).any()), answers.view(2, -1).all(1).tolist()]
    answers[0] = False
    print("large", said, bool(answers.all()))
    print("listed", torch.tensor([[drawn.norm(), drawn.sum()]]).shape)  # each is asked for its length
    print("few", math.isfinite(drawn[drawn > 9].mean().item()))
    print("told", torch.isnan(read).tolist(), torch.isfinite(read).tolist())


def check(answer):
    """Raises if told to: the caller's test decides by another function's answer."""
    if answer:
        return 1
    raise ValueError("an answer is not as it should be")


def checks():
    """Checks drawn values in several ways, all of which pass."""
    drawn = torch.rand(4, device="cuda")
    if not (drawn >= 0).all():
        raise ValueError("drawn below zero")
    if (drawn > 1).any() or not (
            drawn == drawn).all():
        raise ValueError("drawn above one")
    if torch.allclose(drawn, drawn.flip(0).flip(0)) and drawn.equal(drawn + 0):
        pass
    else:
        raise ValueError("two copies differ")
    assert (drawn < 2).all() and not (drawn > 2).any(), "drawn above two"
    torch.testing.assert_close(drawn, drawn.flip(0).flip(0))
    passed = sum(map(check, [(drawn >= 0).all()]))
    print("passed", passed, "taken" if (drawn > 0.5).any() else "not taken")


def main():
    torch.ones(1, device="cuda").item()
    if sys.argv[1] in ("collectives", "masks", "checks"):
        globals()[sys.argv[1]]()
    else:
        compare(int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
