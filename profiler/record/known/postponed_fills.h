// Postpones random fills of large tensors on the host until something reads them. Weights that a
// program draws on the host and copies to a simulated GPU are read by nobody, but drawing the
// weights of a model of billions of parameters takes minutes, and all of their memory.
//
// How. fills.py replaces PyTorch's functions that fill a tensor, and skips the numbers that they
// would draw, so that all later draws stay the same. Before an operator reads the tensor on the
// host, it is filled from the generator's state of then, so the program never sees other values.
//
// Limit. Code that reads a tensor's memory without an operator of PyTorch finds zeros there, or
// what the memory held before; fills.py knows numpy(), tolist() and saving.
#pragma once

#include <cstdint>

extern "C" {
/// Fills the tensor in this storage if `is_read`; either way it is postponed no longer.
using ShardlensFill = void (*)(uint64_t storage, bool is_read);

/// Sets the function that fills, which takes Python's lock. Call it first, and once. `storage` has
/// the references of one that only its postponed fill keeps alive: they differ by PyTorch's
/// version.
void shardlens_postpone_fills(ShardlensFill fill, uint64_t storage);

/// Postpones the fill of the c10::StorageImpl at this address. The caller keeps the storage
/// alive until it is filled.
void shardlens_postpone_fill(uint64_t storage);

/// Takes a fill back. Returns false if the storage's fill is not postponed.
bool shardlens_take_fill(uint64_t storage);

/// Begins to count what the CPU's generator draws.
void shardlens_begin_draws();

/// Returns how many words the generator has drawn since shardlens_begin_draws(), and takes these
/// draws back; -1 if it was seeded meanwhile, or drew more than fills of a few numbers do.
int64_t shardlens_end_draws();

/// Changes the generator as drawing this number of words does.
void shardlens_skip_draws(int64_t words);
}
