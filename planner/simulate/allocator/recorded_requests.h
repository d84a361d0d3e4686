// Reads from a recording what its program asked of PyTorch's allocator, and where the driver put
// the segments, so that a replay can say what other addresses would have led to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/simulate/allocator/addresses.h"
#include "planner/simulate/allocator/replay.h"
#include "profiler/recording/blocks.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

/// Takes the events of a recording one by one. Requests end with the first one that found no
/// memory, since the program would have gone another way with other addresses.
class RecordedRequests {
 public:
  void take(const profiler::Event& event);

  /// Returns the requests. `has_retries`: segments that were given back just before one was taken,
  /// or could not be, made room for it; else torch.cuda.empty_cache() gave them. Call it once.
  AllocatorHistory history(bool has_retries) &&;
  /// Returns the order of addresses that the program had.
  SegmentAddresses addresses() const;

  bool ran_out() const { return ran_out_; }
  /// True if the program used expandable segments, whose pages a replay does not follow.
  bool has_expandable_segments() const { return has_expandable_segments_; }

 private:
  /// The blocks that a stream has in a pool: [Note: private pools].
  struct Lane {
    StreamIndex stream = 0;  // of the replay
    bool is_kept = false;
  };
  struct Segment {
    uint64_t end = 0;  // address
    int32_t pool = profiler::kNoPrivatePool;
  };

  void take_segment(const profiler::Event& event);
  void take_block(const profiler::Event& event);
  void note_retry();
  bool empties_last() const;
  int32_t pool_at(uint64_t address) const;
  StreamIndex lane_of(int32_t pool, uint16_t stream);
  void give_up(int32_t pool);
  void hold_last_freed();
  void free(uint32_t block);

  std::vector<AllocatorRequest> requests_;
  std::vector<size_t> maybe_retries_;          // of the requests, those that empty the cache
  std::vector<uint64_t> segments_;             // their addresses, as they were taken
  std::map<uint64_t, Segment> live_segments_;  // by address
  std::map<std::pair<int32_t, uint16_t>, Lane> lanes_;  // by pool and stream of the recording
  std::unordered_map<uint64_t, uint32_t> blocks_;       // in use, by address
  std::unordered_map<uint64_t, uint32_t> held_;         // freed, but other streams use them
  uint32_t made_blocks_ = 0;
  uint64_t last_freed_ = 0;  // its address
  bool ran_out_ = false;
  bool has_expandable_segments_ = false;
};

}  // namespace shardlens::planner
