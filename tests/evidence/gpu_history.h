// Histories of PyTorch's caching allocator on real GPUs: the segments and blocks that stood when a
// history began, then each event with the address that the GPU's driver gave. Those that other
// people have published lie in a folder beside the repository; those of tests/gpu/run.sh in
// tests/fixtures/gpu.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/simulate/allocator/layout.h"
#include "planner/simulate/allocator/replay.h"
#include "planner/simulate/allocator/settings.h"

namespace shardlens::tests {

enum class GpuEventKind : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,        // to make room for a request
  segment_free_cache,  // by torch.cuda.empty_cache()
  segment_map,         // a page or more of an expandable segment
  segment_unmap,
  segment_unmap_cache,
  oom,
};

struct GpuEvent {
  GpuEventKind kind = GpuEventKind::alloc;
  uint64_t address = 0;  // oom: the bytes that the device had free
  int64_t bytes = 0;
  planner::StreamIndex stream = 0;
};

struct GpuHistory {
  std::string file;
  std::string gpu;
  std::string torch;
  planner::AllocatorSettings settings{};   // its capacity is unlimited unless the GPU ran full
  bool has_private_pools = false;          // of CUDA graphs
  std::optional<int64_t> alloc_retries{};  // as PyTorch counted them, with those of failures
  size_t streams = 1;
  /// The streams that stand for a private pool each; none: which event is of which pool is not
  /// known.
  std::vector<planner::StreamIndex> private_streams{};

  std::vector<planner::SegmentLayout> start{};
  std::vector<uint64_t> held{};  // the addresses of the blocks held at the start
  std::vector<GpuEvent> events{};
  std::map<uint64_t, int64_t> last_segments{};  // bytes by address, at the end

  /// Returns true if the model can follow it.
  bool is_followed() const { return !has_private_pools || !private_streams.empty(); }
};

/// Returns the folder of the evidence: $SHARDLENS_EVIDENCE or ../shared/evidence beside the
/// repository; nothing if there is none.
std::optional<std::filesystem::path> evidence_folder();

/// Reads the histories that index.jsonl in `folder` names. Throws std::runtime_error for damage.
std::vector<GpuHistory> read_gpu_histories(const std::filesystem::path& folder);

/// Returns whether the event gives memory back by torch.cuda.empty_cache().
bool is_emptied_cache(GpuEventKind kind);

/// Returns the history as requests without addresses, including those that found no memory.
planner::AllocatorHistory requests_of(const GpuHistory& history);

}  // namespace shardlens::tests
