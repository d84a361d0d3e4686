"""Records what PyTorch does by cuFFT, cuSOLVER and cuSPARSE, whose workspaces only a GPU can
report: each ends with a peak, and the verdict says how much of that is an upper bound.

    factorise_cases.py quick|long [CASE...]
"""

import sys

from recorded import HERE, PYTHON, OnNullDevice, run_cases

SCRIPT = HERE / "scripts" / "factorise.py"
EQUAL = "as PyTorch counted: equal"
BOUND = "in doubt: workspaces of {} are upper bounds: "
AT_PEAK = "of the peak are upper bounds: the peak lies between"
DECISIONS = "by values that are not known"

MEBIBYTE = 1 << 20


def record(folder, function):
    return OnNullDevice(folder, PYTHON, SCRIPT, function)


def expect_no(recorded, *texts):
    for text in texts:
        if text in recorded.lines + recorded.text:
            raise AssertionError(f"{text!r} in\n{recorded.text}{recorded.lines}")


def check_one_transform(folder):
    """NVIDIA's documentation: 8*batch*n[0]*..*n[rank-1] cufftComplex elements in the worst case."""
    size = 8 * (MEBIBYTE * 8)
    recorded = record(folder, "one_transform").expect(
        0, EQUAL, BOUND.format("cuFFT"), f"workspace {size}",
        f"in doubt: 64.00 MiB {AT_PEAK} 16.00 MiB and 80.00 MiB",
        "factorise.py:36 one_transform: a workspace of cuFFT, an upper bound")
    expect_no(recorded, "cuSOLVER", "cuSPARSE")


def check_transforms(folder):
    expect_no(record(folder, "transforms").expect(0, EQUAL, BOUND.format("cuFFT")), DECISIONS)


def check_operator(folder):
    record(folder, "operator").expect(0, EQUAL, BOUND.format("cuFFT")).expect_steps(3)


def check_dense(folder):
    expect_no(record(folder, "dense").expect(0, EQUAL, BOUND.format("cuSOLVER")), DECISIONS)


def check_small_and_large(folder):
    record(folder, "small_and_large").expect(0, EQUAL, BOUND.format("cuSOLVER"))


def check_success(folder):
    expect_no(record(folder, "success").expect(0, EQUAL, "succeeded"), DECISIONS)


def check_sparse(folder):
    record(folder, "sparse").expect(0, EQUAL, BOUND.format("cuSPARSE"))


def check_product(folder):
    """Counts a product's elements if the host gave those of its matrices, in compressed rows."""
    recorded = record(folder, "product").expect(0, EQUAL, BOUND.format("cuSPARSE"), "elements 1000")
    expect_no(recorded, "products of sparse matrices")


def check_unknown_product(folder):
    record(folder, "unknown_product").expect(
        0, EQUAL, "in doubt: products of sparse matrices have no elements here if it is not known "
        "which they have: they may take more on a GPU")


def check_optimizers(folder):
    record(folder, "optimizers").expect(0, EQUAL, BOUND.format("cuSOLVER"),
                                        AT_PEAK).expect_steps(3)


QUICK = [check_one_transform, check_success, check_product, check_unknown_product, check_operator,
         check_optimizers]
LONG = [check_transforms, check_dense, check_small_and_large, check_sparse]


if __name__ == "__main__":
    sys.exit(run_cases(LONG if sys.argv[1] == "long" else QUICK))
