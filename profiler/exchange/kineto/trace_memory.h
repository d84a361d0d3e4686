// Makes a recording of the memory that a trace of torch.profiler has, if profile_memory was on:
// each allocation is named by the operators that ran then.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

class TraceMemory {
 public:
  /// An allocation, or a free if its bytes are below 0.
  struct Change {
    int64_t time_ns = 0;
    int64_t thread = 0;
    uint64_t address = 0;
    int64_t bytes = 0;
    int64_t total_bytes = -1;  // of the device after it; below 0: unknown
    bool is_on_gpu = false;
    int64_t device = 0;
    uint32_t innermost = 0;  // of its operators, a frame; filled in by finish()
    uint32_t name = 0;       // index into the trace's names; filled in by finish()
  };

  void take(const Change& change) { changes_.push_back(change); }
  void take_operator(int64_t thread, int64_t begin_ns, int64_t end_ns, uint32_t name) {
    operators_[thread].push_back({begin_ns, end_ns, name});
  }
  /// Takes a step of torch.profiler by its name, "ProfilerStep#7".
  void take_step(int64_t begin_ns, const std::string& name);

  /// Returns the times of the first and the last change; nothing if there is none.
  std::optional<std::pair<int64_t, int64_t>> range() const;

  /// Returns the recording from `begin_ns` on: of the GPU with the most changes, or of the host if
  /// no GPU has any; nothing if there is no change.
  std::optional<Profile> finish(const std::vector<std::string>& names, int64_t begin_ns);

 private:
  struct Operator {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    uint32_t name = 0;
  };

  void leave_one_device();
  void name_changes(Profile& profile, const std::vector<std::string>& names);
  void add_what_was_there(Profile& profile) const;

  std::vector<Change> changes_;
  std::map<int64_t, std::vector<Operator>> operators_;  // by thread
  std::vector<std::pair<int64_t, int64_t>> steps_;      // beginning and number
};

}  // namespace shardlens::profiler
