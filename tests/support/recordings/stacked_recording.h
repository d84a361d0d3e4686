// The synthetic recording of view_recording.h as a Python program would have made it: every label
// has a stack, from the script through the forward of modules to an operator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/recordings/view_recording.h"

namespace shardlens::tests {

class Stacker {
 public:
  Stacker(profiler::Profile& profile, std::string folder)
      : profile_(profile), folder_(std::move(folder)) {}

  /// Gives a stack to every label. A script with `lines_before` has all its lines that much further
  /// down.
  void run(uint32_t lines_before) {
    const size_t labels = profile_.strings.size();
    const uint32_t main = frame(0, folder_ + "/train.py", "main", 100 + lines_before);
    const uint32_t step = frame(main, folder_ + "/train.py", "step", 20 + lines_before);
    const uint32_t call = frame(step, "/torch/nn/modules/module.py", "Module._call_impl", 1789);
    const uint32_t model = frame(call, folder_ + "/model.py", "Model.forward", 40 + lines_before);
    std::vector<uint32_t> innermost(labels);
    for (size_t i = 1; i < labels; ++i) {
      const std::string& label = profile_.strings[i];
      const bool is_attention = label.starts_with("attention");
      const bool is_mlp = label.starts_with("mlp");
      uint32_t at = model;
      if (is_attention)
        at = frame(model, folder_ + "/model.py", "Attention.forward", 70 + lines_before);
      if (is_mlp) at = frame(model, folder_ + "/model.py", "Mlp.forward", 90 + lines_before);
      innermost[i] = is_attention || is_mlp ? frame(at, "", "aten::mm", 0) : at;
    }
    profile_.stacks.of_label = std::move(innermost);
  }

 private:
  uint32_t text(const std::string& words) {
    if (words.empty()) return 0;
    const auto at = std::find(profile_.strings.begin(), profile_.strings.end(), words);
    if (at != profile_.strings.end()) return static_cast<uint32_t>(at - profile_.strings.begin());
    profile_.strings.push_back(words);
    return static_cast<uint32_t>(profile_.strings.size() - 1);
  }
  uint32_t frame(uint32_t caller, const std::string& file, const std::string& function,
                 uint32_t line) {
    const profiler::StackFrame wanted{
        .caller = caller, .file = text(file), .function = text(function), .line = line};
    auto& frames = profile_.stacks.frames;
    const auto at = std::find(frames.begin() + 1, frames.end(), wanted);
    if (at != frames.end()) return static_cast<uint32_t>(at - frames.begin());
    frames.push_back(wanted);
    return static_cast<uint32_t>(frames.size() - 1);
  }

  profiler::Profile& profile_;
  std::string folder_;  // of the scripts
};

inline profiler::Profile stacked_recording(ViewRecordingOptions options = {},
                                           uint32_t lines_before = 0,
                                           const std::string& folder = "/u") {
  profiler::Profile profile = view_recording(std::move(options));
  Stacker(profile, folder).run(lines_before);
  return profile;
}

/// A training run that keeps a block of every step: step i takes `kept_bytes` that are never freed,
/// and `passing_bytes` that it frees itself.
inline profiler::Profile leaking_recording(int steps, int64_t kept_bytes, int64_t passing_bytes) {
  profiler::Profile profile;
  profile.header.device = "null:h200";
  profile.strings = {"", "weights", "history", "passing"};
  int64_t time_ns = 0;
  uint64_t address = 0x10000;
  const auto write = [&](profiler::Event event) {
    event.time_ns = time_ns += 1000;
    event.space = profiler::Space::device;
    profile.events.push_back(event);
  };
  const auto allocate = [&](uint32_t label, int64_t bytes, profiler::Category category) {
    write({.address = address += 0x100000000,
           .value = bytes,
           .label = label,
           .kind = profiler::EventKind::alloc,
           .category = category});
    return address;
  };
  allocate(1, 1 << 20, profiler::Category::parameter_shard);
  write({.value = static_cast<int64_t>(profiler::Phase::training),
         .kind = profiler::EventKind::phase});
  for (int step = 0; step < steps; ++step) {
    write({.value = step, .kind = profiler::EventKind::step});
    const uint64_t passing = allocate(3, passing_bytes, profiler::Category::activation);
    allocate(2, kept_bytes, profiler::Category::activation);
    write({.address = passing, .value = passing_bytes, .kind = profiler::EventKind::free});
  }
  return profile;
}

}  // namespace shardlens::tests
