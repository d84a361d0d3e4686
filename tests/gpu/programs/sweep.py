"""Trains many programs for a few steps, one after another, and measures them:

    sweep.py [--few] [--seconds S]

Prints a line of JSON a case: the peaks that PyTorch counts, from torch.cuda.reset_peak_memory_stats()
and an emptied cache on; the median, least and most of a step by the host's clock, in milliseconds;
or the error, such as out of memory. Cases that S seconds leave no time for are missing."""

import argparse
import gc
import json
import time
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WORDS, WARM_UP, TIMED, MOST_TIMED_S = 10000, 2, 5, 2.0
# width, layers, heads, width of the MLP
SIZES = {
    "small": (768, 12, 12, 3072),
    "medium": (1024, 24, 16, 4096),
    "large": (1280, 36, 20, 5120),
    "xl": (1600, 48, 25, 6400),
    "2.7b": (2560, 32, 32, 10240),
}


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Block(nn.Module):
    """A decoder's block whose attention is written out, or is PyTorch's own."""

    def __init__(self, width, heads, inner, is_fused):
        super().__init__()
        self.heads, self.is_fused = heads, is_fused
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v = (linear(width, width) for _ in range(3))
        self.output = linear(width, width)
        self.gate, self.up = linear(width, inner), linear(width, inner)
        self.down = linear(inner, width)

    def attend(self, x):
        q, k, v = (
            p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        if self.is_fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).tril()
            mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.output(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.before_attention(x))
        y = self.before_mlp(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, size, is_fused, recomputes):
        super().__init__()
        width, layers, heads, inner = SIZES[size]
        self.recomputes = recomputes
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner, is_fused) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), linear(width, WORDS)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)
        return self.head(self.norm(x))


def decoder(size, batch, context, is_fused=False, recomputes=False):
    with torch.device("cuda"):
        model = Decoder(size, is_fused, recomputes)
    words = torch.randint(WORDS, (batch, context), device="cuda")
    return model, lambda: functional.cross_entropy(model(words).flatten(0, 1), words.flatten())


def transformers_model(config_name, batch, context, **settings):
    import transformers  # pylint: disable=import-outside-toplevel

    config = getattr(transformers, config_name)(use_cache=False, **settings)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config).float()
    words = torch.randint(config.vocab_size, (batch, context), device="cuda")
    return model, lambda: model(input_ids=words, labels=words).loss


def vision(name, batch):
    import torchvision  # pylint: disable=import-outside-toplevel

    with torch.device("cuda"):
        model = getattr(torchvision.models, name)()
    images = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(1000, (batch,), device="cuda")
    return model, lambda: functional.cross_entropy(model(images), labels)


def step_of(make, kind, dtype, optimizer, is_compiled):
    """Returns a function that does one step of this kind."""
    model, loss_of = make()
    if is_compiled:
        model.compile()
    how = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single": {"foreach": False}}
    steps = None
    if kind == "train":
        steps = torch.optim.AdamW(model.parameters(), **how[optimizer])

    def step():
        with torch.set_grad_enabled(kind != "forward"):
            with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bf16"):
                loss = loss_of()
            if kind != "forward":
                loss.backward()
            if steps is None:
                model.zero_grad(set_to_none=True)
                return
            steps.step()
            steps.zero_grad(set_to_none=True)

    return step


def take(case):
    step = step_of(**case)
    times, start = [], time.perf_counter()
    for number in range(WARM_UP + TIMED):
        torch.cuda.synchronize()
        before = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if number >= WARM_UP:
            times.append((time.perf_counter() - before) * 1e3)
        if times and time.perf_counter() - start > MOST_TIMED_S:
            break
    times.sort()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "median_ms": times[len(times) // 2],
        "least_ms": times[0],
        "most_ms": times[-1],
        "steps": len(times),
    }


def measured(case):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    row = {"before_bytes": torch.cuda.memory_allocated()}
    try:
        return row | take(case)
    except torch.OutOfMemoryError as error:
        return row | {
            "error": str(error).split(" If reserved but unallocated")[0][:400],
            "allocated_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        }
    except Exception as error:  # pylint: disable=broad-except
        return row | {"error": f"{type(error).__name__}: {error}"[:200]}


def case(make, kind="train", dtype="bf16", optimizer="foreach", is_compiled=False):
    return {"make": make, "kind": kind, "dtype": dtype, "optimizer": optimizer,
            "is_compiled": is_compiled}


def decoders():
    for size, context, dtype in (
        (size, context, dtype)
        for context in (128, 512, 1024, 256)
        for size in SIZES
        for dtype in ("bf16", "fp32")
    ):
        if dtype == "fp32" and size in ("xl", "2.7b") and context > 256:
            continue
        yield f"decoder {size} b4 t{context} {dtype} train", case(
            partial(decoder, size, 4, context), dtype=dtype)
    for kind in ("forward", "backward"):
        for size in ("small", "medium", "xl"):
            yield f"decoder {size} b4 t512 bf16 {kind}", case(partial(decoder, size, 4, 512), kind)
    for batch in (1, 2, 8, 16, 32, 64):
        yield f"decoder medium b{batch} t512 bf16 train", case(
            partial(decoder, "medium", batch, 512))
    for batch in (4, 16, 64):
        yield f"decoder medium b{batch} t1024 fused attention bf16 train", case(
            partial(decoder, "medium", batch, 1024, True))
        yield f"decoder medium b{batch} t1024 recomputed bf16 train", case(
            partial(decoder, "medium", batch, 1024, True, True))
    for optimizer in ("fused", "single"):
        yield f"decoder medium b4 t512 bf16 train {optimizer}", case(
            partial(decoder, "medium", 4, 512), optimizer=optimizer)


def others():
    llama = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
             "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256}
    for batch, context in ((1, 2048), (4, 1024), (8, 2048)):
        yield f"transformers llama-1b b{batch} t{context} bf16 train", case(
            partial(transformers_model, "LlamaConfig", batch, context, **llama))
    for batch in (8, 32):
        yield f"transformers gpt2 b{batch} t1024 bf16 train", case(
            partial(transformers_model, "GPT2Config", batch, 1024))
    for name, batch, dtype in (("resnet50", 64, "bf16"), ("resnet50", 256, "bf16"),
                               ("resnet50", 64, "fp32"), ("vit_b_16", 64, "bf16"),
                               ("vit_l_16", 32, "bf16"), ("convnext_tiny", 64, "bf16")):
        yield f"torchvision {name} b{batch} {dtype} train", case(
            partial(vision, name, batch), dtype=dtype)


def compiled():
    yield "decoder medium b4 t512 bf16 train compiled", case(
        partial(decoder, "medium", 4, 512), is_compiled=True)
    yield "decoder medium b16 t1024 fused attention bf16 train compiled", case(
        partial(decoder, "medium", 16, 1024, True), is_compiled=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--seconds", type=float, default=150)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    cases = [*decoders(), *others(), *compiled()]
    for name, one in cases[:2] if options.few else cases:
        if time.monotonic() > end:
            return
        print(json.dumps({"case": name, **measured(one)}), flush=True)


if __name__ == "__main__":
    main()
