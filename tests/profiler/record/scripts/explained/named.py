"""Programs whose blocks have names and categories that people know; named_cases.py records them.

    named.py deferred [--defer]   FSDP2 with gradient accumulation
    named.py reduced_last         FSDP2, which reduces after the last node of backward
    named.py autocast [--policy]  FSDP2 in low precision
    named.py assigned             frozen weights that came into their modules in four ways
    named.py plain                a loop without an optimizer
    named.py generate             inference without an optimizer
    named.py compiled             two blocks under torch.compile
    named.py walked [--eager]     checkpointed blocks, walked twice under torch.compile
    named.py torch|fsdp2|transformers|accelerate|lightning   tensors of known kinds

The last print {"bytes": [category, name]} as JSON: each tensor has its own size.
"""

import contextlib
import io
import json
import sys

import torch
from torch import nn

WIDTH = 512
KINDS = {}


def kind(tensor, category, name=""):
    """Notes what a tensor is, and returns it."""
    local = getattr(tensor, "_local_tensor", tensor)
    KINDS[local.untyped_storage().nbytes()] = [category, name]
    return tensor


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def peak():
    """Makes the peak of the program while everything is alive, and prints what that is."""
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    print(json.dumps(KINDS))


def join():
    import torch.distributed as dist

    dist.init_process_group("nccl")


def sharded(blocks, **options):
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = nn.Sequential(*[Block() for _ in range(blocks)])
    for block in model:
        fully_shard(block, **options)
    fully_shard(model, **options)
    model.to_empty(device="cuda")
    return model


def deferred(flag):
    join()
    model = sharded(4)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        for i in range(3):
            if flag:
                model.set_requires_gradient_sync(i == 2)
            model(torch.randn(16, WIDTH, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def reduced_last(_):
    """The input needs no gradient, so that FSDP2 meets no node after those of the parameters. It reduces
    in twice the bytes of a gradient, which makes the peak."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    join()
    model = nn.Linear(8192, 8192, bias=False)
    fully_shard(model.cuda(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        loss = model(torch.randn(16, 8192, device="cuda")).float().square().mean()
        loss.backward()  # and reduces
        optimizer.step()
        optimizer.zero_grad()


def autocast(flag):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    join()
    model = sharded(4, **({"mp_policy": MixedPrecisionPolicy(torch.bfloat16)} if flag else {}))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        with contextlib.nullcontext() if flag else torch.autocast("cuda", torch.bfloat16):
            loss = model(torch.randn(16, WIDTH, device="cuda")).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def assigned(_):
    moved = nn.Linear(1024, 1024).cuda().requires_grad_(False)
    with torch.device("cuda"):
        made = nn.Linear(1024, 768).requires_grad_(False)
    with torch.device("meta"):
        loaded, filled = nn.Linear(768, 1024), nn.Linear(1024, 512)
    weights = {"weight": torch.zeros(1024, 768).cuda(), "bias": torch.zeros(1024).cuda()}
    loaded.requires_grad_(False).load_state_dict(weights, assign=True)
    del weights
    filled.weight = nn.Parameter(torch.zeros(512, 1024).to("cuda"), requires_grad=False)
    filled.bias = nn.Parameter(torch.zeros(512).to("cuda"), requires_grad=False)
    head = nn.Linear(512, 10).cuda()
    optimizer = torch.optim.AdamW(head.parameters())
    for _ in range(3):
        x = torch.randn(8, 1024, device="cuda")
        head(filled(loaded(made(moved(x))))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def plain(_):
    model = nn.Sequential(*[Block() for _ in range(3)]).cuda()
    for _ in range(3):
        x = torch.randn(64, WIDTH, device="cuda")
        loss = model(x).pow(2).mean()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad = None


def generate(_):
    with torch.inference_mode():
        model = nn.Sequential(*[Block() for _ in range(3)]).cuda()
        x = torch.randn(2048, WIDTH, device="cuda")
        kept = []
        for _ in range(4):
            kept.append(model(x))


def walked(is_eager):
    """Two checkpointed walks through one stack of blocks."""
    from torch.utils.checkpoint import checkpoint

    blocks = nn.ModuleList(Block() for _ in range(3))

    class Walks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = blocks

        def forward(self, x):
            for block in [*self.blocks, *self.blocks]:
                x = checkpoint(block, x, use_reentrant=False)
            return x.mean()

    model = Walks().cuda()
    step = model if is_eager else torch.compile(model)
    for _ in range(3):
        step(torch.randn(8192, WIDTH, device="cuda", requires_grad=True)).backward()
        model.zero_grad()


def compiled(_):
    model = nn.Sequential(Block(), Block()).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    step = torch.compile(model)
    for _ in range(3):
        step(torch.randn(4096, WIDTH, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


# --- tensors of known kinds -----------------------------------------------------------------------


def in_torch(_):
    model = nn.Sequential(nn.Linear(1024, 515, bias=False), nn.Linear(515, 331, bias=False)).cuda()
    kind(model[0].weight, "parameter_shard", ".weight")
    model.register_buffer("table", torch.zeros(301, 1024).cuda())
    kind(model.table, "parameter_shard", "table")
    frozen = nn.Linear(1024, 303, bias=False, device="meta").requires_grad_(False)
    frozen.load_state_dict({"weight": torch.zeros(303, 1024).cuda()}, assign=True)
    kind(frozen.weight, "parameter_shard", "weight")
    filled = nn.Linear(1024, 305, bias=False, device="meta")
    filled.weight = nn.Parameter(torch.zeros(305, 1024).to("cuda"), requires_grad=False)
    kind(filled.weight, "parameter_shard", "weight")
    swapped = nn.Linear(1024, 307, bias=False).cuda()
    swapped.weight.data = torch.zeros(307, 1024, device="cuda")
    kind(swapped.weight, "parameter_shard", "weight")
    file = io.BytesIO()
    torch.save({"weight": torch.zeros(309, 1024)}, file)
    file.seek(0)
    checkpoint = torch.load(file, map_location="cuda")
    kind(checkpoint["weight"], "checkpoint_staging")
    data = kind(torch.zeros(311, 1024).cuda(), "input")
    optimizer = torch.optim.AdamW(model.parameters())
    flat = torch.zeros(1024 * 515 + 515 * 331, device="cuda")
    model[0].weight.grad = flat[:1024 * 515].view(515, 1024)
    model[1].weight.grad = flat[1024 * 515:].view(331, 515)
    kind(flat, "gradient", "2 parameters")
    for _ in range(3):
        model(torch.randn(16, 1024, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    kind(optimizer.state[model[1].weight]["exp_avg"], "optimizer_state", "exp_avg of ")
    mean = kind(filled.weight.detach().to(torch.float64), "parameter_copy", "weight")
    average = torch.optim.swa_utils.AveragedModel(nn.Linear(1024, 313, bias=False).cuda())
    kind(average.module.weight, "parameter_copy")
    half = filled.weight.to(torch.bfloat16)
    kind(half, "parameter_copy", "weight")
    batch = kind(torch.randn(317, 1024, device="cuda"), "input")
    logits = kind(nn.Linear(1024, 319).cuda()(batch), "activation")
    loss = kind(nn.functional.gelu(torch.nn.functional.pad(batch, (0, 1))), "activation")
    peak()
    return [data, mean, average, half, logits, loss]


def in_fsdp2(_):
    from torch.distributed.fsdp import fully_shard

    join()
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Linear(1024, 1024 + 64 * i, bias=False) for i in range(1)],
                              nn.Linear(1024, 1088, bias=False))
    for layer in model:
        fully_shard(layer, reshard_after_forward=False)
    fully_shard(model)
    model.to_empty(device="cuda")
    kind(model[1].weight, "parameter_shard", ".weight")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(16, 1024, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    kind(optimizer.state[model[1].weight]["exp_avg"], "optimizer_state", "exp_avg of ")
    batch = kind(torch.randn(331, 1024, device="cuda"), "input")
    out = kind(model(batch), "activation")
    whole = 4 * 1024 * 1088
    KINDS[whole] = ["unsharded_parameter", ".weight"]
    peak()
    return [batch, out]


def in_transformers(_):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=1021, hidden_size=256, intermediate_size=520,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4)
    model = LlamaForCausalLM(config).cuda().eval()
    kind(model.lm_head.weight, "parameter_shard", "lm_head.weight")
    kind(model.model.layers[1].mlp.up_proj.weight, "parameter_shard", "mlp.")
    kind(model.model.layers[0].input_layernorm.weight, "parameter_shard", "norm")
    tokens = torch.randint(0, 1000, (3, 601), device="cuda")
    with torch.no_grad():
        out = model(tokens, use_cache=True)
    kind(out.logits, "activation")
    kind(out.past_key_values.layers[1].keys, "activation", "key-value cache")
    peak()
    return [model, tokens, out]


def in_accelerate(_):
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16")
    model = nn.Sequential(nn.Linear(1024, 521, bias=False), nn.Linear(521, 337, bias=False))
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.DataLoader(torch.zeros(64, 1024), batch_size=16)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for batch in data:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    kind(batch, "input")
    kind(accelerator.unwrap_model(model)[1].weight, "parameter_shard", ".weight")
    state = optimizer.optimizer.state[accelerator.unwrap_model(model)[0].weight]
    kind(state["exp_avg_sq"], "optimizer_state", "exp_avg")
    KINDS.pop(4 * 521 * 1024)  # as many bytes as its parameter
    inner = accelerator.unwrap_model(model)
    shadow = [kind(inner[0].weight.detach().to(torch.float16), "parameter_copy", "0.weight")]
    out = kind(model(torch.zeros(43, 1024, device="cuda")), "activation")
    peak()
    return [batch, shadow, out]


def in_lightning(_):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(1024, 523, bias=False)
            self.head = nn.Linear(523, 347, bias=False)
            self.register_buffer("table", torch.zeros(349, 1024))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

        def training_step(self, batch, _):
            self.seen = batch, self.head(self.body(batch))
            return self.seen[1].pow(2).mean()

        def on_train_end(self):
            batch, out = self.seen
            kind(batch, "input")
            kind(out, "activation")
            kind(self.table, "parameter_shard", "table")
            kind(self.body.weight, "parameter_shard", "body.weight")
            kind(self.optimizers().state[self.head.weight]["exp_avg"], "optimizer_state", "head.weight")
            half = kind(self.body.weight.detach().bfloat16(), "parameter_copy", "body.weight")
            peak()
            del half

    data = torch.utils.data.DataLoader(torch.zeros(4 * 353, 1024), batch_size=353)
    lightning.Trainer(accelerator="gpu", devices=1, max_epochs=1, logger=False,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False).fit(Module(), data)


def main():
    name, *flags = sys.argv[1:]
    known = name in ("torch", "fsdp2", "transformers", "accelerate", "lightning")
    globals()[f"in_{name}" if known else name](bool(flags))


if __name__ == "__main__":
    main()
