// Reads the traces that torch.profiler writes (Kineto's JSON, also gzipped): what ran on each
// stream of the GPUs, and the memory of the program if profile_memory was on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

enum class GpuWork : uint8_t { kernel, collective, copy, fill };
constexpr auto choice_words(GpuWork) { return words("kernel", "collective", "copy", "fill"); }

/// One kernel, copy or fill, with the times of its trace.
struct GpuSlice {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t name = 0;  // index into GpuTrace::names
  GpuWork work{};
};

struct GpuStream {
  int64_t device = 0;
  int64_t number = 0;
  std::vector<GpuSlice> slices{};  // in the order in which they begin
};

struct GpuTrace {
  std::string path;
  std::vector<std::string> names = {""};
  std::vector<GpuStream> streams{};            // by device and number
  std::optional<int64_t> start_realtime_ns{};  // when its time was 0, since 1970, if it says so
  std::optional<int32_t> rank{};               // of the process, if it says so
  int64_t begin_ns = 0;                        // of the first slice or allocation
  int64_t end_ns = 0;                          // of the last
  std::optional<Profile> memory{};             // from `begin_ns` on, if it has any
};

/// True if a file looks like such a trace by its name and its first bytes.
bool is_gpu_trace(const std::string& path);

/// Reads a trace. Throws std::invalid_argument with one line that names the file if it is damaged,
/// not a trace, or has neither work on a GPU nor memory.
GpuTrace read_gpu_trace(const std::string& path);

}  // namespace shardlens::profiler
