"""Fills tensors on the host at random, reads, overwrites, moves and saves them, and prints what it
read: the same whatever `--init` says. Arguments: a seed."""

import copy
import hashlib
import importlib.util
import io
import pickle
import random
import sys

import torch
from torch.nn import init

DRAWN = random.Random(int(sys.argv[1]))
LEAST = (1 << 20) // 2 - 40  # numbers; of 2 bytes each these are not postponed
TYPES = (torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)
TENSORS = []
ON_GPU = []


def digest(tensor):
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:12]


def show(what, value):
    print("read:", what, value, flush=True)


def fill(tensor):
    kind = DRAWN.randrange(6)
    with torch.no_grad():
        if kind == 0:
            tensor.normal_(DRAWN.random(), 0.1 + DRAWN.random())
        elif kind == 1:
            tensor.data.uniform_(-DRAWN.random(), DRAWN.random())
        elif kind == 2:
            init.trunc_normal_(tensor, std=0.02, a=-0.04, b=0.04)
        elif kind == 3:
            init.kaiming_uniform_(tensor, a=5**0.5)
        elif kind == 4:
            init.xavier_normal_(tensor)
        else:
            tensor.normal_(generator=torch.Generator().manual_seed(DRAWN.randrange(99)))


def make():
    rows = DRAWN.randrange(2, 9)
    shape = (rows, (LEAST + DRAWN.randrange(90)) // rows * DRAWN.choice((1, 2)))
    tensor = torch.nn.Parameter(torch.empty(shape, dtype=DRAWN.choice(TYPES)))
    TENSORS.append(tensor)
    fill(tensor)


def read(tensor):
    kind = DRAWN.randrange(9)
    flat = tensor.detach().view(-1)
    if kind == 0:
        show("sum", flat.double().sum().item())
    elif kind == 1:
        show("item", flat[DRAWN.randrange(len(flat))].item())
    elif kind == 2:
        show("list", flat[5:9].tolist())
    elif kind == 3:
        show("bytes", flat.float().numpy()[:7].tobytes().hex())
    elif kind == 4:
        show("copied", digest(copy.deepcopy(tensor).detach()))
    elif kind == 5:
        show("cast", digest(tensor.detach().to(torch.float16)))
    elif kind == 6:
        file = io.BytesIO()
        torch.save(tensor, file)
        file.seek(0)
        show("saved", digest(torch.load(file).detach()))
    elif kind == 7:
        show("pickled", digest(pickle.loads(pickle.dumps(tensor.detach()))))
    else:
        show("product", digest(tensor.detach()[:2] @ tensor.detach()[:2].T))


def write(tensor):
    flat = tensor.detach().view(-1)
    kind = DRAWN.randrange(4)
    if kind == 0:
        flat[3:2000].zero_()
    elif kind == 1:
        flat.mul_(0.5)
    elif kind == 2:
        flat.fill_(DRAWN.random())
    else:
        flat.copy_(torch.arange(len(flat)))


def move(tensor):
    """A part of at most 1 MiB is known on the GPU."""
    ON_GPU[:] = [tensor.detach().cuda()]
    show("on the GPU", tensor.detach().view(-1)[:9].cuda().tolist())


def draw(_):
    kind = DRAWN.randrange(5)
    if kind == 0:
        show("randn", torch.randn(DRAWN.randrange(1, 40)).sum().item())
    elif kind == 1:
        show("randint", torch.randint(1 << 30, (3,)).tolist())
    elif kind == 2:
        show("state", digest(torch.get_rng_state()))
    elif kind == 3:
        torch.manual_seed(DRAWN.randrange(99))
    else:
        show("permutation", torch.randperm(50).tolist())


def fill_in_other_ways():
    """Fills in compiled code, if PyTorch has what its compiler needs, under a transform and in
    inference mode."""

    def added(tensor):
        init.trunc_normal_(tensor.uniform_(), std=0.02)
        return tensor + 1

    if importlib.util.find_spec("filelock"):
        added = torch.compile(added, backend="eager")
    show("compiled", digest(added(torch.zeros(LEAST * 2))))
    each = torch.vmap(lambda one: one.normal_(), randomness="different")
    show("in a transform", digest(each(torch.empty(4, LEAST))))
    with torch.inference_mode():
        show("in inference", torch.empty(LEAST * 2).normal_().sum().item())
    try:
        torch.nn.Parameter(torch.empty(LEAST * 2)).normal_()
    except RuntimeError as error:
        show("refused", str(error))


def main():
    torch.manual_seed(0)
    make()
    for _ in range(70):
        act = DRAWN.choice((make, make, read, write, move, draw, draw, fill))
        if act is make:
            make()
        else:
            act(DRAWN.choice(TENSORS))
        if len(TENSORS) > 6:
            del TENSORS[DRAWN.randrange(6)]
    for tensor in TENSORS:
        show("at the end", digest(tensor.detach()))
    fill_in_other_ways()
    show("state", digest(torch.get_rng_state()))


if __name__ == "__main__":
    main()
