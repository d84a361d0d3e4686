"""Runs every operator of PyTorch's own database on the GPU that it finds, forward and backward.
Fails if an operator does that is not known to: one that asks for its values."""

import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

NOT_ON_ANY_GPU = {"sparse.mm", "_softmax_backward_data",
                  "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu"}  # with these samples
ASK_VALUES = {"cov", "linalg.eig", "isin", "matrix_exp", "index_fill", "_segment_reduce"}
SAMPLES = 3


def dtype_of(operator):
    dtypes = operator.supported_dtypes("cuda")
    return torch.float32 if torch.float32 in dtypes else min(dtypes, key=str, default=None)


def run(operator, sample):
    made = tree_leaves(operator(sample.input, *sample.args, **sample.kwargs))
    learnt = [one.sum() for one in made if isinstance(one, torch.Tensor) and one.requires_grad]
    if learnt:
        sum(learnt).abs().backward()


def fault_of(operator):
    """Returns why the operator fails, or an empty text if it runs."""
    dtype = dtype_of(operator)
    if dtype is None:
        return ""
    learns = operator.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    try:
        for _, sample in zip(range(SAMPLES), operator.sample_inputs("cuda", dtype, learns)):
            run(operator, sample)
    except Exception as error:  # pylint: disable=broad-except
        return f"{type(error).__name__}: {error}"
    return ""


def main():
    warnings.simplefilter("ignore")
    unknown = 0
    for operator in op_db:
        fault = fault_of(operator)
        if fault and operator.name not in NOT_ON_ANY_GPU | ASK_VALUES:
            unknown += 1
            print(f"fault of {operator.name}: {fault[:300]}", file=sys.stderr)
    mean, deviation = torch.zeros(8, 1, device="cuda"), torch.ones(4, device="cuda")
    torch.distributions.Normal(mean, deviation).sample()
    torch.distributions.Categorical(logits=deviation).sample()
    print(f"{len(op_db)} operators, {unknown} faults")
    sys.exit(unknown > 0)


main()
