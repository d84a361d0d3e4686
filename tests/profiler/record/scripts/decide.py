"""Decides by computed values. `shardlens record` has to find exactly the lines that say so. Values
that are drawn on the GPU are not known there, nor are values that follow from them."""

import torch
from torch import nn

model = nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.Adam(model.parameters())


def loss():
    return model(torch.ones(8, 64, device="cuda")).square().mean()


def step():
    optimizer.zero_grad()
    value = loss()
    value.backward()
    optimizer.step()
    return value


def epoch():
    """Returns a number by which its callers decide."""
    total = 0.0
    for index in range(3):
        value = step()
        if index % 2 == 0:
            print("loss", value.item(), flush=True)
        total += value.item()
    return total / 3


class Stopper:
    def __init__(self):
        self.best = None
        self.history = []

    def stops(self, value):
        self.history.append(value.item())
        if len(self.history) > 100:
            return True
        self.best = min(self.history)
        return self.best < -1.0  # returned to the caller, which decides


def train():
    best = None
    average = epoch()
    if best is None:
        best = average
    while average < best:  # decides
        average = epoch()
    return average


def resume(saved):
    """Decides by a value that was read, only in lines that run after the read."""
    best = saved.get("best", 1.0)
    if best > 2.0:
        print("never")
    for index in range(2):
        if saved.get("best", 1.0) > 2.0:  # decides
            print("never")
        if index > 0:
            average = epoch()
            if average < best:  # decides
                best = average
                saved.update(best=best, step=index)


def numbers():
    if loss().item() > 1:  # decides
        print("never")
    size = int(loss())
    for _ in range(size):  # decides
        print("never")
    numbers_read = torch.rand(3, device="cuda").tolist()
    print("any", [number for number in numbers_read if number > 0])  # decides
    print("either", 1 if float(loss()) else 0)  # decides
    assert loss().item() <= 1  # decides


def tensors():
    data = torch.rand(8, device="cuda")
    if data.sum() > 0:  # is False
        print("taken")
    print("list", [1, 2, 3][torch.randint(1, (), device="cuda")])  # takes a number


def shapes():
    data = torch.rand(8, device="cuda")
    counts = torch.randint(2, (8,), device="cuda")
    print(data)
    print(data[2:4].shape, data[counts].shape, torch.where(data > 0, data, data).shape)
    print(counts.repeat_interleave(2).shape, data.repeat_interleave(counts, output_size=9).shape)
    print(nn.functional.one_hot(counts, num_classes=4).shape)
    print(data[data > 0].shape)  # has a shape by values
    print(torch.nonzero(input=data).shape)  # has a shape by values
    print(torch.where(data > 0)[0].shape)  # has a shape by values
    print(data.unique().shape)  # has a shape by values
    print(counts.bincount().shape)  # has a shape by values
    print(nn.functional.one_hot(counts).shape)  # has a shape by values


def known():
    """Decides only by the host's values: all answers are as on a GPU, and nothing is reported."""
    mask = torch.ones(4, 16, dtype=torch.long, device="cuda")
    mask[1:, 8:] = 0
    positions = mask.cumsum(-1)
    if mask.all() or not (positions[0] == torch.arange(1, 17, device="cuda")).all():
        print("never")
    lengths = mask.sum(-1)
    print("known", lengths.tolist(), positions[mask.bool()].shape, lengths.unique().tolist(),
          lengths.bincount().shape, lengths.repeat_interleave(lengths).shape,
          nn.functional.one_hot(mask).shape, [1, 2, 3][mask[0, 0]])
    done = torch.rand(4, device="cuda") > 2
    done = done | torch.ones(4, dtype=torch.bool, device="cuda")  # whatever was drawn
    print("done is known", bool(done.all()))


@torch.jit.script
def scripted(data: torch.Tensor) -> torch.Tensor:
    """Calls functions that are watched."""
    chosen = torch.where(data > 0, data, torch.nonzero(data).float().sum())
    return nn.functional.one_hot(torch.unique(chosen).long(), 2).repeat_interleave(2)


def main():
    result = train()
    if Stopper().stops(loss()):  # decides
        print("never")
    resume({})
    numbers()
    tensors()
    shapes()
    known()
    print("done", result, scripted(torch.zeros(3)).shape)


if __name__ == "__main__":
    main()
