"""Records what PyTorch FSDP2 does with the tutorial's model, for tests/runtime to compare with.

    .setup/peers && .deps/peers/bin/python tests/reference/fsdp2_losses.py [--strategies]

writes tests/fixtures/fsdp2_losses.json:
  losses          of the first steps, each the mean over the two ranks
  init_sums       of every start weight: sum, sum of squares, first element (in float64)
  gradient_norms  of every weight at steps 0 and 1, of one process with both ranks' samples. At
                  step 0 only the head's are not zero, because torchvision starts it at zero.

With --strategies it writes tests/fixtures/fsdp2_strategies.json instead: by the name of a setting
(training_settings.py) how it differs from plain FSDP2 on two ranks, and of each of 20 steps
  losses      the mean over ranks and microbatches
  grad_norms  of all gradients together, unscaled, before they are clipped; null where fp16
              overflowed and the step was skipped
  scales      of the loss, in fp16: after the step

Samples and start weights are the same everywhere: a step of a rank takes its next microbatches.
"""

import argparse
import json
import math
import pathlib

import torch
import torch.distributed as dist
from torch import nn

import training_settings
import tutorial
from training_settings import PLAIN

SEED = 0
WORLD_SIZE = 2
BATCH = 64  # samples a rank
LEARNING_RATE = 1e-3
STRATEGY_STEPS = 20
FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"


class Run:
    """Trains one rank under a setting."""

    def __init__(self, setting, rank, data_folder):
        self.setting = setting
        self.model = training_settings.make_parallel(setting, tutorial.make_model(SEED))
        self.optimizer = training_settings.make_optimizer(setting, self.model, LEARNING_RATE)
        self.scaler = training_settings.make_scaler(setting)
        self.images, self.labels = tutorial.load_training_data(data_folder)
        self.order = tutorial.sample_order(len(self.images), SEED, 0, rank, setting.world_size)

    def step(self, number):
        """Returns loss, gradient norm and loss scale; all ranks have the same."""
        losses = [self._microbatch(number, index) for index in range(self.setting.accumulate)]
        self.scaler.unscale_(self.optimizer)
        norm = training_settings.clip(self.setting, self.model)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        mean = torch.stack(losses).double().mean()
        dist.all_reduce(mean)
        return mean.item() / self.setting.world_size, norm, self.scaler.get_scale()

    def _microbatch(self, step, index):
        first = (step * self.setting.accumulate + index) * BATCH
        batch = self.order[first : first + BATCH]
        is_last = index == self.setting.accumulate - 1
        with training_settings.gradient_sync(self.setting, self.model, is_last):
            logits = self.model(tutorial.normalize(self.images[batch]))
            loss = nn.functional.cross_entropy(logits.float(), self.labels[batch])
            self.scaler.scale(loss / self.setting.accumulate).backward()
        return loss.detach()


def train(rank, _, setting, data_folder, steps, output):
    """Trains; rank 0 writes the losses of all ranks, the norms and the scales to `output`."""
    run = Run(setting, rank, data_folder)
    losses, norms, scales = zip(*(run.step(number) for number in range(steps)))
    record = {"losses": losses}
    record["grad_norms"] = [norm if math.isfinite(norm) else None for norm in norms]
    if run.scaler.is_enabled():
        record["scales"] = scales
    if rank == 0:
        pathlib.Path(output).write_text(json.dumps(record))


def recorded_run(setting, options, steps):
    tutorial.run_ranks(
        setting.world_size, 1, train, setting, options.data, steps, str(options.output)
    )
    return json.loads(options.output.read_text())


def init_sums(model):
    sums = {}
    for name, weight in model.named_parameters():
        values = weight.detach().double().flatten()
        sums[name] = [values.sum().item(), values.square().sum().item(), values[0].item()]
    return sums


def gradient_norms(model, data_folder):
    """Trains plainly on the global batches: rank 0's samples, then rank 1's."""
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


def head():
    return {
        "torch": torch.__version__.split("+")[0],
        "world_size": WORLD_SIZE,
        "batch": BATCH,
        "seed": SEED,
        "learning_rate": LEARNING_RATE,
    }


def record_plain(options):
    losses = recorded_run(PLAIN, options, options.steps or 50)["losses"]
    torch.set_num_threads(1)
    model = tutorial.make_model(SEED)
    starts = init_sums(model)
    record = head() | {
        "losses": losses,
        "init_sums": starts,
        "gradient_norms": gradient_norms(model, options.data),
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{options.output}: {len(losses)} losses, {losses[0]:.6f} to {losses[-1]:.6f}")


def record_strategies(options):
    lines = []
    for name, setting in training_settings.SETTINGS.items():
        record = recorded_run(setting, options, options.steps or STRATEGY_STEPS)
        record = {"settings": training_settings.differences(setting)} | record
        lines.append(f" {json.dumps(name)}: {json.dumps(record)}")
        losses = record["losses"]
        print(f"{name:18} {losses[0]:.6f} to {losses[-1]:.6f}", flush=True)
    fields = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head().items()]
    options.output.write_text("{\n" + ",\n".join(fields + lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategies", action="store_true", help="all settings, not only plain")
    parser.add_argument("--steps", type=int, help="default: 50, or 20 with --strategies")
    parser.add_argument("--data", default=tutorial.DATA_FOLDER, help="folder of the IDX files")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    name = "fsdp2_strategies.json" if options.strategies else "fsdp2_losses.json"
    options.output = options.output or FIXTURES / name
    options.output.parent.mkdir(parents=True, exist_ok=True)
    (record_strategies if options.strategies else record_plain)(options)


if __name__ == "__main__":
    main()
