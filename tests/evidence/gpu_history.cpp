#include "tests/evidence/gpu_history.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "tests/support/gzip_file.h"

namespace shardlens::tests {

using planner::AllocatorRequest;
using planner::AllocatorRequestKind;

namespace {

const std::map<std::string, GpuEventKind> kKinds = {
    {"alloc", GpuEventKind::alloc},
    {"free_requested", GpuEventKind::free_requested},
    {"free_completed", GpuEventKind::free_completed},
    {"segment_alloc", GpuEventKind::segment_alloc},
    {"segment_free", GpuEventKind::segment_free},
    {"segment_free_cache", GpuEventKind::segment_free_cache},
    {"segment_map", GpuEventKind::segment_map},
    {"segment_unmap", GpuEventKind::segment_unmap},
    {"segment_unmap_cache", GpuEventKind::segment_unmap_cache},
    {"oom", GpuEventKind::oom},
};

/// Reads "seg ADDRESS SIZE STREAM IS_SMALL COUNT" and a line "SIZE ADDRESS" a block, where a free
/// block has the address -1. "seg" has been read.
void read_segment(std::istream& in, GpuHistory& history) {
  planner::SegmentLayout segment;
  int64_t bytes = 0;
  bool is_small = false;
  size_t count = 0;
  in >> segment.address >> bytes >> segment.stream >> is_small >> count;
  segment.pool = is_small ? profiler::Pool::small : profiler::Pool::large;
  for (size_t i = 0; i < count && in; ++i) {
    planner::BlockLayout block;
    int64_t address = 0;
    in >> block.bytes >> address;
    block.is_held = address >= 0;
    if (block.is_held) {
      block.requested_bytes = block.bytes;
      history.held.push_back(static_cast<uint64_t>(address));
    }
    bytes -= block.bytes;
    segment.blocks.push_back(block);
  }
  if (bytes != 0) in.setstate(std::ios::failbit);
  history.start.push_back(std::move(segment));
}

void read_text(std::istream& in, GpuHistory& history) {
  std::string word;
  in >> word >> history.streams;
  while (in >> word && word == "seg") read_segment(in, history);
  while (in >> word && word != "final") {
    GpuEvent event{.kind = kKinds.at(word)};
    in >> event.address >> event.bytes >> event.stream;
    history.events.push_back(event);
  }
  if (word != "final") throw std::runtime_error(history.file + ": damaged");
  uint64_t address = 0;
  for (int64_t bytes = 0; in >> address >> bytes;) history.last_segments[address] = bytes;
}

/// Gives the events of each private pool a stream of their own. `ranges` has the first and last
/// event of each pool, counted from 0, and the stream that its graphs were captured on.
void name_private_pools(const nlohmann::json& ranges, GpuHistory& history) {
  for (const nlohmann::json& range : ranges) {
    const size_t last = range.at(1);
    const planner::StreamIndex captured_on = range.at(2);
    const auto stream = static_cast<planner::StreamIndex>(history.streams++);
    for (size_t i = range.at(0); i <= last; ++i) {
      GpuEvent& event = history.events.at(i);
      if (event.stream == captured_on) event.stream = stream;
    }
    history.private_streams.push_back(stream);
  }
}

planner::AllocatorSettings settings_of(const nlohmann::json& row) {
  const std::string text = row.value("settings", "");
  planner::AllocatorSettings settings = planner::parse_allocator_settings(text);
  if (!row.at("capacity_bytes").is_null()) settings.capacity_bytes = row.at("capacity_bytes");
  settings.free_block_order = models::FreeBlockOrder::address;  // all are of 2.11 or older
  return settings;
}

}  // namespace

std::optional<std::filesystem::path> evidence_folder() {
  const char* asked = std::getenv("SHARDLENS_EVIDENCE");
  const std::filesystem::path folder =
      asked != nullptr ? asked : SHARDLENS_SOURCE_DIR "/../shared/evidence";
  if (!std::filesystem::exists(folder)) return {};
  return folder;
}

std::vector<GpuHistory> read_gpu_histories(const std::filesystem::path& folder) {
  std::ifstream index(folder / "index.jsonl");
  std::vector<GpuHistory> histories;
  for (std::string line; std::getline(index, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    GpuHistory history{.file = row.at("file"), .gpu = row.at("gpu"), .torch = row.at("torch")};
    history.settings = settings_of(row);
    if (row.contains("alloc_retries")) history.alloc_retries = row.at("alloc_retries");
    history.has_private_pools = row.value("has_private_pools", false);
    std::istringstream text(read_gzip_file(folder / history.file));
    read_text(text, history);
    if (row.contains("private_pools")) name_private_pools(row.at("private_pools"), history);
    histories.push_back(std::move(history));
  }
  return histories;
}

planner::AllocatorHistory requests_of(const GpuHistory& history) {
  planner::AllocatorHistory requests{.start = history.start};
  std::unordered_map<uint64_t, uint32_t> live;  // blocks by address
  uint32_t blocks = 0;
  for (const uint64_t address : history.held) live[address] = blocks++;
  GpuEventKind previous = GpuEventKind::alloc;
  for (const GpuEvent& event : history.events) {
    AllocatorRequest request{.bytes = event.bytes, .stream = event.stream};
    const GpuEventKind before = std::exchange(previous, event.kind);
    if (event.kind == GpuEventKind::alloc) {
      live[event.address] = request.block = blocks++;
    } else if (event.kind == GpuEventKind::oom) {
      request.block = blocks++;
    } else if (event.kind == GpuEventKind::free_completed) {
      request.kind = AllocatorRequestKind::free;
      request.block = live.at(event.address);
    } else if (is_emptied_cache(event.kind) && before != event.kind) {
      request.kind = AllocatorRequestKind::empty_cache;
    } else {
      continue;
    }
    requests.requests.push_back(request);
  }
  return requests;
}

bool is_emptied_cache(GpuEventKind kind) {
  return kind == GpuEventKind::segment_free_cache || kind == GpuEventKind::segment_unmap_cache;
}

}  // namespace shardlens::tests
