"""Programs that keep the output of each step in a variable of some kind (`held_`), and one that keeps
none (`free`):

    holding.py NAME ...

Each runs in a process of its own, as the rank that is its place among the names. The docstring of a
program is what `record --holders` is to say.
"""

import collections
import os
import sys

import torch
from torch import nn

STEPS = 10
WIDTH = 512

outputs = []


class Meter:
    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append((len(self.values), {"value": value}))


class Slotted:
    __slots__ = ("past",)

    def __init__(self):
        self.past = collections.deque()


class Registry:
    seen = {}


def keep(value, kept=[]):  # pylint: disable=dangerous-default-value
    kept.append(value)


def keeper():
    kept = []

    def add(value):
        kept.append(value)

    return add


def train(keeps, with_graph=False):
    net = nn.Linear(WIDTH, WIDTH).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(STEPS):
        out = net(torch.randn(1024, WIDTH, device="cuda"))
        out.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        keeps(out if with_graph else out.detach())


def held_by_global():
    """outputs, a list in holding.py: 1 tensor of 2.00 MiB a step"""
    train(outputs.append)


def held_with_graph():
    """losses, a list in held_with_graph of holding.py: 1 tensor of 4 B a step, with the graph that made it"""
    losses = []
    train(lambda out: losses.append(out.abs().mean()), with_graph=True)


def held_by_dict():
    """table, a dict in held_by_dict of holding.py: 1 tensor of 2.00 MiB a step"""
    table = {}
    train(lambda out: table.update({len(table): out}))


def held_by_attribute():
    """meter.values, a list in held_by_attribute of holding.py: 1 tensor of 2.00 MiB a step"""
    meter = Meter()
    train(meter.update)


def held_in_slot():
    """state['slotted'].past, a deque in held_in_slot of holding.py: 1 tensor of 2.00 MiB a step"""
    state = {"slotted": Slotted()}
    train(lambda out: state["slotted"].past.append(out))


def held_by_class():
    """Registry.seen, a dict in holding.py: 1 tensor of 2.00 MiB a step"""
    train(lambda out: Registry.seen.setdefault(len(Registry.seen), out))


def held_by_closure():
    """kept, a list in keeper.<locals>.add of holding.py: 1 tensor of 2.00 MiB a step"""
    train(keeper())


def held_by_default():
    """a default argument, a list in keep of holding.py: 1 tensor of 2.00 MiB a step"""
    train(keep)


def free():
    last = []
    train(lambda out: last.__setitem__(slice(None), [out]))


def main(names):
    for rank, name in enumerate(names):
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(names)), "LOCAL_RANK": "0"}
            globals()[name]()
            return
        _, status = os.wait()
        if status != 0:
            sys.exit(f"{name} has failed")


main(sys.argv[1:])
