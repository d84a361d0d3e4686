"""Trains parameters, gradients and optimizer states that are not plain tensors, such as torchao's
quantised ones, sparse and nested ones, by an optimizer that keeps them."""

import sys

import torch
from torch import nn
from torch.utils._pytree import tree_map

SIZE = 1 << 20


class Wrapper(torch.Tensor):
    """Has no memory of its own: what it holds is in `parts`."""

    @staticmethod
    def __new__(cls, *parts):
        whole = parts[0]
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=whole.dtype,
                                                   device=whole.device)

    def __init__(self, *parts):
        self.first, self.second = parts

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        whole = tree_map(lambda x: x.first if isinstance(x, cls) else x, (args, kwargs or {}))
        return function(*whole[0], **whole[1])


class Flattened(Wrapper):
    """Names its parts as torch.compile requires of subclasses; torchao's do so."""

    def __tensor_flatten__(self):
        return ["first", "second"], None


class Closed(Wrapper):
    """Does not say where its memory is."""

    __slots__ = ("hidden",)

    def __init__(self, *parts):  # pylint: disable=super-init-not-called
        self.hidden = [parts]


class Keeping(torch.optim.SGD):
    """Keeps a state of this class for each parameter."""

    def __init__(self, parameters, make):
        super().__init__(parameters, lr=0.1)
        self.make = make

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if "kept" not in self.state[parameter]:
                    self.state[parameter]["kept"] = self.make()
        return super().step(closure)


def train(make):
    model = nn.Linear(1024, 1024).cuda()
    optimizer = Keeping(model.parameters(), make)
    for _ in range(3):
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("trained", flush=True)


def ones():
    return torch.ones(SIZE, device="cuda")


def flattened():
    train(lambda: Flattened(ones(), ones()))


def wrapper():
    train(lambda: Wrapper(ones(), ones()))


def nested_in_wrapper():
    train(lambda: Flattened(Flattened(ones(), ones()), ones()))


def closed():
    train(lambda: Closed(ones(), ones()))


def sparse():
    train(lambda: torch.eye(1024, device="cuda").to_sparse())


def rows():
    train(lambda: torch.eye(1024, device="cuda").to_sparse_csr())


def jagged():
    train(lambda: torch.nested.nested_tensor_from_jagged(
        torch.ones(SIZE, 2, device="cuda"), torch.tensor([0, 10, SIZE], device="cuda")))


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        made = torch.ones(SIZE, device="cuda")
    train(lambda: made)


def meta():
    train(lambda: torch.ones(SIZE, device="meta"))


def batched():
    """Keeps the tensor of a torch.func transform as a state; it has no storage."""
    parameter = nn.Parameter(ones())
    parameter.grad = torch.zeros_like(parameter)

    def keep(x):
        optimizer = Keeping([parameter], lambda: x)
        for _ in range(3):
            ones()  # a step begins with an allocation
            optimizer.step()
        return x

    torch.vmap(keep)(torch.ones(4, SIZE, device="cuda"))
    print("trained", flush=True)


def hostile():
    """A class whose every attribute raises an arbitrary error."""
    class Hostile(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise ValueError("no attribute may be read")

    train(lambda: ones().as_subclass(Hostile))


def sparse_gradients():
    table = nn.Embedding(4096, 256, sparse=True).cuda()
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for _ in range(3):
        table(torch.zeros(8, dtype=torch.long, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("trained", flush=True)


def no_dictionary():
    """Keeps states that are not dictionaries, as hand-written optimizers do."""
    class Plain(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter] = torch.zeros_like(parameter)
            return None

    model = nn.Linear(1024, 1024).cuda()
    optimizer = Plain(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
    print("trained", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
