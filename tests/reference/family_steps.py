"""Records what PyTorch computes with a small model of each family, for tests/runtime to compare.

    .setup/peers && .deps/peers/bin/python tests/reference/family_steps.py

writes tests/fixtures/family_steps.json, by model:
  start      of every start weight after the seed: sum, sum of squares, first element
  loss       of one batch with those weights, changed by `strengthen`
  gradients  of every weight: norm, and dot product with cos(0), cos(1), ... in its own order

The decoder is written out here from its definition (scores, mask and softmax in full), so that only
single operations are shared with the tested code. Batches follow from formulas, not from a
generator. All values are float32, sums float64.
"""

import json
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional

SEED = 5
FIXTURE = pathlib.Path(__file__).parent.parent / "fixtures" / "family_steps.json"


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def inverse_frequencies(sizes):
    """Returns rotary frequencies, those of Llama 3.1 if there is a factor."""
    width = sizes["width"] // sizes["heads"]
    frequencies = 1.0 / (sizes["rope_theta"] ** (torch.arange(0, width, 2).float() / width))
    factor, low, high, first_seq = sizes["rope_factor"], 1.0, 4.0, 8192
    if factor == 1:
        return frequencies
    result = []
    for frequency in frequencies.tolist():
        wave_length = 2 * math.pi / frequency
        if wave_length < first_seq / high:
            result.append(frequency)
        elif wave_length > first_seq / low:
            result.append(frequency / factor)
        else:
            smooth = (first_seq / wave_length - low) / (high - low)
            result.append((1 - smooth) * frequency / factor + smooth * frequency)
    return torch.tensor(result)


def turn(x, angles):
    """Rotates x [B, H, T, E]; elements i and i + E / 2 are one complex number."""
    turned = torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)
    both = torch.cat((angles, angles), -1)
    return x * both.cos() + turned * both.sin()


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        width = sizes["width"]
        kv_width = width // sizes["heads"] * sizes["kv_heads"]
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_width, bias=False)
        self.v_proj = nn.Linear(width, kv_width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, seq, width = x.shape
        heads = self.sizes["heads"]
        head_width = width // heads

        def split(values):
            return values.view(batch, seq, -1, head_width).transpose(1, 2)

        angles = torch.outer(torch.arange(seq).float(), inverse_frequencies(self.sizes))
        q = turn(split(self.q_proj(x)), angles)
        k = turn(split(self.k_proj(x)), angles)
        v = split(self.v_proj(x))
        group = heads // self.sizes["kv_heads"]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = q @ k.transpose(2, 3) / math.sqrt(head_width)
        mask = torch.full((seq, seq), float("-inf")).triu(1)
        mixed = torch.softmax(scores + mask, -1) @ v
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, seq, width))


class GatedMlp(nn.Module):
    def __init__(self, width, mlp_width):
        super().__init__()
        self.gate_proj = nn.Linear(width, mlp_width, bias=False)
        self.up_proj = nn.Linear(width, mlp_width, bias=False)
        self.down_proj = nn.Linear(mlp_width, width, bias=False)

    def forward(self, x):
        gate = self.gate_proj(x)
        return self.down_proj(gate * torch.sigmoid(gate) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.self_attn = Attention(sizes)
        self.mlp = GatedMlp(sizes["width"], sizes["mlp_width"])
        self.input_layernorm = RmsNorm(sizes["width"])
        self.post_attention_layernorm = RmsNorm(sizes["width"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes["vocab"], sizes["width"])
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes["layers"]))
        self.norm = RmsNorm(sizes["width"])


class Llama(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.model = Decoder(sizes)
        self.lm_head = nn.Linear(sizes["width"], sizes["vocab"], bias=False)
        if sizes["tied"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        torch.manual_seed(SEED)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "norm" not in name:
                    parameter.normal_(0, 0.02)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


class Block(nn.Module):
    """Is a block of the simplified transformer, with a linear layer instead of attention."""

    def __init__(self, width):
        super().__init__()
        self.attention = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        torch.manual_seed(SEED)
        self.tok_embeddings = nn.Embedding(sizes["vocab"], sizes["width"])
        self.layers = nn.ModuleList(Block(sizes["width"]) for _ in range(sizes["layers"]))
        self.output = nn.Linear(sizes["width"], sizes["vocab"])

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


class Mlp(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        torch.manual_seed(SEED)
        ends = [sizes["inputs"]] + [sizes["width"]] * sizes["layers"] + [sizes["classes"]]
        for i in range(len(ends) - 1):
            self.add_module(f"layer{i + 1}", nn.Linear(ends[i], ends[i + 1]))

    def forward(self, x):
        *hidden, last = self.children()
        for layer in hidden:
            x = torch.relu(layer(x))
        return last(x)


def ids(batch, seq, factor, vocab):
    return (torch.arange(batch * seq) * factor % vocab).view(batch, seq)


def token_loss(model, sizes):
    tokens = ids(3, sizes["seq"], 37, sizes["vocab"])
    targets = ids(3, sizes["seq"], 53, sizes["vocab"])
    return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def sum_loss(model, sizes):
    return model(ids(3, sizes["seq"], 37, sizes["vocab"])).sum()


def class_loss(model, sizes):
    features = torch.sin(torch.arange(6.0 * sizes["inputs"])).view(6, -1)
    return functional.cross_entropy(model(features), torch.arange(6) % sizes["classes"])


def strengthen(parameter):
    """Enlarges weights: those of 0.02 hardly attend, and norms of ones hide a missing factor."""
    factor = 8.0 if parameter.dim() > 1 else 1.0
    waves = torch.sin(torch.arange(parameter.numel())).view(parameter.shape)
    return parameter * factor + 0.1 * waves


def sums(tensor):
    values = tensor.double()
    return [values.sum().item(), values.pow(2).sum().item(), values.flatten()[0].item()]


def projections(gradient):
    values = gradient.double().flatten()
    return [values.norm().item(), values.dot(torch.cos(torch.arange(values.numel()).double())).item()]


def record(model, loss_of, sizes):
    start = {name: sums(parameter.detach()) for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(strengthen(parameter))
    loss = loss_of(model, sizes)
    loss.backward()
    gradients = {name: projections(p.grad) for name, p in model.named_parameters()}
    return {"start": start, "loss": loss.item(), "gradients": gradients}


def main():
    torch.set_num_threads(1)
    llama = {"family": "llama", "layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "seq": 24}
    llama |= {"mlp_width": 96, "vocab": 101, "rope_theta": 500000, "rope_factor": 8, "tied": True}
    plain = llama | {"rope_theta": 10000, "rope_factor": 1, "tied": False}
    transformer = {"family": "transformer", "layers": 2, "width": 32, "vocab": 50, "seq": 10}
    mlp = {"family": "mlp", "inputs": 40, "width": 24, "layers": 2, "classes": 5}
    models = {
        "llama-tied": (Llama, token_loss, llama),
        "llama": (Llama, token_loss, plain),
        "transformer": (Transformer, sum_loss, transformer),
        "mlp": (Mlp, class_loss, mlp),
    }
    recorded = {
        name: {"sizes": sizes} | record(kind(sizes), loss_of, sizes)
        for name, (kind, loss_of, sizes) in models.items()
    }
    FIXTURE.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
