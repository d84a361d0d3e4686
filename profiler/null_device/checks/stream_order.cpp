#include "profiler/null_device/checks/stream_order.h"

#include <algorithm>

namespace shardlens::profiler {

namespace {

constexpr StreamOrder::Handle kLegacyByName = 1;  // cudaStreamLegacy
constexpr StreamOrder::Handle kPerThread = 2;     // cudaStreamPerThread

}  // namespace

StreamOrder::StreamOrder() {
  create(0, true);
  create(kPerThread, true);
  indices_.emplace(kLegacyByName, kLegacy);
}

void StreamOrder::create(Handle stream, bool is_blocking) {
  if (!indices_.emplace(stream, streams_.size()).second) return;
  streams_.push_back({stream, is_blocking, {}});
}

size_t StreamOrder::index_of(Handle stream) {
  create(stream, false);
  return indices_.at(stream);
}

void StreamOrder::join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

StreamOrder::Clock& StreamOrder::act(size_t stream) {
  Clock& clock = streams_[stream].clock;
  join(clock, host_);
  if (stream == kLegacy) {
    for (const Stream& other : streams_) {
      if (other.is_blocking) join(clock, other.clock);
    }
  } else if (streams_[stream].is_blocking) {
    join(clock, streams_[kLegacy].clock);
  }
  return clock;
}

StreamOrder::Operation StreamOrder::enqueue(Handle stream) {
  const size_t index = index_of(stream);
  Clock& clock = act(index);
  if (clock.size() <= index) clock.resize(index + 1);
  return {index, ++clock[index]};
}

bool StreamOrder::precedes(const Operation& earlier, const Operation& later) const {
  const Clock& clock = streams_[later.stream].clock;
  return earlier.stream < clock.size() && clock[earlier.stream] >= earlier.number;
}

void StreamOrder::record(Handle event, Handle stream) { events_[event] = act(index_of(stream)); }

void StreamOrder::wait(Handle stream, Handle event) {
  Clock& clock = act(index_of(stream));
  if (const auto found = events_.find(event); found != events_.end()) join(clock, found->second);
}

void StreamOrder::synchronize_stream(Handle stream) { join(host_, act(index_of(stream))); }

void StreamOrder::synchronize_event(Handle event) {
  if (const auto found = events_.find(event); found != events_.end()) join(host_, found->second);
}

void StreamOrder::synchronize_device() {
  for (const Stream& stream : streams_) join(host_, stream.clock);
}

}  // namespace shardlens::profiler
