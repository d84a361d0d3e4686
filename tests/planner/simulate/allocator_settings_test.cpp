// Tests the meaning of PYTORCH_CUDA_ALLOC_CONF. The comparison with LibTorch's own reading of
// random texts is tests/profiler/null_device/allocator_model_test.cpp.
#include "planner/simulate/allocator/settings.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace shardlens;
using namespace shardlens::planner;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::string refusal(const std::string& text) {
  try {
    parse_allocator_settings(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::array<uint64_t, 16> divisions(const std::string& text) {
  return parse_allocator_settings("roundup_power2_divisions:" + text).roundup_divisions;
}

}  // namespace

TEST_CASE("without settings the allocator is as PyTorch starts") {
  const AllocatorSettings settings = parse_allocator_settings("");
  CHECK(settings.capacity_bytes == kUnlimitedBytes);
  CHECK(settings.memory_fraction == 1);
  CHECK(settings.large_segment_bytes == 20 * kMiB);
  CHECK_FALSE(settings.expandable_segments);
  CHECK(settings.garbage_collection_threshold == 0);
  CHECK(std::ranges::count(settings.roundup_divisions, uint64_t{0}) == 16);
  CHECK(settings.max_split_bytes == kUnlimitedBytes);
  CHECK(settings.max_non_split_rounding_bytes == 20 * kMiB);
}

TEST_CASE("every key of the allocator's settings is read") {
  const AllocatorSettings settings = parse_allocator_settings(
      "max_split_size_mb:128, max_non_split_rounding_mb:40, garbage_collection_threshold:0.8,"
      "expandable_segments:True,per_process_memory_fraction:0.25,large_segment_size_mb:32,"
      "pinned_num_register_threads:8,release_lock_on_cudamalloc:True,backend:native");
  CHECK(settings.max_split_bytes == 128 * kMiB);
  CHECK(settings.max_non_split_rounding_bytes == 40 * kMiB);
  CHECK(settings.garbage_collection_threshold == 0.8);
  CHECK(settings.expandable_segments);
  CHECK(settings.memory_fraction == 0.25);
  CHECK(settings.large_segment_bytes == 32 * kMiB);
}

TEST_CASE("blocks exceed requests by at most a large segment, unless settings allow more") {
  CHECK(parse_allocator_settings("large_segment_size_mb:32").max_non_split_rounding_bytes ==
        32 * kMiB);
}

TEST_CASE("divisions are for all sizes or by interval") {
  CHECK(std::ranges::count(divisions("4"), uint64_t{4}) == 16);
  // From 256 MiB: interval 8. Smaller ones are like the first one given, the others keep their
  // value.
  CHECK(divisions("[256:1,512:2,1024:4,>:8]") ==
        std::array<uint64_t, 16>{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8});
  CHECK(divisions("[64:8,256:4]") ==
        std::array<uint64_t, 16>{8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 0, 0, 0, 0, 0, 0});
  CHECK(divisions("[]") == std::array<uint64_t, 16>{});
}

TEST_CASE("numbers are read as PyTorch reads them") {
  CHECK(parse_allocator_settings("max_split_size_mb:100MB").max_split_bytes == 100 * kMiB);
  CHECK(parse_allocator_settings("max_split_size_mb : 1 00").max_split_bytes == 100 * kMiB);
  CHECK(parse_allocator_settings("max_split_size_mb:-1").max_split_bytes == kUnlimitedBytes);
  CHECK(parse_allocator_settings("max_split_size_mb:64,max_split_size_mb:80").max_split_bytes ==
        80 * kMiB);
}

TEST_CASE("settings that PyTorch refuses are refused in one line: what, why, how to fix") {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"max_split_size_mb:19", "max_split_size_mb:19: too small; give 20 or more"},
      {"max_split_size_mb:30,large_segment_size_mb:40",
       "max_split_size_mb:30: too small; give 40 or more"},
      {"max_non_split_rounding_mb:1", "max_non_split_rounding_mb:1: too small; give 20 or more"},
      {"large_segment_size_mb:10", "large_segment_size_mb:10: too small; give 11 or more"},
      {"max_split_size_mb:lots", "lots: not a whole number of 64 bits; give one"},
      {"max_split_size_mb:99999999999999999999",
       "99999999999999999999: not a whole number of 64 bits; give one"},
      {"garbage_collection_threshold:1",
       "garbage_collection_threshold:1: not a part of the memory allowed; give more than 0 and "
       "less than 1"},
      {"garbage_collection_threshold:often", "often: not a number; give one, such as 0.8"},
      {"per_process_memory_fraction:1.5",
       "per_process_memory_fraction:1.5: not a part of the device's memory; give 0 to 1"},
      {"expandable_segments:true",
       "expandable_segments:true: neither True nor False; give one of them, written so"},
      {"roundup_power2_divisions:3",
       "roundup_power2_divisions:3: not a power of two; give 1, 2, 4, 8, ..."},
      {"roundup_power2_divisions:[256:3]",
       "roundup_power2_divisions: 3 divisions: not a power of two; give 0, 1, 2, 4, 8, ..."},
      {"roundup_power2_divisions:[100:2]",
       "roundup_power2_divisions: from 100 MiB: not a power of two; give 1, 2, 4, ..., 32768"},
      {"roundup_power2_divisions:[256:2",
       "2: the text ends where more must follow; write key:value,key:value"},
      {"max_split_size_mb",
       "max_split_size_mb: the text ends where more must follow; write "
       "key:value,key:value"},
      {"backend:[native", "backend:[: the list has no end; close it with ]"},
      {"backend:cudaMallocAsync",
       "backend:cudaMallocAsync: not the allocator that is modelled; leave the key out, or give "
       "backend:native"},
      {"max_split_size:100", "max_split_size: no such key; did you mean max_split_size_mb?"},
      {"pinned_num_register_threads:3",
       "pinned_num_register_threads:3: not a power of two up to 128; give 1, 2, 4, ..., 128"},
      {"pinned_reserve_segment_size_mb:0",
       "pinned_reserve_segment_size_mb:0: too small; give 1 or more"},
  };
  for (const auto& [text, message] : refused) {
    CHECK(refusal(text) == "PYTORCH_CUDA_ALLOC_CONF: " + message);
  }
}
