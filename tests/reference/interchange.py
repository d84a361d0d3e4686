"""Tests both directions between PyTorch and `shardlens checkpoint`, with PyTorch itself.

    interchange.py write FOLDER        saves states as programs do: DCP of two FSDP2 ranks as in the
                                       Ray Train FSDP2 tutorial, DCP of a plain model, .pt files.
                                       tests/fixtures/interchange was made so, plain/.metadata by
                                       Python 3.11.2, which pickles enums otherwise than 3.11.7.
    interchange.py check-dcp DIR CHECKPOINT --world-size N
                                       dcp.load of DIR into the tutorial's model and Adam, sharded
                                       over N ranks: equal to the safetensors files of CHECKPOINT
    interchange.py check-reader CHECKPOINT
                                       DCP's HuggingFaceStorageReader reads CHECKPOINT
    interchange.py check-model FILE.pt FILE.safetensors
                                       loads into torchvision's VisionTransformer; prints logits of
                                       the first test images
    interchange.py save-tutorial FOLDER --world-size N
                                       trains the tutorial's model for two steps of FSDP2 and saves
                                       it with DCP; prints the losses of two more

Needs torch, torchvision and safetensors (.setup/peers).
"""

import argparse
import json
import pathlib
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import tutorial
from safetensors import safe_open
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

BATCH = 8


class AppState(Stateful):
    """Model and optimizer under one key, as the tutorial saves them."""

    def __init__(self, model, optimizer, epoch=None):
        self.model, self.optimizer, self.epoch = model, optimizer, epoch

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer, "epoch": self.epoch}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optim"],
        )
        self.epoch = state["epoch"]


# --- fixtures ------------------------------------------------------------------------------------


def small_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))


def step(model, optimizer, inputs):
    optimizer.zero_grad()
    model(inputs).square().sum().backward()
    optimizer.step()


def plain(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def expected(model, optimizer):
    """Everything that was saved, in full, as JSON."""
    weights, state = get_state_dict(model, optimizer)
    tensors = {name: plain(weight) for name, weight in weights.items()}
    for name, moments in state["state"].items():
        for moment, value in moments.items():
            tensors[f"{name}.{moment}"] = plain(value)
    return {name: tensor.float().flatten().tolist() for name, tensor in tensors.items()}


def save_small(rank, world_size, folder):
    model = small_model()
    mesh = tutorial.make_mesh(world_size)
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        step(model, optimizer, torch.ones(4, 3))
    dcp.save({"app": AppState(model, optimizer, 3)}, checkpoint_id=f"{folder}/fsdp2")
    values = expected(model, optimizer)
    if rank == 0:
        (pathlib.Path(folder) / "fsdp2.json").write_text(json.dumps(values))


def write_fixtures(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("fsdp2", "plain"):
        shutil.rmtree(folder / kind, ignore_errors=True)
    tutorial.run_ranks(2, 1, save_small, str(folder))
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step(model, optimizer, torch.ones(4, 3))
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder / "plain")
    torch.save(model.state_dict(), folder / "state_dict.pt")
    torch.save(
        {"epoch": 7, "model_state_dict": model.state_dict(), "optimizer": optimizer.state_dict()},
        folder / "nested.pt",
    )
    odd = {
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "view": torch.arange(10.0)[4:8],
        "half": torch.tensor([1.0, -2.5, 6e-8, 65504.0], dtype=torch.float16),
        "brain": torch.tensor([1.0, -3.0], dtype=torch.bfloat16),
        "double": torch.tensor([[0.1]], dtype=torch.float64),
        "parameter": nn.Parameter(torch.tensor([4.0])),
        "count": torch.tensor(5),
    }
    torch.save(odd, folder / "odd.pt")
    values = {name: plain(tensor).flatten().tolist() for name, tensor in model.state_dict().items()}
    (folder / "plain.json").write_text(json.dumps(values))


# --- checks --------------------------------------------------------------------------------------


def tensors_in(checkpoint):
    tensors = {}
    for path in pathlib.Path(checkpoint).glob("*.safetensors"):
        with safe_open(path, framework="pt") as opened:
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}
    return tensors


def sharded_tutorial(world_size):
    model = tutorial.shard(tutorial.make_model(5), tutorial.make_mesh(world_size))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def check_dcp(rank, world_size, options):
    model, optimizer = sharded_tutorial(world_size)
    app = AppState(model, optimizer)
    dcp.load({"app": app}, checkpoint_id=options.dcp)
    wanted = tensors_in(options.checkpoint)
    weights, state = get_state_dict(model, optimizer)
    found = {name: plain(weight) for name, weight in weights.items()}
    steps = set()
    for name, moments in state["state"].items():
        steps.add(moments.pop("step").item())
        found |= {f"{name}.{moment}": plain(value) for moment, value in moments.items()}
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
    step_count = json.loads((pathlib.Path(options.checkpoint) / "state.json").read_text())["step"]
    assert steps == {step_count}, steps
    if rank == 0:
        print(f"equal: {len(wanted)} tensors at step {step_count}, epoch {app.epoch}", flush=True)


def check_reader(options):
    """Loads into tensors of the shapes, as the documentation of HuggingFaceStorageReader does."""
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    wanted = tensors_in(options.checkpoint)
    state = {name: torch.full_like(tensor, -1.0) for name, tensor in wanted.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(options.checkpoint))
    for name, tensor in wanted.items():
        assert torch.equal(state[name], tensor), name
    print(f"equal: {len(wanted)} tensors")


def test_images(count):
    images = tutorial._read_idx(tutorial.DATA_FOLDER, "t10k-images-idx3-ubyte", 16)
    return tutorial.normalize(images.reshape(-1, 1, 28, 28)[:count])


def check_model(options):
    model = tutorial.make_model(3)
    model.load_state_dict(torch.load(options.pt, map_location="cpu", weights_only=True))
    other = tutorial.make_model(4)
    other.load_state_dict(tensors_in(pathlib.Path(options.safetensors).parent))
    with torch.no_grad():
        logits = model.eval()(test_images(options.count))
        assert torch.equal(logits, other.eval()(test_images(options.count)))
    print(json.dumps(logits.tolist()))


def save_tutorial(rank, world_size, options):
    model, optimizer = sharded_tutorial(world_size)
    images, labels = tutorial.load_training_data()
    order = tutorial.sample_order(len(images), 0, 0, rank, world_size)
    losses = []
    for index in range(4):
        if index == 2:
            dcp.save({"app": AppState(model, optimizer, 0)}, checkpoint_id=options.folder)
        batch = order[index * BATCH : (index + 1) * BATCH]
        loss = nn.functional.cross_entropy(model(tutorial.normalize(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / world_size)
    if rank == 0:
        print(json.dumps(losses[2:]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("write").add_argument("folder")
    verb = verbs.add_parser("check-dcp")
    verb.add_argument("dcp")
    verb.add_argument("checkpoint")
    verb.add_argument("--world-size", type=int, default=2)
    verbs.add_parser("check-reader").add_argument("checkpoint")
    verb = verbs.add_parser("check-model")
    verb.add_argument("pt")
    verb.add_argument("safetensors")
    verb.add_argument("--count", type=int, default=4)
    verb = verbs.add_parser("save-tutorial")
    verb.add_argument("folder")
    verb.add_argument("--world-size", type=int, default=2)
    options = parser.parse_args()
    if options.verb == "write":
        write_fixtures(options.folder)
    elif options.verb == "check-dcp":
        tutorial.run_ranks(options.world_size, 1, check_dcp, options)
    elif options.verb == "check-reader":
        check_reader(options)
    elif options.verb == "check-model":
        check_model(options)
    else:
        tutorial.run_ranks(options.world_size, 1, save_tutorial, options)


if __name__ == "__main__":
    main()
