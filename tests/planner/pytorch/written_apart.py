"""Trains a model with FSDP2: what running_cases.py holds against the program of `shardlens plan
--engine pytorch`, and written apart from it, model by model and word by word.

    written_apart.py CONFIG_FOLDER|torchvision:NAME|timm:NAME [WORD|NAME=VALUE...]
"""

import contextlib
import functools
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

what, words = sys.argv[1], set(sys.argv[2:])
values = dict(word.split("=") for word in words if "=" in word)
batch, tokens = int(values.get("batch", 4)), int(values.get("seq", 512))
passes = int(values.get("accumulate", 3 if "accumulate" in words else 1))
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())


def from_transformers():
    import transformers

    classes = {
        "llama": transformers.LlamaForCausalLM,
        "qwen3": transformers.Qwen3ForCausalLM,
        "qwen3_moe": transformers.Qwen3MoeForCausalLM,
        "phi3": transformers.Phi3ForCausalLM,
        "deepseek_v3": transformers.DeepseekV3ForCausalLM,
        "mistral": transformers.MistralForCausalLM,
        "gemma2": transformers.Gemma2ForCausalLM,
        "gpt_oss": transformers.GptOssForCausalLM,
        "gpt2": transformers.GPT2LMHeadModel,
        "vit": transformers.ViTForImageClassification,
    }
    config = transformers.AutoConfig.from_pretrained(what)
    config.use_cache = False
    how = "sdpa" if "sdpa" in words else "eager" if "eager" in words else None
    untied = transformers.initialization.no_tie_weights() if "tp" in words else contextlib.nullcontext()
    with torch.device("meta"), untied:
        model = classes[config.model_type]._from_config(config, attn_implementation=how)
    body = getattr(model, model.base_model_prefix)
    return model, list(body.h if config.model_type == "gpt2" else body.layers), config


def from_images(library, name):
    torch.manual_seed(0)
    if library == "torchvision":
        import torchvision

        model = getattr(torchvision.models, name)()
        if name.startswith("vit"):
            return model, list(model.encoder.layers), None
        return model, [b for i in range(1, 5) for b in getattr(model, f"layer{i}")], None
    import timm

    model = timm.create_model(name)
    return model, list(model.blocks), None


library, _, name = what.partition(":")
is_image_model = library in ("torchvision", "timm")
model, layers, config = from_images(library, name) if is_image_model else from_transformers()
model.train()
if "recompute" in words:
    for layer in layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)

dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
low = dtypes["fp16" if "fp16" in words else "fp32" if "fp32" in words else "bf16"]
reshard = False if "kept" in words else int(values.get("nodes", 4 if "nodes" in words else 0)) or True
flags = {"mp_policy": MixedPrecisionPolicy(low, dtypes[values.get("reduce", "fp32")])}
if "offload" in words:
    flags["offload_policy"] = CPUOffloadPolicy()
if "hsdp" in words:
    grid = 2, dist.get_world_size() // 2
    flags["mesh"] = init_device_mesh("cuda", grid, mesh_dim_names=("replicate", "shard"))
if "tp" in words:
    from transformers.distributed import DistributedConfig

    # The way in which transformers splits a model that it loads.
    class Meshes:
        grid = init_device_mesh("cuda", (1, 4, 2), mesh_dim_names=("pp", "fsdp", "tp"))

        def get_mesh(self, names):
            return self.grid["tp" if names == "ep" else names]

    parts = {"ep_size": 2, "ep_implementation": "all_reduce"} if config.model_type == "gpt_oss" else {}
    model = model.maybe_distribute_model(model, DistributedConfig(tp_size=2, **parts), Meshes())
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    flags["mesh"] = Meshes.grid["fsdp"]
is_replicated = "ddp" in words or "single" in words
if "nf4" in words:
    import bitsandbytes as bnb

    for layer in layers:
        for path, linear in list(layer.named_modules()):
            if type(linear) is torch.nn.Linear:
                weight = torch.randn(*linear.weight.shape, dtype=torch.bfloat16, device="cuda") * 0.02
                with torch.device("meta"):
                    four = bnb.nn.LinearNF4(linear.in_features, linear.out_features, bias=False,
                                            compute_dtype=torch.bfloat16, quant_storage=low)
                four.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4",
                                                quant_storage=low, module=four).cuda()
                layer.set_submodule(path, four)
                del weight
if "lora" in words:
    import peft

    model = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))

place = "cpu" if "offload" in words else "cuda"
if not is_replicated:
    for layer in [] if "root" in words else layers:
        fully_shard(layer, reshard_after_forward=reshard, **flags)
    if "ends" in words:  # embedding and head are groups of their own, or, if tied, one
        ends = [model.get_input_embeddings(), getattr(model, "classifier", model.get_output_embeddings())]
        for group in [ends] if getattr(config, "tie_word_embeddings", False) else ends:
            fully_shard(group, reshard_after_forward=reshard, **flags)
    fully_shard(model, **flags)
    ahead, behind = map(int, values.get("prefetch", "0,0").split(","))
    for i, layer in enumerate(layers):
        if ahead:
            layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + ahead])
        if behind:
            layer.set_modules_to_backward_prefetch(list(reversed(layers[max(i - behind, 0) : i])))
if is_image_model:
    model.to(place)
elif "nf4" in words:
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                if tensor is not None and tensor.is_meta:
                    empty = torch.empty_like(tensor, device="cuda")
                    is_weight = table is module._parameters
                    grad = tensor.requires_grad
                    table[key] = torch.nn.Parameter(empty, requires_grad=grad) if is_weight else empty
else:
    for module in model.modules():  # from the outermost in; a tied weight gets memory once
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(tensor.is_meta for tensor in own):
            module.to_empty(device=place, recurse=False)
    if "offload" in words:
        for module in model.modules():
            for key, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, key, buffer.cuda())
    if "lora" not in words:
        with torch.no_grad():
            model.init_weights()
if "ddp" in words:
    model = DDP(model, device_ids=[0])

kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
kind = next((kinds[word] for word in kinds if word in words), torch.optim.AdamW)
learning = [weight for weight in model.parameters() if weight.requires_grad]
fused = True if "fused" in words else None
foreach = False if "loop" in words else None
optimizer = kind(learning, lr=1e-4, weight_decay=0.0, fused=fused, foreach=foreach)
scaler = torch.amp.GradScaler("cuda") if "fp16" in words else None


def loss():
    if not is_image_model and config.model_type != "vit":
        x = torch.randint(0, config.vocab_size, (batch, tokens), device="cuda")
        return model(input_ids=x, labels=x).loss
    size, classes = (224, 1000) if config is None else (config.image_size, config.num_labels)
    channels = 3 if config is None else config.num_channels
    x = torch.randn(batch, channels, size, size, device="cuda")
    y = torch.randint(0, classes, (batch,), device="cuda")
    if config is not None:
        return model(pixel_values=x, labels=y).loss
    return F.cross_entropy(model(x), y)


def backward(last):
    global value  # the last loss stays until there is a new one
    if "last" in words and not is_replicated:
        model.set_requires_gradient_sync(last)
    waits = "last" in words and "ddp" in words and not last
    with model.no_sync() if waits else contextlib.nullcontext():
        with torch.autocast("cuda", low) if is_replicated else contextlib.nullcontext():
            value = loss()
        if passes > 1:
            value = value / passes
        (scaler.scale(value) if scaler else value).backward()


for _ in range(3):
    if values.get("zero") == "before":
        optimizer.zero_grad()
    for left in reversed(range(passes)):
        if passes > 1 and not is_replicated:
            model.set_is_last_backward(left == 0)
        backward(left == 0)
    if "clip" in words:
        if scaler:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    if values.get("zero") != "before":
        optimizer.zero_grad(set_to_none=values.get("zero") != "keep")
dist.destroy_process_group()
