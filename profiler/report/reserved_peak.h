// Follows the moment at which a recording has most memory reserved, and keeps what the allocator
// held then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"
#include "profiler/report/block_tracker.h"
#include "profiler/report/peak_set.h"
#include "profiler/report/reserved_parts.h"

namespace shardlens::profiler {

/// A place that ReservedParts names by its index.
struct ReservedPlace {
  Category category{};
  std::string label;

  bool operator<(const ReservedPlace& other) const {
    return std::pair(category, std::string_view(label)) <
           std::pair(other.category, std::string_view(other.label));
  }
};

/// The account of reserved memory at one moment, with the request that decides.
struct ReservedReport {
  Moment at;
  std::string action;
  std::string module;
  int64_t asked_bytes = 0;  // by the request; 0: none is known
  Category category{};      // of the request
  std::string label;
  ReservedParts parts;
  std::vector<ReservedPlace> places;  // by the places of `parts`
};

/// [Note: the moment of the reserved peak]
/// Reserved memory rises when no free block serves a request: the allocator takes segments from the
/// driver, and then gives the request its block. The moment is the one after that block, since only
/// then is clear who asked. A recording that begins late lists first the segments and then the
/// blocks that exist; all of these are one moment, without a request.
class ReservedPeak {
 public:
  /// Takes an event that changes blocks or segments, before `tracker` and `tensors` take it.
  void before(const Event& event, const BlockTracker& tracker, PeakSet& tensors);
  /// Takes the same event afterwards. `is_new_peak` says that more is reserved than ever before.
  void after(const Event& event, bool is_new_peak, const Moment& moment,
             const BlockTracker& tracker, PeakSet& tensors);
  /// Call it after the last event.
  void finish(const BlockTracker& tracker, PeakSet& tensors);

  bool exists() const { return exists_; }
  /// True if the recording first lists what existed before it.
  bool begins_late() const { return begins_late_; }
  const Moment& at() const { return at_; }
  const Event& request() const { return request_; }  // its value is 0 if none is known
  ReservedRequest needs() const;
  const std::vector<ReservedSegment>& segments() const { return segments_; }
  const std::vector<UsedBlock>& pending() const { return pending_; }

 private:
  bool is_listed(const Event& event) const;
  void settle(const BlockTracker& tracker, PeakSet& tensors);
  void keep_segments(const BlockTracker& tracker);

  bool exists_ = false;
  bool is_open_ = false;       // the request has not been seen yet
  bool has_begun_ = false;     // the list of what existed before is complete
  bool has_segments_ = false;  // `segments_` are those of the moment; else the tracker's are
  bool begins_late_ = false;
  int listed_segments_ = 0;  // before the first block
  uint64_t held_ = 0;        // address of the last block that was held
  int32_t private_pool_ = kNoPrivatePool;
  Moment at_;
  Event request_;
  std::vector<ReservedSegment> segments_;
  std::vector<UsedBlock> pending_;
};

}  // namespace shardlens::profiler
