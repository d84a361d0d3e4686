"""A program that knows the parts of its own steps; named_cases.py compares them with the recorded
ones. It prints [[part, milliseconds], ...] in the order in which they begin, as JSON: two ordinary
steps, an evaluation, a step of an optimizer that fails and is tried again, one whose optimizer calls
forward and backward itself, and a file that is saved.
"""

import contextlib
import json
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PARTS = []


@contextlib.contextmanager
def part(name):
    entry = [name, 0.0]
    PARTS.append(entry)
    begin = time.perf_counter_ns()
    try:
        yield
    finally:
        entry[1] = (time.perf_counter_ns() - begin) / 1e6


class Reluctant(torch.optim.SGD):
    failures = 1

    def step(self, closure=None):
        if self.failures > 0:
            self.failures -= 1
            raise RuntimeError("not yet")
        return super().step(closure)


def batches():
    """Returns an iterator of batches, each of which takes a moment."""

    def slowly(rows):
        time.sleep(0.02)
        return torch.stack([row for row, in rows])

    data = DataLoader(TensorDataset(torch.randn(512, 256)), batch_size=32, collate_fn=slowly)
    return iter(data)


def batch_of(data):
    with part("input"):
        batch = next(data)
    return batch.cuda()


def forward_and_backward(model, batch):
    with part("forward"):
        loss = model(batch).pow(2).mean()
    with part("backward"):
        loss.backward()
    return loss


def step(optimizer):
    with part("optimizer"):
        optimizer.step()


def main():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
                            for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = batches()
    for _ in range(2):
        forward_and_backward(model, batch_of(data))
        step(optimizer)
        optimizer.zero_grad()
    with torch.no_grad():
        for _ in range(2):
            batch = batch_of(data)
            with part("forward"):
                model(batch)
    again = Reluctant(model.parameters(), lr=0.1)
    forward_and_backward(model, batch_of(data))
    with contextlib.suppress(RuntimeError):
        step(again)
    step(again)
    again.zero_grad()
    within = torch.optim.LBFGS(model.parameters(), max_iter=1)
    batch = batch_of(data)
    with part("optimizer"):
        within.step(lambda: forward_and_backward(model, batch))
    with part("checkpoint"), tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)
    print(json.dumps(PARTS))


if __name__ == "__main__":
    main()
