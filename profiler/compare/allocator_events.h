// Compares what PyTorch's caching allocator did in two recordings, event by event: the requests,
// frees and failures of tensors, and the segments that it took and gave back. Addresses and times
// are left out, since they differ from device to device. So is the order of frees that follow each
// other directly: autocast frees its copies of weights in the order of a hash table of addresses,
// which differs from run to run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// True for the events that are compared.
bool is_of_allocator(const Event& event);

/// Returns an event in words: "alloc 1048576 bytes, stream 1", "segment_free 2097152 bytes".
std::string allocator_event_text(const Event& event);

struct AllocatorComparison {
  int64_t one_events = 0;
  int64_t other_events = 0;
  int64_t equal_events = 0;        // before the first difference
  bool has_same_requests = false;  // the events without those of segments are equal
  std::vector<std::string> one;    // from the first difference on, a few; empty: `one` has ended
  std::vector<std::string> other;  // the same

  bool is_equal() const { return one_events == other_events && equal_events == one_events; }
};

/// Reads both files block by block. Throws as Reader does.
AllocatorComparison compare_allocators(const std::string& one, const std::string& other);

}  // namespace shardlens::profiler
