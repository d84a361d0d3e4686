"""Programs that take more memory than they need to, each with the change that advice names:

    wasteful.py NAME [--changed]
"""

import argparse
import contextlib
import io

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, VOCABULARY = 1024, 12, 33333
parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--changed", action="store_true")
options = parser.parse_args()
CHANGED = options.changed


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def blocks(device="cuda"):
    with torch.device(device):
        return nn.Sequential(*[Block() for _ in range(LAYERS)])


def sharded(model, each=True, **how):
    for block in model if each else ():
        fully_shard(block, **how)
    return fully_shard(model, **how)


def train(model, tokens=64, steps=3, context=contextlib.nullcontext, loss_of=None):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(steps):
        with context():
            loss = (loss_of or model)(torch.randn(tokens, WIDTH, device="cuda")).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluation_without_no_grad():
    model = blocks()
    train(model, tokens=256)
    model.eval()
    with torch.no_grad() if CHANGED else contextlib.nullcontext():
        total = sum(model(torch.randn(1024, WIDTH, device="cuda")).mean() for _ in range(16))
    model.train()
    total = total.item()
    train(model, tokens=256)


def growth():
    model, kept = blocks(), []
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(8):
        loss = model(torch.randn(1024, WIDTH, device="cuda")).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        metric = model(torch.randn(1024, WIDTH, device="cuda")).mean()
        kept.append(metric.detach() if CHANGED else metric)


def kept_from_last_step():
    model = nn.Linear(WIDTH, 32 * WIDTH, device="cuda")
    optimizer, last = torch.optim.SGD(model.parameters()), None
    for _ in range(4):
        outputs = model(torch.randn(2048, WIDTH, device="cuda"))
        outputs.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        last = None if CHANGED else outputs
    del last


def loaded_checkpoint():
    """The checkpoint stays in a variable, as scripts without functions keep it."""
    model = blocks()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location="cpu" if CHANGED else "cuda")
    model.load_state_dict(state)
    train(model)
    print(len(state))


def unused_gradients():
    """A copy of the model is compared with it, and is never trained."""
    model, teacher = blocks(), blocks()
    teacher.requires_grad_(not CHANGED)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        inputs = torch.randn(64, WIDTH, device="cuda")
        (model(inputs) - teacher(inputs)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def deferred_reduction():
    dist.init_process_group("nccl")
    model = sharded(blocks())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        for micro in range(4):
            if not CHANGED:
                model.set_requires_gradient_sync(micro == 3)
            model(torch.randn(64, WIDTH, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def autocast_in_fsdp():
    dist.init_process_group("nccl")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = blocks("meta")
    sharded(model, **({"mp_policy": policy} if CHANGED else {})).to_empty(device="cuda")
    low = contextlib.nullcontext if CHANGED else lambda: torch.autocast("cuda", torch.bfloat16)
    train(model, context=low)


def shared_graph_pool():
    model = blocks().requires_grad_(False)
    pool = torch.cuda.graph_pool_handle() if CHANGED else None
    model(torch.randn(4096, WIDTH, device="cuda"))
    kept = []
    for tokens in (8192, 6144, 4096, 2048):
        x, graph = torch.randn(tokens, WIDTH, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            kept.append((graph, x, model(x).sum()))


def fewer_graphed_callables():
    model = blocks()
    for tokens in (4096,) if CHANGED else (4096, 3072, 3000, 2048, 1024):
        x = torch.randn(tokens, WIDTH, device="cuda", requires_grad=True)
        torch.cuda.make_graphed_callables(nn.Sequential(*model), (x,))


def pinned_rounding():
    torch.zeros(1, device="cuda")
    kept = [torch.empty(300 << 20, dtype=torch.uint8, pin_memory=True) for _ in range(4)]
    train(nn.Linear(WIDTH, WIDTH, device="cuda"))
    del kept


def meta_init():
    dist.init_process_group("nccl")
    model = sharded(blocks("meta" if CHANGED else "cuda"))
    train(model.to_empty(device="cuda") if CHANGED else model)


def fsdp_units():
    dist.init_process_group("nccl")
    train(sharded(blocks("meta"), each=CHANGED).to_empty(device="cuda"))


def reshard_after_forward():
    dist.init_process_group("nccl")
    train(sharded(blocks("meta"), reshard_after_forward=CHANGED).to_empty(device="cuda"))


def shard_over_ranks():
    dist.init_process_group("nccl")
    if CHANGED:
        train(sharded(blocks("meta")).to_empty(device="cuda"))
    else:
        train(nn.parallel.DistributedDataParallel(blocks(), gradient_as_bucket_view=True))


def bucket_view():
    dist.init_process_group("nccl")
    train(nn.parallel.DistributedDataParallel(blocks(), gradient_as_bucket_view=CHANGED))


def offload_state():
    dist.init_process_group("nccl")
    how = {"offload_policy": CPUOffloadPolicy()} if CHANGED else {}
    train(sharded(blocks("meta"), **how).to_empty(device="cpu" if CHANGED else "cuda"))


def step_in_backward():
    model = blocks()
    if not CHANGED:
        return train(model)
    made = {p: torch.optim.AdamW([p], fused=True) for p in model.parameters()}

    def step(parameter):
        made[parameter].step()
        made[parameter].zero_grad()

    for parameter in made:
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(torch.randn(64, WIDTH, device="cuda")).mean().backward()
    return None


class Attention(nn.Module):
    """Attention by hand: its scores grow with the square of the sequence."""

    def __init__(self, heads=8):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        if CHANGED:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = F.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1) @ v
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def fused_attention():
    with torch.device("cuda"):
        model = nn.Sequential(*[Attention() for _ in range(LAYERS)])
    train(model, tokens=2048, loss_of=lambda x: model(x.view(2, 1024, WIDTH)))


def recompute():
    model = blocks()

    def loss_of(x):
        for block in model:
            x = checkpoint(block, x, use_reentrant=False) if CHANGED else block(x)
        return x

    train(model, tokens=16384, loss_of=loss_of)


def chunked_loss():
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), Block()).cuda()
    head = nn.Linear(WIDTH, VOCABULARY, bias=False, device="cuda")
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()])
    for _ in range(3):
        tokens = torch.randint(VOCABULARY, (8192,), device="cuda")
        hidden = model(tokens)
        if CHANGED:
            loss = sum(checkpoint(lambda h, t: F.cross_entropy(head(h), t, reduction="sum"), h, t,
                                  use_reentrant=False)
                       for h, t in zip(hidden.chunk(16), tokens.chunk(16)))
        else:
            loss = F.cross_entropy(head(hidden), tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def other_streams():
    model, side = blocks(), torch.cuda.Stream()

    def loss_of(x):
        staged = None
        if CHANGED:
            staged = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
            staged.record_stream(side)
        with torch.cuda.stream(side):
            if not CHANGED:
                staged = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
            staged.zero_()
        side.synchronize()
        del staged
        whole = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        del whole
        return model(x)

    train(model, loss_of=loss_of)


globals()[options.name]()
if dist.is_initialized():
    dist.destroy_process_group()
