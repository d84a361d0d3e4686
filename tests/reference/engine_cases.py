"""Lists the cases for `--engine pytorch-fsdp2`: training runs of PyTorch's FSDP2, by settings.

Some are chosen, one for each thing that changes memory; the others are drawn by a seed, so that
nobody has picked what the engine does well. Standard library only.
"""

import dataclasses
import random

import null_configurations
import null_runs

# The cases of this seed were drawn after the engine was frozen.
SEED = 20261124
DRAWN = 30
HOST_BYTES_MAX = 1e9  # for an offload, whose optimizer computes on this machine
DTYPES = [*null_configurations.DTYPES, ("fp16", "fp32")]  # parameters, reduction


@dataclasses.dataclass(frozen=True)
class Case:
    """Values are those of the flags of fsdp2_null.py."""

    model: str
    world: int
    batch: int
    strategy: str = "fsdp"
    replicas: int = 1
    rank: int = 0
    param_dtype: str = "fp32"
    reduce_dtype: str = "fp32"
    reshard_after_forward: str = "true"
    offload: str = "none"
    variant: str = "root"
    loop: str = "foreach"
    clip_norm: float = 0
    zero_grad: str = "after"
    accumulate: int = 1
    sync: str = "every"
    forward_prefetch: int = 0
    backward_prefetch: int = 0
    writing: str = ""

    def arguments(self):
        settings = dataclasses.asdict(self)
        return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]

    def fits_host(self):
        """Returns True if this machine can simulate the pinned memory of an offload."""
        host_bytes = null_runs.PARAMETERS[self.model] / (self.world / self.replicas)
        host_bytes *= null_runs.HOST_BYTES_A_PARAMETER
        return self.offload == "none" or host_bytes <= HOST_BYTES_MAX

    def __str__(self):
        default = Case(self.model, self.world, self.batch)
        changed = [
            f"{name}={value}"
            for name, value in dataclasses.asdict(self).items()
            if value != getattr(default, name)
        ]
        return f"{self.model:13}{self.world:4} x{self.batch:<4}" + " ".join(changed)


def _bf16(**settings):
    return {"param_dtype": "bf16", **settings}


def _fp16(**settings):
    """Comes with a GradScaler."""
    return {"param_dtype": "fp16", **settings}


# A Llama as many people write it by hand.
BY_HAND = "logits=fp32,keep-logits,attention=repeat-kv,norm=fp32"

CHOSEN = [
    Case("vit-tutorial", 8, 64, loop="fused"),
    Case("vit-tutorial", 8, 64, **_bf16(loop="fused")),
    Case("vit-tutorial", 8, 64, reshard_after_forward="false"),
    Case("vit-tutorial", 8, 64, variant="own-groups", loop="single"),
    Case("vit-tutorial", 8, 64, clip_norm=1.0),
    Case("vit-tutorial", 8, 64, **_bf16(zero_grad="before", reduce_dtype="bf16")),
    Case("vit-tutorial", 8, 64, **_bf16(zero_grad="keep")),
    Case("vit-tutorial", 8, 64, **_bf16(reshard_after_forward="4")),
    Case("vit-tutorial", 8, 64, **_bf16(strategy="hsdp", replicas=2)),
    Case("vit-tutorial", 8, 64, **_bf16(offload="all", loop="fused")),
    Case("vit-tutorial", 8, 64, forward_prefetch=2, backward_prefetch=2),
    Case("vit-tutorial", 8, 64, **_bf16(accumulate=2)),
    Case("vit-tutorial", 8, 64, **_bf16(accumulate=3, sync="last")),
    Case("vit-b16", 8, 32, accumulate=2, sync="last"),
    Case("vit-tutorial", 8, 64, **_fp16(loop="fused")),
    Case("vit-tutorial", 8, 64, **_fp16(clip_norm=1.0)),
    Case("vit-tutorial", 8, 64, **_fp16(loop="fused", clip_norm=1.0, reduce_dtype="fp16")),
    Case("vit-tutorial", 8, 64, **_fp16(loop="single", zero_grad="keep", accumulate=2)),
    Case("vit-tutorial", 8, 64, **_fp16(offload="all", loop="fused")),
    Case("vit-tutorial", 8, 64, **_fp16(offload="all", loop="single", reduce_dtype="fp16")),
    Case("vit-tutorial", 1, 64, **_fp16(loop="fused")),
    Case("vit-b16", 8, 32, **_fp16(strategy="hsdp", replicas=2, reduce_dtype="fp16")),
    Case("llama-1b", 8, 1, **_fp16(clip_norm=1.0, writing=BY_HAND)),
    Case("vit-tutorial", 1, 64, **_bf16()),
    Case("vit-tutorial", 6, 32, rank=5),  # its rows do not divide evenly
    Case("vit-b16", 8, 64, **_bf16(variant="own-groups", clip_norm=1.0)),
    Case("vit-l16", 512, 64, **_bf16(loop="fused")),
    Case("vit-l16", 8, 32),
    Case("vit-h14", 64, 8, **_bf16(reshard_after_forward="false", clip_norm=1.0)),
    Case("vit-22b", 64, 1, **_bf16()),
    Case("vit-22b", 512, 1, **_bf16(forward_prefetch=2, backward_prefetch=1)),
    Case("transformer", 8, 32),
    Case("transformer", 64, 8, **_bf16(variant="own-groups", clip_norm=1.0)),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0)),
    Case("llama-1b", 8, 1, variant="own-groups"),
    Case("llama-1b", 64, 2, **_bf16(variant="own-groups", reshard_after_forward="false")),
    Case("llama-8b", 64, 1, **_bf16()),  # the embedding is in the root
    Case("llama-8b", 64, 1, **_bf16(variant="own-groups", clip_norm=1.0)),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0, writing="logits=fp32")),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0, writing="keep-logits")),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0, writing="logits=fp32,keep-logits")),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0, writing="loss=own")),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0, writing="attention=repeat-kv")),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0, writing="norm=fp32")),
    Case("llama-1b", 8, 1, **_bf16(clip_norm=1.0, writing=BY_HAND)),
    Case("llama-1b", 8, 1, writing=BY_HAND),
    Case("llama-1b", 64, 2, **_bf16(variant="own-groups", loop="fused", writing=BY_HAND)),
    Case("llama-1b", 8, 1, **_bf16(accumulate=3, sync="last", writing="keep-logits,loss=own")),
    Case("llama-1b", 8, 1, **_bf16(zero_grad="before", accumulate=2, writing=BY_HAND)),
    Case("llama-8b", 64, 1, **_bf16(variant="own-groups", clip_norm=1.0, writing=BY_HAND)),
    Case("vit-tutorial", 8, 64, **_bf16(writing="keep-logits,loss=own")),
    Case("transformer", 8, 32, writing="keep-logits"),
]

# Compared with PyTorch event by event, too: the plain step, clipping, and a GradScaler with
# gradients whose rows do not divide evenly.
BY_EVENT = [
    CHOSEN[0],
    Case("vit-tutorial", 8, 64, clip_norm=1.0),
    Case("vit-tutorial", 6, 64, **_fp16(loop="fused", clip_norm=1.0)),
]

BATCHES = {
    "vit-tutorial": (1, 256),
    "vit-b16": (1, 128),
    "vit-l16": (1, 64),
    "vit-h14": (1, 16),
    "vit-22b": (1, 2),
    "transformer": (1, 48),
    "llama-1b": (1, 4),
    "llama-8b": (1, 2),
}


def _draw(random_numbers):
    draw = random_numbers.choice
    model = draw(list(BATCHES))
    world = draw([64, 512] if model in ("vit-22b", "llama-8b") else [1, 2, 4, 8, 24, 64, 512])
    param_dtype, reduce_dtype = draw(DTYPES)
    replicas = draw([1, 1, 2]) if world % 2 == 0 else 1
    keep = draw([ranks for ranks in (2, 4, 8) if world / replicas > ranks] or ["true"])
    offload = draw(["none"] * 5 + ["all"])
    return Case(
        model,
        world,
        random_numbers.randint(*BATCHES[model]),
        strategy="hsdp" if replicas > 1 else "fsdp",
        replicas=replicas,
        rank=draw([0, 0, world // 2]),
        param_dtype=param_dtype,
        reduce_dtype=reduce_dtype,
        reshard_after_forward=draw(["true", "true", "false", str(keep)]),
        offload=offload,
        variant=draw(["root", "own-groups"]),
        loop=draw(["foreach", "foreach", "fused", "single"]),
        clip_norm=draw([0, 1.0]) if offload == "none" else 0,
        zero_grad=draw(["after", "before", "keep"]),
        accumulate=draw([1, 1, 2, 3]),
        sync=draw(["every", "last"]),
        forward_prefetch=draw([0, 0, 1, 2]),
        backward_prefetch=draw([0, 0, 1, 2]),
    )


def is_possible(case):
    """Returns True if FSDP2 itself takes these settings, and this machine can simulate them."""
    shards = case.world // case.replicas
    ranks = case.reshard_after_forward
    divides = not ranks.isdigit() or shards % int(ranks) == 0
    return divides and case.fits_host()


def drawn(seed, count):
    """Draws `count` cases that are possible, whether or not they fit a GPU."""
    random_numbers = random.Random(seed)
    cases = []
    while len(cases) < count:
        case = _draw(random_numbers)
        if is_possible(case) and case not in cases:
            cases.append(case)
    return cases
