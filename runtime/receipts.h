// How rank 0 learns what all ranks have written to a set of files, or read of them.
//
// Ranks meet in a folder alone: each leaves a receipt, "part-3.json", when it is through; rank 0
// waits for all of them. No collective is needed, so a thread beside the training can do this.
// Receipts say where each range lies and what its checksum is: rank 0 puts the checksums of whole
// files together from them, and finds out if a byte was left out or written twice.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint.h"

namespace shardlens::runtime {

/// A run of bytes of one file.
struct SummedRange {
  int file = 0;  // index into the set
  int64_t offset_bytes = 0;
  int64_t bytes = 0;
  uint32_t crc32c = 0;

  auto operator<=>(const SummedRange&) const = default;
};

struct Receipt {
  std::vector<SummedRange> ranges;
  RankProgress progress;
};

/// How long to wait for the others.
struct Patience {
  std::chrono::nanoseconds deadline{};    // for each of them
  std::function<bool()> is_stopped = {};  // the group ends: nobody need be waited for; may be empty
};

/// The last thing that a rank does in the folder. Throws Failure where the disk fails.
void leave_receipt(const std::filesystem::path& folder, int rank, const Receipt& receipt);

/// Those of all ranks, which are removed. `name`: of the set, for errors; `done`: what a rank has
/// not done that left none in time, "written" or "read". Throws Failure, hung, for such a rank.
std::vector<Receipt> take_receipts(const std::filesystem::path& folder, int world_size,
                                   const std::string& name, const std::string& done,
                                   const Patience& patience);

/// What ranges make up from a file's first byte to the first that they leave out, or have twice.
struct JoinedRanges {
  int64_t bytes = 0;
  uint32_t crc32c = 0;
};

/// Of each of `count` files.
std::vector<JoinedRanges> join(std::vector<SummedRange> ranges, size_t count);

}  // namespace shardlens::runtime
