"""Trains a small network through CUDA graphs: two that share a private pool, one with a pool of its
own, and a step without a graph between them."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, WORDS, WARM_UP = 1024, 4000, 3


class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH),
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), capturable=True)

    def step(self, inputs, targets):
        self.optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss


def batch(size):
    return torch.randn(size, WIDTH, device="cuda"), torch.randint(WORDS, (size,), device="cuda")


def capture(training, size, pool):
    """Warms up on a side stream, as PyTorch's notes on graphs say. Returns (graph, batch, loss)."""
    data = batch(size)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            training.step(*data)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        loss = training.step(*data)
    return graph, data, loss


def main():
    training = Training()
    shared = torch.cuda.graph_pool_handle()
    graphs = [capture(training, size, pool) for size, pool in
              ((512, shared), (2048, shared), (1024, None))]
    for number in range(6):
        graphs[number % 3][0].replay()
        if number == 3:
            training.step(*batch(4096))
    torch.cuda.synchronize()
    print(f"{torch.cuda.max_memory_allocated()} bytes at most", flush=True)


main()
