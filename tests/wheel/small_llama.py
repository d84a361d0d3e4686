"""A training script that knows nothing of Shardlens: a small Llama of transformers with FSDP2."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = LlamaConfig(
    vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
    num_attention_heads=16, num_key_value_heads=8, use_cache=False,
)  # fmt: skip
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.zeros(2, 1024, dtype=torch.long, device="cuda")
for _ in range(3):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("3 steps")
dist.destroy_process_group()
