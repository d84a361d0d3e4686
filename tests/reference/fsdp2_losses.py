"""Records what PyTorch FSDP2 does with the tutorial's model, for tests/runtime to compare with.

    .setup/peers && .deps/peers/bin/python tests/reference/fsdp2_losses.py

writes tests/fixtures/fsdp2_losses.json:
  losses          of the first steps, each the mean over the two ranks
  init_sums       of every start weight: sum, sum of squares, first element (in float64)
  gradient_norms  of every weight at steps 0 and 1, of one process with both ranks' samples. At
                  step 0 only the head's are not zero, because torchvision starts it at zero.
"""

import argparse
import json
import pathlib

import torch
import torch.distributed as dist
from torch import nn

import tutorial

SEED = 0
WORLD_SIZE = 2
BATCH = 64  # samples a rank
LEARNING_RATE = 1e-3
FIXTURE = pathlib.Path(__file__).parent.parent / "fixtures" / "fsdp2_losses.json"


def train(rank, world_size, data_folder, steps, output):
    """Rank 0 writes the losses of all ranks to `output`."""
    model = tutorial.shard(tutorial.make_model(SEED), world_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    images, labels = tutorial.load_training_data(data_folder)
    order = tutorial.sample_order(len(images), SEED, 0, rank, world_size)
    losses = []
    for step in range(steps):
        batch = order[step * BATCH : (step + 1) * BATCH]
        loss = nn.functional.cross_entropy(model(tutorial.normalize(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / world_size)
    if rank == 0:
        pathlib.Path(output).write_text(json.dumps(losses))


def init_sums(model):
    sums = {}
    for name, weight in model.named_parameters():
        values = weight.detach().double().flatten()
        sums[name] = [values.sum().item(), values.square().sum().item(), values[0].item()]
    return sums


def gradient_norms(model, data_folder):
    """Plain training on the global batches: rank 0's samples, then rank 1's."""
    images, labels = tutorial.load_training_data(data_folder)
    orders = [
        tutorial.sample_order(len(images), SEED, 0, rank, WORLD_SIZE) for rank in range(WORLD_SIZE)
    ]
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    norms = {name: [] for name, _ in model.named_parameters()}
    for step in range(2):
        batch = torch.cat([order[step * BATCH : (step + 1) * BATCH] for order in orders])
        loss = nn.functional.cross_entropy(model(tutorial.normalize(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        for name, weight in model.named_parameters():
            norms[name].append(weight.grad.double().norm().item())
        optimizer.step()
    return norms


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--data", default=tutorial.DATA_FOLDER, help="folder of the IDX files")
    parser.add_argument("--output", type=pathlib.Path, default=FIXTURE)
    options = parser.parse_args()

    options.output.parent.mkdir(parents=True, exist_ok=True)
    tutorial.run_ranks(WORLD_SIZE, 1, train, options.data, options.steps, str(options.output))
    losses = json.loads(options.output.read_text())

    torch.set_num_threads(1)
    model = tutorial.make_model(SEED)
    starts = init_sums(model)
    record = {
        "torch": torch.__version__.split("+")[0],
        "world_size": WORLD_SIZE,
        "batch": BATCH,
        "seed": SEED,
        "learning_rate": LEARNING_RATE,
        "losses": losses,
        "init_sums": starts,
        "gradient_norms": gradient_norms(model, options.data),
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{options.output}: {len(losses)} losses, {losses[0]:.6f} to {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
