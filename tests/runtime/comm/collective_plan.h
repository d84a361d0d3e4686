// A random sequence of collectives over two channels, the same on every rank, and their expected
// results: computed serially, with formats built from powers of two in double.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace shardlens::tests {

/// Bits of the value of `dtype` next to `value`, ties to even.
uint32_t encode(double value, DType dtype);
double decode(uint32_t bits, DType dtype);

struct PlannedOperation {
  enum class Kind { gather, reduce_scatter, all_reduce, sum, barrier };
  Kind kind{};
  int channel = 0;                    // 0 or 1
  int tickets_due = 0;                // of this channel; waited for, oldest first, before this one
  std::vector<int64_t> range_numels;  // one for each buffer; only gathers have several
  std::vector<DType> dtypes;
};

struct Plan {
  uint64_t seed = 0;
  int world_size = 1;
  std::vector<PlannedOperation> operations;

  int64_t max_gather_bytes() const;
  int64_t max_reduce_bytes() const;
};

Plan random_plan(uint64_t seed, int world_size, int operations);

/// True if all_reduce sums in rank order; else it is compared with a tolerance.
enum class AllReduceOrder { rank, any };

/// "ok " and a hash of all results that every rank must share, or a difference and its place.
std::string run_plan(const Plan& plan, runtime::Communicator& first, runtime::Communicator& second,
                     AllReduceOrder order);

}  // namespace shardlens::tests
