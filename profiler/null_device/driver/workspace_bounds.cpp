#include "profiler/null_device/driver/workspace_bounds.h"

#include <mutex>
#include <set>
#include <string>
#include <utility>

using shardlens::profiler::Bound;

namespace {

thread_local const char* next = nullptr;

/// Holds the doubts that were reported. It outlives static destructors.
struct DoubtLog {
  std::mutex mutex;
  std::set<std::string> doubts;
};

DoubtLog& doubt_log() {
  static DoubtLog& only = *new DoubtLog;
  return only;
}

}  // namespace

void shardlens_null_tell_bound(const Bound* bound, uint64_t bytes) {
  if (bytes > 0) next = bound->of;
  const std::scoped_lock lock(doubt_log().mutex);
  doubt_log().doubts.insert(bound->doubt);
}

const char* shardlens_null_next_bound() { return std::exchange(next, nullptr); }

const char* shardlens_null_bounds() {
  thread_local std::string& lines = *new std::string;
  lines.clear();
  const std::scoped_lock lock(doubt_log().mutex);
  for (const std::string& doubt : doubt_log().doubts) lines += doubt + "\n";
  return lines.c_str();
}
