"""Defines the compared models in plain PyTorch, as their users write them.

They are torchvision's vision transformer, a Llama decoder as torchtitan has it, and the small
transformer of "PyTorch FSDP2: A Practical Guide".
"""

import dataclasses
from collections.abc import Callable

import torch
import torchvision
from torch import nn
from torch.nn import functional

import tutorial


@dataclasses.dataclass(frozen=True)
class PeerModel:
    """Says how to make and feed a model, and what FSDP2 may gather together.

    blocks(model) are always groups of their own. tables(model) are what else may be: lists of
    modules, the last list with the head.
    """

    make: Callable[[], nn.Module]
    make_batch: Callable[[nn.Module, int], tuple[torch.Tensor, torch.Tensor]]  # on the GPU
    blocks: Callable[[nn.Module], list[nn.Module]]
    tables: Callable[[nn.Module], list[list[nn.Module]]]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    tie: Callable[[nn.Module], None] = lambda model: None  # after to_empty, which unties


def cross_entropy(logits, targets):
    """Computes functional.cross_entropy(logits.float(), targets) without the copy in fp32."""
    log_probabilities = functional.log_softmax(logits.flatten(0, -2), -1, dtype=torch.float32)
    return functional.nll_loss(log_probabilities, targets.flatten())


def output_sum(outputs, _):
    return outputs.sum(dtype=torch.float32)


def _image_batch(model, batch):
    pixels = (model.image_size, model.image_size)
    images = torch.empty(batch, model.conv_proj.in_channels, *pixels, device="cuda")
    return images, torch.zeros(batch, dtype=torch.long, device="cuda")


def _token_batch(model, batch):
    tokens = torch.zeros(batch, model.seq, dtype=torch.long, device="cuda")
    return tokens, torch.zeros_like(tokens)


def _vit(make):
    return PeerModel(
        make,
        _image_batch,
        blocks=lambda model: list(model.encoder.layers.children()),
        tables=lambda model: [[model.conv_proj], [model.encoder.ln, model.heads]],
        loss=cross_entropy,
    )


def _make_vit_22b():
    """Makes a ViT of the published model's sizes; here the MLP comes after attention."""
    return torchvision.models.VisionTransformer(
        image_size=224, patch_size=14, num_layers=48, num_heads=48, hidden_dim=6144, mlp_dim=24576
    )


@dataclasses.dataclass(frozen=True)
class LlamaSizes:
    """The defaults are Llama 3.2 1B's."""

    layers: int = 16
    width: int = 2048
    heads: int = 32
    kv_heads: int = 8
    mlp_width: int = 8192
    vocab: int = 128256
    seq: int = 2048
    rope_theta: float = 500000.0
    tied: bool = True


def _rotate(tensor, rotation):
    """Rotates [B, T, H, E] in fp32: neighbours in E are real and imaginary parts."""
    pairs = torch.view_as_complex(tensor.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation.unsqueeze(1)).flatten(3).type_as(tensor)


def _rms_norm(sizes):
    return nn.RMSNorm(sizes.width, eps=1e-5)


class LlamaAttention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.head_width = sizes.width // sizes.heads
        kv_width = sizes.kv_heads * self.head_width
        self.wq = nn.Linear(sizes.width, sizes.width, bias=False)
        self.wk = nn.Linear(sizes.width, kv_width, bias=False)
        self.wv = nn.Linear(sizes.width, kv_width, bias=False)
        self.wo = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x, rotation):
        maps = (self.wq, self.wk, self.wv)
        q, k, v = (linear(x).unflatten(-1, (-1, self.head_width)) for linear in maps)
        q, k = _rotate(q, rotation), _rotate(k, rotation)
        if q.dtype == torch.float32:
            # Flash attention, the kernel that takes fewer key heads directly, does not do fp32.
            k, v = (t.repeat_interleave(q.size(2) // k.size(2), dim=2) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.size(1) != k.size(1)
        )
        return self.wo(mixed.transpose(1, 2).flatten(2))


class LlamaBlock(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.attention_norm = _rms_norm(sizes)
        self.attention = LlamaAttention(sizes)
        self.mlp_norm = _rms_norm(sizes)
        self.gate = nn.Linear(sizes.width, sizes.mlp_width, bias=False)
        self.up = nn.Linear(sizes.width, sizes.mlp_width, bias=False)
        self.down = nn.Linear(sizes.mlp_width, sizes.width, bias=False)

    def forward(self, x, rotation):
        x = x + self.attention(self.attention_norm(x), rotation)
        normed = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


LLAMA_8B = LlamaSizes(layers=32, width=4096, mlp_width=14336, tied=False)


class Llama(nn.Module):
    """Maps tokens [B, T] to logits [B, T, V]; the head may share the embedding's matrix."""

    def __init__(self, sizes):
        super().__init__()
        self.seq = sizes.seq
        self.tok_embeddings = nn.Embedding(sizes.vocab, sizes.width)
        self.layers = nn.ModuleList([LlamaBlock(sizes) for _ in range(sizes.layers)])
        self.norm = _rms_norm(sizes)
        self.output = nn.Linear(sizes.width, sizes.vocab, bias=False)
        self.tied = sizes.tied
        self.tie()
        head_width = sizes.width // sizes.heads
        frequencies = sizes.rope_theta ** -(torch.arange(0, head_width, 2).float() / head_width)
        angles = torch.outer(torch.arange(sizes.seq).float(), frequencies)
        rotation = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("rotation", rotation, persistent=False)

    def tie(self):
        if self.tied:
            self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.rotation)
        return self.output(self.norm(x))


class TransformerBlock(nn.Module):
    """The guide's block: its attention is one linear map."""

    def __init__(self, width):
        super().__init__()
        self.attention = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, vocab=10000, width=512, layers=3, seq=512):
        super().__init__()
        self.seq = seq
        self.tok_embeddings = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([TransformerBlock(width) for _ in range(layers)])
        self.output = nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


MODELS = {
    "vit-tutorial": _vit(lambda: tutorial.make_model(0)),
    "vit-b16": _vit(torchvision.models.vit_b_16),
    "vit-l16": _vit(torchvision.models.vit_l_16),
    # torchvision makes its vit_h_14 for 224 px unless told otherwise, as wanted here.
    "vit-h14": _vit(torchvision.models.vit_h_14),
    "vit-22b": _vit(_make_vit_22b),
    "llama-1b": PeerModel(
        lambda: Llama(LlamaSizes()),
        _token_batch,
        blocks=lambda model: list(model.layers),
        # One list: a tied matrix cannot be in two groups.
        tables=lambda model: [[model.tok_embeddings, model.norm, model.output]],
        loss=cross_entropy,
        tie=Llama.tie,
    ),
    "llama-8b": PeerModel(
        lambda: Llama(LLAMA_8B),
        _token_batch,
        blocks=lambda model: list(model.layers),
        tables=lambda model: [[model.tok_embeddings], [model.norm, model.output]],
        loss=cross_entropy,
    ),
    "transformer": PeerModel(
        Transformer,
        _token_batch,
        blocks=lambda model: list(model.layers),
        tables=lambda model: [[model.tok_embeddings], [model.output]],
        loss=output_sum,
    ),
}
