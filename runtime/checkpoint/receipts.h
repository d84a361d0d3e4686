// Tells rank 0 what all ranks have written to, or read from, a set of files.
//
// Ranks meet only in a folder: each leaves a receipt, "part-3.json", when it has done its part, and
// rank 0 waits for all of them. No collective is needed, so a thread beside the training can do
// this. Receipts say where each range is and what its checksum is. From them rank 0 computes the
// checksums of whole files, and finds out if a byte was left out or written twice.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"

namespace shardlens::runtime {

/// Describes a range of bytes in one file, with its checksum.
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

/// Says how long to wait for the others.
struct Patience {
  std::chrono::nanoseconds deadline{};    // for each rank
  std::function<bool()> is_stopped = {};  // true if the group ends, so stop waiting; may be empty
};

/// Writes a rank's receipt, the last thing that it does in the folder. Throws Failure if the disk
/// fails.
void leave_receipt(const std::filesystem::path& folder, int rank, const Receipt& receipt);

/// Returns the receipts of all ranks, and removes them. `name` is the set's name, for errors;
/// `done`, "written" or "read", names what a rank failed to do if its receipt is late. Throws
/// Failure, hung, for such a rank.
std::vector<Receipt> take_receipts(const std::filesystem::path& folder, int world_size,
                                   const std::string& name, const std::string& done,
                                   const Patience& patience);

/// Holds the size and checksum of a file's prefix that the ranges cover without gap or overlap.
struct JoinedRanges {
  int64_t bytes = 0;
  uint32_t crc32c = 0;
};

/// Joins the ranges of each of `count` files.
std::vector<JoinedRanges> join(std::vector<SummedRange> ranges, size_t count);

}  // namespace shardlens::runtime
