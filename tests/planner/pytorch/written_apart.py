"""Trains a model of transformers with FSDP2: what running_cases.py holds against the program of
`shardlens plan --engine pytorch`, and written apart from it, model by model.

    written_apart.py CONFIG_FOLDER [recompute] [offload] [hsdp] [fused] [sdpa]
"""

import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

CLASSES = {
    "llama": transformers.LlamaForCausalLM,
    "qwen3": transformers.Qwen3ForCausalLM,
    "mistral": transformers.MistralForCausalLM,
    "gemma2": transformers.Gemma2ForCausalLM,
    "gpt_oss": transformers.GptOssForCausalLM,
    "gpt2": transformers.GPT2LMHeadModel,
    "vit": transformers.ViTForImageClassification,
}
folder, words = sys.argv[1], sys.argv[2:]
dist.init_process_group("nccl")
torch.cuda.set_device(0)
config = transformers.AutoConfig.from_pretrained(folder)
config.use_cache = False
with torch.device("meta"):
    model = CLASSES[config.model_type]._from_config(
        config, attn_implementation="sdpa" if "sdpa" in words else None
    )
model.train()
body = getattr(model, model.base_model_prefix)
layers = body.h if config.model_type == "gpt2" else body.layers


def recomputed(forward):
    return lambda *a, **k: checkpoint(forward, *a, use_reentrant=False, **k)


if "recompute" in words:
    for layer in layers:
        layer.forward = recomputed(layer.forward)
flags = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
if "offload" in words:
    flags["offload_policy"] = CPUOffloadPolicy()
if "hsdp" in words:
    flags["mesh"] = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
for layer in layers:
    fully_shard(layer, **flags)
fully_shard(model, **flags)
model.to_empty(device="cpu" if "offload" in words else "cuda")
if "offload" in words:
    for module in model.modules():
        for key, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, key, buffer.cuda())
with torch.no_grad():
    model.init_weights()
fused = True if "fused" in words else None
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=fused)
for _ in range(3):
    if config.model_type == "vit":
        size = config.image_size
        x = torch.randn(4, config.num_channels, size, size, device="cuda")
        y = torch.randint(0, config.num_labels, (4,), device="cuda")
        loss = model(pixel_values=x, labels=y).loss
    else:
        x = torch.randint(0, config.vocab_size, (4, 512), device="cuda")
        loss = model(input_ids=x, labels=x).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
