// Finds races on device memory and uses of memory that does not exist. It learns of every use of
// memory by an operation in a stream, and of what orders operations (stream_order.h).
//
// A race is two overlapping uses, at least one a write, neither of which is ordered before the
// other. For every range the checker keeps the last write, and each stream's last read since then.
// As long as no earlier uses of a byte race with each other, a use that races with any of them
// races with one of those kept, so the first race on each byte is found. It is reported when the
// host enqueues the later of the two.
//
// Standard library only; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "profiler/null_device/checks/address_ranges.h"
#include "profiler/null_device/checks/stream_order.h"

namespace shardlens::profiler {

class RaceChecker {
 public:
  using Handle = StreamOrder::Handle;

  /// At most this many findings are kept until they are taken; the others are counted.
  static constexpr size_t kMaxFindings = 100;

  StreamOrder& order() { return order_; }

  /// Reports memory that the driver hands out: all other memory is unknown. What is taken back is
  /// forgotten.
  void give(AddressRange range);
  void take_back(AddressRange range);

  /// Reports an operation enqueued in `stream` that reads or writes `range`.
  void use(Handle stream, AddressRange range, bool writes, std::string_view what);

  /// Reports a block that an allocator hands out. It counts as a write in `stream`, so that a block
  /// handed out again must be ordered after its earlier uses.
  void allocate(Handle stream, AddressRange range);
  /// Reports a freed block. Any use from now on, until it is handed out again, is a finding.
  void free(AddressRange range);

  /// Adds a finding of another kind.
  void report(std::string finding);

  /// Returns the findings since the last call, each text once in the checker's life. The last line
  /// counts those beyond kMaxFindings.
  std::vector<std::string> take_findings();

 private:
  struct Access {
    StreamOrder::Operation operation;
    const std::string* what = nullptr;  // in names_
    bool writes = false;
  };
  /// Holds the uses of one range of addresses since its last write, which is included.
  struct Piece {
    uint64_t end = 0;
    std::vector<Access> accesses;  // a write only in front; at most one read a stream
  };
  struct Race {
    Access earlier;
    AddressRange range;
  };
  using Pieces = std::map<uint64_t, Piece>;  // by begin; they do not overlap

  void access(Handle stream, AddressRange range, bool writes, std::string_view what);
  /// Splits the piece that crosses `address`, if there is one.
  void split(uint64_t address);
  /// Makes pieces tile the range exactly, and returns the first.
  Pieces::iterator tile(AddressRange range);
  void add_races(const Pieces::value_type& piece, const Access& later,
                 std::vector<Race>& races) const;
  void remember(AddressRange range, const Access& access);
  std::string text(const Access& access, AddressRange range) const;

  StreamOrder order_;
  AddressRanges known_;
  AddressRanges freed_;
  Pieces pieces_;
  std::unordered_set<std::string> names_;
  std::set<std::string> seen_;
  std::vector<std::string> findings_;
  uint64_t left_out_ = 0;
};

}  // namespace shardlens::profiler
