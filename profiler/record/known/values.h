// Knows small values of a null device although no kernel runs: whatever PyTorch's operators compute
// from known values alone is computed on the CPU beside them. So masks, lengths, counters and
// shapes answer as on a GPU, and no allocation on the GPU is another one.
//
// How. Each operator that PyTorch's dispatcher calls is a frame (operators.h says what it
// does). When it begins, its arguments are copied if all are known. When it has ended, the CPU's
// operator computes what its results are, and they are written into the table of known memory
// (profiler/null_device/driver/known_memory.h), from which copies to the host are answered. Results
// that nobody computed become unknown, and so does memory that is allocated anew. A kernel that is
// launched outside of every frame, as Triton's are, may write the blocks that its arguments lie in:
// these become unknown, or everything where its module does not describe its arguments.
//
// Example. mask = torch.ones(4, 2048, device="cuda") is filled in a frame of fill_; mask.all()
// reads known values, and is True; x.sum() > 0 of a matrix product is unknown, and reads as False.
//
// Limits. Random draws are unknown. A value of floating point may differ from a GPU's in rounding.
// Nothing is known that takes more memory or work than tensors.h and known_memory.h allow.
#pragma once

extern "C" {
/// Begins to follow values if a null device that keeps them is loaded; it goes on until the process
/// ends. A second call does nothing.
void shardlens_follow_known_values();
}
