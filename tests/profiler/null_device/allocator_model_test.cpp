// Compares the planner's model of the caching allocator with LibTorch's own, on the null device,
// through seeded storms of operations over several streams on a device that is nearly full. Every
// scenario has its own process, since the device's memory is read once.
//
//     SHARDLENS_STORM_SEED=7 ctest --preset long -R "ten million operations" -V
//
// SHARDLENS_STORM_OPERATIONS sets another number of operations than ten million.
#include <ATen/ATen.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "planner/simulate/allocator/hashed_streams.h"
#include "planner/simulate/allocator/model.h"
#include "planner/simulate/allocator/settings.h"
#include "profiler/null_device/null_device.h"
#include "tests/profiler/null_device/allocator_pair.h"
#include "tests/support/allocator_storm.h"
#include "tests/support/process.h"

using namespace shardlens;
using tests::AllocatorPair;
using tests::AllocatorStorm;
using tests::StormCoverage;
using tests::StormOperation;
using C10Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Scenario {
  std::string name;
  std::string settings;  // PYTORCH_CUDA_ALLOC_CONF
  int64_t capacity_bytes = 1200 * kMiB;
  tests::StormSettings storm = {};
  // The comparison only counts if all of these have happened.
  std::vector<int64_t StormCoverage::*> happens = {&StormCoverage::retries,
                                                   &StormCoverage::failures};
};

const std::vector<Scenario>& scenarios() {
  constexpr auto kRetries = &StormCoverage::retries;
  constexpr auto kCollections = &StormCoverage::collections;
  constexpr auto kOversize = &StormCoverage::oversize_retries;
  constexpr auto kUnmapped = &StormCoverage::unmapped_ranges;
  static const std::vector<Scenario> all = {
      {.name = "default", .settings = "", .capacity_bytes = 2000'000'007},
      {.name = "roomy", .settings = "", .capacity_bytes = 40000 * kMiB, .happens = {}},
      {.name = "expandable", .settings = "expandable_segments:True", .happens = {kUnmapped}},
      {.name = "expandable-limited",
       .settings = "expandable_segments:True,per_process_memory_fraction:0.7",
       .happens = {kUnmapped, kRetries}},
      {.name = "max-split", .settings = "max_split_size_mb:40", .happens = {kOversize, kRetries}},
      {.name = "max-split-least",
       .settings = "max_split_size_mb:20,max_non_split_rounding_mb:30",
       .happens = {kOversize, kRetries}},
      {.name = "roundup", .settings = "roundup_power2_divisions:4"},
      {.name = "roundup-list", .settings = "roundup_power2_divisions:[1:8,4:0,16:2,64:16,>:4]"},
      {.name = "fraction", .settings = "", .storm = {.sets_fraction = true}},
      {.name = "collection",
       .settings = "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9",
       .storm = {.sets_fraction = true},
       .happens = {kCollections, kRetries}},
      {.name = "large-segments", .settings = "large_segment_size_mb:33"},
      {.name = "collection-max-split",
       .settings = "garbage_collection_threshold:0.8,max_split_size_mb:64,"
                   "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
       .storm = {.sets_fraction = true},
       .happens = {kCollections, kOversize, kRetries}},
      {.name = "expandable-all",
       .settings = "expandable_segments:True,max_split_size_mb:50,large_segment_size_mb:24,"
                   "garbage_collection_threshold:0.7,roundup_power2_divisions:8",
       .capacity_bytes = 1500'000'000,
       .storm = {.sets_fraction = true},
       .happens = {kUnmapped, kRetries}},
      {.name = "many-streams", .settings = "", .storm = {.streams = 24}},
      {.name = "expandable-many-streams",
       .settings = "expandable_segments:True",
       .capacity_bytes = 1024 * kMiB,
       .storm = {.streams = 12},
       .happens = {kUnmapped, kRetries}},
  };
  return all;
}

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

std::string words_of(const StormOperation& operation) {
  return fmt::format("kind {}, stream {}, slot {}, {} bytes, fraction {}",
                     static_cast<int>(operation.kind), operation.stream, operation.slot,
                     operation.bytes, operation.fraction);
}

/// Stops when the two differ.
void follow(const Scenario& scenario, uint64_t seed, uint64_t operations) {
  AllocatorPair pair(scenario.settings, scenario.storm.streams);
  AllocatorStorm storm(seed, scenario.storm);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < operations; ++i) {
    const StormOperation operation = storm.next();
    const std::optional<bool> succeeded = pair.apply(operation);
    INFO(scenario.name << ", seed " << seed << ", operation " << i << ": " << words_of(operation));
    if (!succeeded) FAIL(pair.difference());
    if (!*succeeded) storm.failed(operation);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const StormCoverage& c = pair.coverage();
  fmt::print(
      "> {:24} seed {}: {} operations, {} events, {} segments, {} collections, {} oversize, {} "
      "retries, {} failures, {} kept, {} unmapped: equal, {:.1f} s\n",
      scenario.name, seed, operations, c.events, c.new_segments, c.collections, c.oversize_retries,
      c.retries, c.failures, c.kept_for_streams, c.unmapped_ranges, seconds.count());
  CHECK(c.kept_for_streams > 0);
  for (const auto happens : scenario.happens) CHECK(c.*happens > 0);
}

/// The lines after "> ".
std::string told(const std::string& output) {
  std::string lines;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("> ")) lines += line.substr(2) + "\n";
  }
  return lines;
}

/// All scenarios, in their own processes. Their seeds differ.
void follow_all(uint64_t seed, uint64_t operations) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto start = std::chrono::steady_clock::now();
  const uint64_t each = (operations + scenarios().size() - 1) / scenarios().size();
  for (size_t i = 0; i < scenarios().size(); ++i) {
    const tests::ProcessEnd ended = tests::run(
        {"/usr/bin/env", fmt::format("SHARDLENS_STORM_SCENARIO={}", i),
         fmt::format("SHARDLENS_STORM_SEED={}", seed + i),
         fmt::format("SHARDLENS_STORM_OPERATIONS={}", each),
         fmt::format("{}={}", profiler::kNullCapacityVariable, scenarios()[i].capacity_bytes), self,
         "follow one scenario"});
    INFO(ended.out << ended.err);
    CHECK(ended.exit_code == 0);
    fmt::print("{}", told(ended.out));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("seed {}, {} operations in all: {:.1f} s\n", seed, each * scenarios().size(),
             seconds.count());
}

}  // namespace

TEST_CASE("follow one scenario", "[.process]") {
  const auto scenario = static_cast<size_t>(from_environment("SHARDLENS_STORM_SCENARIO", 0));
  follow(scenarios().at(scenario), from_environment("SHARDLENS_STORM_SEED", 1),
         from_environment("SHARDLENS_STORM_OPERATIONS", 20'000));
}

TEST_CASE("the allocator model follows LibTorch's allocator operation by operation") {
  follow_all(from_environment("SHARDLENS_STORM_SEED", 1), 600'000);
}

TEST_CASE("the allocator model follows LibTorch's allocator through ten million operations",
          "[long]") {
  follow_all(from_environment("SHARDLENS_STORM_SEED", 1),
             from_environment("SHARDLENS_STORM_OPERATIONS", 10'000'000));
}

namespace {

using Words = std::vector<std::string>;

Words words(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

const std::string& any_of(std::mt19937_64& engine, const Words& words) {
  return words[engine() % words.size()];
}

/// Any value, good or bad, for any key.
const Words kValues = words(
    "20 19 0 1 64 100 300MB -1 0.5 1.5 1e-3 .7x nan True False true native [256:1,512:2,>:8] [>:4] "
    "[64:8,4:2] [100:2] [256:3 [32768:4,65536:2] [] [ 99999999999999999999 17592186044416");

const Words kPieces = words("[ ] > : , 2 16 3 True backend x");

/// Keys, each with good values.
const std::vector<std::pair<std::string, Words>> kKeys = {
    {"max_split_size_mb", words("64 300MB -1")},
    {"max_non_split_rounding_mb", words("64 70 17592186044416")},
    {"large_segment_size_mb", words("11 20 25 64")},
    {"garbage_collection_threshold", words("0.5 .7x 1e-3")},
    {"roundup_power2_divisions",
     words("1 4 16 [256:1,512:2,>:8] [>:4] [64:8,4:2] [] [32768:4,65536:2]")},
    {"expandable_segments", words("True False")},
    {"per_process_memory_fraction", words("0 0.5 1")},
    {"pinned_use_background_threads", words("True False")},
    {"pinned_num_register_threads", words("1 64 128")},
    {"release_lock_on_cudamalloc", words("True False")},
    {"graph_capture_record_stream_reuse", words("True False")},
    {"pinned_reserve_segment_size_mb", words("1 64")},
    {"pinned_use_cuda_host_register", words("True False")},
    {"backend", words("native")},
};

/// Keys and values, sometimes with a value of another key, or with a piece too many or too few.
std::string random_settings(std::mt19937_64& engine) {
  std::string text;
  for (uint64_t left = 1 + engine() % 4; left > 0; --left) {
    const auto& [key, values] = kKeys[engine() % kKeys.size()];
    text += key + ":" + any_of(engine, engine() % 4 == 0 ? kValues : values);
    if (left > 1 || engine() % 10 == 0) text += ",";
  }
  for (uint64_t edits = engine() % 3 == 0 ? 1 + engine() % 3 : 0; edits > 0; --edits) {
    const size_t at = engine() % (text.size() + 1);
    if (engine() % 2 == 0) {
      text.insert(at, engine() % 8 == 0 ? " " : any_of(engine, kPieces));
    } else {
      text.erase(at, 1 + engine() % 3);
    }
  }
  return text;
}

/// Counts as the model does: anything above 4 EiB is 4 EiB.
int64_t limited(size_t bytes) {
  return static_cast<int64_t>(std::min(bytes, static_cast<size_t>(planner::kUnlimitedBytes)));
}

std::optional<planner::AllocatorSettings> read_by_libtorch(const std::string& text) {
  using c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
  // These two, and the fraction, keep the values of an earlier text.
  c10::CachingAllocator::setAllocatorSettings(
      "large_segment_size_mb:20,expandable_segments:False,per_process_memory_fraction:1");
  try {
    c10::CachingAllocator::setAllocatorSettings(text);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  planner::AllocatorSettings settings{
      .memory_fraction = CUDAAllocatorConfig::per_process_memory_fraction(),
      .large_segment_bytes = limited(C10Config::large_segment_size()),
      .expandable_segments = C10Config::use_expandable_segments(),
      .garbage_collection_threshold = C10Config::garbage_collection_threshold(),
      .max_split_bytes = limited(C10Config::max_split_size()),
      .max_non_split_rounding_bytes = limited(C10Config::max_non_split_rounding_size())};
  std::ranges::copy(C10Config::roundup_power2_divisions(), settings.roundup_divisions.begin());
  return settings;
}

std::optional<planner::AllocatorSettings> read_by_us(const std::string& text) {
  try {
    return planner::parse_allocator_settings(text);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("settings mean the same as to LibTorch, and the same ones are refused") {
  const uint64_t seed = from_environment("SHARDLENS_STORM_SEED", 1);
  std::mt19937_64 engine(seed);
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    const std::string text = random_settings(engine);
    INFO("seed " << seed << ": \"" << text << "\"");
    const auto theirs = read_by_libtorch(text);
    const auto ours = read_by_us(text);
    ++(theirs ? taken : refused);
    REQUIRE(theirs.has_value() == ours.has_value());
    if (ours) REQUIRE(*theirs == *ours);
  }
  fmt::print("seed {}: {} settings taken, {} refused\n", seed, taken, refused);
  CHECK(taken > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("streams are visited in the order of c10's hash table") {
  const uint64_t seed = from_environment("SHARDLENS_STORM_SEED", 1);
  std::mt19937_64 engine(seed);
  CAPTURE(seed);
  for (int round = 0; round < 200; ++round) {
    ska::flat_hash_set<c10::Stream> theirs;
    planner::HashedStreams ours;
    const uint64_t spread = round % 2 == 0 ? 40 : uint64_t{1} << 40;
    std::vector<c10::Stream> streams;
    for (int i = 0; i < 60; ++i) {
      const auto id = static_cast<c10::StreamId>(engine() % spread);
      const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, 0), id);
      if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
    }
    for (int i = 0; i < 100; ++i) {
      const size_t index = engine() % streams.size();
      const bool is_new = theirs.insert(streams[index]).second;
      CHECK(ours.insert(static_cast<planner::StreamIndex>(index), streams[index].hash()) == is_new);
      size_t place = ours.first();
      for (auto it = theirs.begin(); it != theirs.end();) {
        REQUIRE(place != ours.end());
        REQUIRE(streams[ours.at(place)] == *it);
        const bool erased = engine() % 20 == 0;
        if (erased) {
          it = theirs.erase(it);
        } else {
          ++it;
        }
        place = erased ? ours.erase(place) : ours.next(place);
      }
      REQUIRE(place == ours.end());
    }
  }
}

TEST_CASE("the model's streams are named as LibTorch names its own") {
  const auto named = planner::default_and_pool_streams(33);
  cudaStream_t last = nullptr;
  CHECK(named[0].id == c10::cuda::getDefaultCUDAStream(0).id());
  for (size_t i = 1; i < named.size(); ++i) {
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, 0);
    CHECK(named[i].id == stream.id());
    CHECK(stream.stream() > last);
    CHECK(named[i].handle > named[i - 1].handle);
    last = stream.stream();
  }
}
