// Numbers a program's streams in the order in which they appear. All threads may call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace shardlens::profiler {

class StreamNumbers {
 public:
  uint16_t number_of(const void* stream) {
    const std::scoped_lock lock(mutex_);
    const auto number = std::ranges::find(streams_, stream) - streams_.begin();
    if (static_cast<size_t>(number) == streams_.size()) streams_.push_back(stream);
    return static_cast<uint16_t>(number);
  }

 private:
  std::mutex mutex_;
  std::vector<const void*> streams_{nullptr};  // CUDA's default stream is the main one
};

}  // namespace shardlens::profiler
