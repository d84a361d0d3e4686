// Reads and writes the trace of work (recording/work.h) in a recording's file: blocks of the type
// `work` among the others, which readers up to 1.5 skip. FORMAT.md describes their bytes.
//
// Items are kept in memory until a block of them is full, so a process that is killed loses those
// of the last block: the trace then says that it is cut off.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/file/format.h"
#include "profiler/recording/work.h"

namespace shardlens::profiler {

/// A block of items, encoded and not yet compressed.
struct WorkBlock {
  Bytes payload;
  uint32_t count = 0;
  int64_t first_ns = 0;
  int64_t last_ns = 0;
};

/// Encodes a trace while it is made. Each function that returns a number gives equal arguments the
/// same one. One thread at a time may use it.
class WorkEncoder {
 public:
  WorkEncoder();

  uint32_t string(std::string_view text);
  uint32_t call(const OperatorCall& call);
  uint32_t communicator(const WorkCommunicator& communicator);
  uint32_t work(const Work& work);

  /// Adds an item, whose time is raised to that of the item before if it is earlier. Its `work` is
  /// one of this encoder's numbers.
  void add(WorkItem item);
  /// Returns how many items were added.
  int64_t items() const { return items_; }
  bool is_full() const { return count_ >= kBlockItems; }
  bool is_empty() const { return count_ == 0; }  // of items since take()
  /// Returns the items since the last call, with all that they are the first to name.
  WorkBlock take();

 private:
  static constexpr uint32_t kBlockItems = 1 << 16;

  /// Pieces by their encoded bytes, with those that no block has yet.
  struct Dictionary {
    std::unordered_map<std::string, uint32_t> numbers;
    Bytes added;
    size_t known = 0;  // that a block already has

    uint32_t number_of(const Bytes& encoded);
    Bytes take();
  };

  Dictionary strings_, calls_, communicators_, work_;
  std::vector<WorkKind> kinds_;  // of the pieces of work
  std::array<Bytes, 7> columns_;
  Bytes scratch_;
  WorkItem last_;
  int64_t items_ = 0;
  uint32_t count_ = 0;
  int64_t first_ns_ = 0;
};

/// Adds a block's items to a trace. Throws std::runtime_error with the fault if the bytes are not
/// such a block, or not the one that follows; the trace is then as before.
void decode_work(ByteSpan payload, uint32_t count, WorkTrace& trace);

/// Reads the trace of a recording: all items up to the first that is damaged or missing, which
/// `faults` then tells. A recording without a trace has an empty one. Throws as Reader does.
WorkTrace read_work(const std::string& path);

}  // namespace shardlens::profiler
