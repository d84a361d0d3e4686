// Knows small values of a null device although no kernel runs: results that PyTorch's operators
// compute only from known values are also computed on the CPU. So masks, lengths, counters and
// shapes answer as on a GPU, and the GPU's allocations stay the same.
//
// How. Each operator that PyTorch's dispatcher calls is a frame (operators.h says what it does).
// When it begins, its arguments are copied if all are known. When it has ended, the CPU's operator
// computes its results, and they are written into the table of known memory
// (profiler/null_device/driver/known_memory.h), which answers copies to the host. Results that were
// not computed become unknown, and so does memory that is allocated again. A kernel that is
// launched outside of every frame, as Triton's are, may write the blocks that hold its arguments:
// these become unknown, or everything does if its module does not describe its arguments.
//
// Example. mask = torch.ones(4, 2048, device="cuda") is filled in a frame of fill_; mask.all()
// reads known values, and is True; x.sum() > 0 of a matrix product is unknown, and reads as False.
//
// Limits. Random draws are unknown. A floating-point value may differ from a GPU's in rounding.
// Values that take more memory or work than tensors.h and known_memory.h allow are not known.
#pragma once

extern "C" {
/// Begins to follow values, until the process ends, if a null device that keeps them is loaded. A
/// second call does nothing.
void shardlens_follow_known_values();
}
