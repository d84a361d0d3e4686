"""Lists what is compared with PyTorch on the null device: models, strategies, dtypes, world sizes.

Standard library only.
"""

import dataclasses
import itertools

BATCH = {  # samples a rank
    "vit-tutorial": 64,
    "vit-l16": 64,
    "vit-h14": 1,
    "vit-22b": 1,
    "llama-1b": 1,
    "transformer": 32,
    "vit-b16": 64,
}
WORLD_SIZES = [2, 8, 64, 512]
FP32, BF16, BF16_REDUCED, FP16 = DTYPES = [  # parameters, reduction
    ("fp32", "fp32"),
    ("bf16", "fp32"),
    ("bf16", "bf16"),
    ("fp16", "fp16"),
]
KEEP_RANKS = {8: "4", 64: "8", 512: "8"}  # --reshard-after-forward K, by world size
REPLICAS = {8: 2, 64: 8, 512: 64}  # for hsdp, by world size


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One model on `world` ranks, of which rank 0 runs alone. Its values are those of our flags."""

    model: str
    world: int
    strategy: str = "fsdp"
    replicas: int = 1
    param_dtype: str = "fp32"
    reduce_dtype: str = "fp32"
    reshard_after_forward: str = "true"
    offload: str = "none"

    @property
    def batch(self):
        return BATCH[self.model]

    def _flags(self):
        """Returns the flags that both programs take."""
        flags = {
            "--model": self.model,
            "--strategy": self.strategy,
            "--world": self.world,
            "--batch": self.batch,
            "--param-dtype": self.param_dtype,
        }
        if self.reduce_dtype != "fp32":
            flags["--reduce-dtype"] = self.reduce_dtype
        if self.strategy != "ddp":
            flags["--reshard-after-forward"] = self.reshard_after_forward
        if self.replicas != 1:
            flags["--replicas"] = self.replicas
        if self.offload != "none":
            flags["--offload"] = self.offload
        return flags

    def arguments(self):
        """Returns the flags that our program and fsdp2_null.py have in common."""
        return [str(word) for flag in self._flags().items() for word in flag]

    def __str__(self):
        reshard = "-" if self.strategy == "ddp" else self.reshard_after_forward
        strategy = self.strategy + (f"/{self.replicas}" if self.replicas > 1 else "")
        return (
            f"{self.model:13}{self.world:4}  {strategy:9}{self.param_dtype}+{self.reduce_dtype}  "
            f"{reshard:8}{self.offload:7}"
        )


HEAD = f"{'model':12}{'ranks':>5}  {'strategy':9}{'dtypes':11}{'reshard':8}{'offload':7}"


def _configurations_of(model):
    def rows(worlds, dtypes, **settings):
        for world, (param_dtype, reduce_dtype) in itertools.product(worlds, dtypes):
            changed = {name: f(world) if callable(f) else f for name, f in settings.items()}
            yield Configuration(
                model, world, param_dtype=param_dtype, reduce_dtype=reduce_dtype, **changed
            )

    yield from rows(WORLD_SIZES, [FP32, BF16, BF16_REDUCED])
    yield from rows([8, 512], [FP16])
    yield from rows(WORLD_SIZES, [FP32, BF16], reshard_after_forward="false")
    yield from rows(KEEP_RANKS, [BF16], reshard_after_forward=KEEP_RANKS.get)
    yield from rows(REPLICAS, [FP32, BF16], strategy="hsdp", replicas=REPLICAS.get)
    yield from rows(WORLD_SIZES, [FP32, BF16], offload="all")
    # DDP has whole copies, so the world size only changes a divisor.
    yield from rows([8], DTYPES, strategy="ddp")


CONFIGURATIONS = [row for model in BATCH for row in _configurations_of(model)]
