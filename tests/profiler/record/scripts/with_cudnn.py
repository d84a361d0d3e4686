"""Runs what cuDNN does in PyTorch, a function each: `with_cudnn.py FUNCTION`. Those that print
bytes print what a call took beyond what it returned: its workspace."""

import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def most_beside(call):
    """Returns a call's peak minus what was allocated before and what it leaves."""
    torch.cuda.reset_peak_memory_stats()
    result = call()
    beside = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    del result
    return beside


def image(*shape, dtype=torch.half):
    values = torch.empty(*shape, device="cuda", dtype=dtype)
    return values.to(memory_format=torch.channels_last).requires_grad_()


def depthwise():
    """Computes only the weight's gradient."""
    layer = nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False).cuda().half()
    layer = layer.to(memory_format=torch.channels_last)
    result = layer(image(32, 64, 56, 56).detach())
    gradient = torch.empty_like(result)
    print("workspace", most_beside(
        lambda: torch.autograd.grad(result, layer.weight, gradient, retain_graph=True)))


def square():
    """A 3x3 convolution of a ResNet's first block."""
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda()
    layer = layer.to(memory_format=torch.channels_last)
    pixels = image(32, 64, 56, 56, dtype=torch.float).detach()
    print("workspace", most_beside(lambda: layer(pixels)))


def attend(backends):
    def values():
        made = torch.empty(4, 4096, 32, 128, device="cuda", dtype=torch.bfloat16)
        return made.transpose(1, 2).requires_grad_()

    query, key, value = values(), values(), values()
    with sdpa_kernel(backends):
        result = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    gradient = torch.empty_like(result)
    return most_beside(
        lambda: torch.autograd.grad(result, [query, key, value], gradient, retain_graph=True))


def attention():
    print("workspace", attend([SDPBackend.CUDNN_ATTENTION]))


def attention_of_torchtitan():
    print("workspace", attend([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]))


def switched_on():
    torch.backends.cudnn.enabled = True
    torch.backends.cuda.enable_cudnn_sdp(True)
    print("on", torch.backends.cudnn.enabled, torch.backends.cuda.cudnn_sdp_enabled())
    with torch.backends.cudnn.flags(enabled=True):
        nn.Conv2d(8, 8, 3).cuda()(image(1, 8, 8, 8, dtype=torch.float)).sum().backward()
    torch.backends.cudnn.version()


def products():
    """1x1 convolutions in bfloat16, which cuDNN gives to cuBLASLt."""
    layer = nn.Conv2d(256, 64, 1, bias=False).cuda().bfloat16().to(memory_format=torch.channels_last)
    layer(image(8, 256, 56, 56, dtype=torch.bfloat16)).sum().backward()


def every_kind():
    """Runs code that asks cuDNN for more than its graphs say."""
    x = image(4, 8, 16, 16, dtype=torch.float)
    nn.BatchNorm2d(8).cuda()(x).sum().backward()
    nn.InstanceNorm2d(8, affine=True).cuda()(x).sum().backward()
    nn.BatchNorm2d(8).cuda()(x.half()).sum().backward()
    nn.BatchNorm2d(8).cuda().eval()(x).sum().backward()
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        result, _ = kind(16, 32, num_layers=2).cuda()(torch.zeros(5, 3, 16, device="cuda"))
        result.sum().backward()
    grid = functional.affine_grid(torch.zeros(4, 2, 3, device="cuda", requires_grad=True),
                                  [4, 8, 16, 16], align_corners=True)
    functional.grid_sample(x, grid, align_corners=True).sum().backward()
    scores = torch.zeros(10, 2, 5, device="cuda", requires_grad=True)
    lengths = torch.full((2,), 10, dtype=torch.int), torch.full((2,), 3, dtype=torch.int)
    functional.ctc_loss(scores.log_softmax(2), torch.ones(6, dtype=torch.int), *lengths).backward()
    scripted = torch.jit.script(nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3)).cuda())
    scripted(x).sum().backward()


def bfloat16_norm():
    nn.BatchNorm2d(8).cuda().bfloat16()(image(4, 8, 16, 16, dtype=torch.bfloat16)).sum().backward()


def benchmark():
    torch.backends.cudnn.benchmark = True
    nn.Conv2d(8, 8, 3).cuda()(image(1, 8, 8, 8, dtype=torch.float)).sum().backward()
    print("benchmark", torch.backends.cudnn.benchmark)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    time.sleep(0.5)  # autograd's thread would abort the process if it released Python at its end
