// Writes traces of work for tests, in which all follows from what is written.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiler/recording/work.h"

namespace shardlens::tests {

inline profiler::OperatorInput tensor(std::vector<int64_t> sizes,
                                      profiler::NumberType type = profiler::NumberType::fp32) {
  return {.type = type, .tensors = 1, .sizes = std::move(sizes)};
}

inline profiler::OperatorCall call_of(std::vector<profiler::OperatorInput> inputs) {
  profiler::OperatorCall call;
  call.inputs = std::move(inputs);
  return call;
}

/// Writes a trace: every item is asked for `host_ns` after the one before.
class TraceWriter {
 public:
  profiler::WorkTrace trace;

  uint32_t call(const std::string& name, std::vector<profiler::OperatorInput> inputs) {
    trace.strings.push_back(name);
    profiler::OperatorCall call = call_of(std::move(inputs));
    call.name = static_cast<uint32_t>(trace.strings.size()) - 1;
    trace.calls.push_back(call);
    return static_cast<uint32_t>(trace.calls.size()) - 1;
  }

  uint32_t piece(profiler::Work work) {
    trace.work.push_back(work);
    return static_cast<uint32_t>(trace.work.size()) - 1;
  }

  uint32_t kernel(uint32_t call) {
    profiler::Work work{.kind = profiler::WorkKind::kernel, .call = call};
    work.launch.grid = {1024, 1, 1};
    work.launch.block = {128, 1, 1};
    return piece(work);
  }

  int64_t ask(uint32_t work, int64_t host_ns, uint16_t stream = 0, int64_t about = -1) {
    now_ += host_ns;
    trace.items.push_back({.time_ns = now_, .about = about, .work = work, .stream = stream});
    return static_cast<int64_t>(trace.items.size()) - 1;
  }

 private:
  int64_t now_ = 0;
};

}  // namespace shardlens::tests
