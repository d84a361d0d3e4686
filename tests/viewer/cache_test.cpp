#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"
#include "viewer/model/lane_builder.h"
#include "viewer/model/lane_cache.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

void check_same(const Lane& a, const Lane& b) {
  CHECK(a.info().header == b.info().header);
  CHECK(a.info().strings == b.info().strings);
  CHECK(a.info().stacks == b.info().stacks);
  CHECK(a.info().events == b.info().events);
  CHECK(a.info().end_ns == b.info().end_ns);
  CHECK(a.info().space == b.info().space);
  CHECK(a.peak().max_change == b.peak().max_change);
  CHECK(a.peak().at_max == b.peak().at_max);
  REQUIRE(a.step_peak().has_value() == b.step_peak().has_value());
  CHECK(a.alive_after(a.changes() / 2) == b.alive_after(b.changes() / 2));
  CHECK(a.arrays().spans.size() == b.arrays().spans.size());
  CHECK(a.arrays().stretches.size() == b.arrays().stretches.size());
  CHECK(a.reserved_between(0, 1e18) == b.reserved_between(0, 1e18));
}

/// A short recording, and the file in which its lane is kept.
struct KeptLane {
  KeptLane() {
    const std::string path = folder.file("rank0.slp");
    tests::write_profile(path, tests::synthetic_profile({.steps = 3, .layers = 2}));
    stamp = stamp_of(path);
    lane = read_lane(path);
    save_cached_lane(folder.path(), stamp, lane);
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (entry.path().extension() == ".lane") file = entry.path();
    }
  }

  std::optional<Lane> load() const { return load_cached_lane(folder.path(), stamp); }

  tests::TemporaryFolder folder;
  RecordingStamp stamp;
  Lane lane;
  fs::path file;
};

void flip(const fs::path& path, uint64_t offset, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ (1 << bit)));
}

}  // namespace

TEST_CASE("a lane from the cache is the lane that was kept") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  tests::write_profile(path, tests::synthetic_profile({.steps = 30, .layers = 6}));
  const Lane lane = read_lane(path);
  const RecordingStamp stamp = stamp_of(path);
  CHECK_FALSE(load_cached_lane(folder.path(), stamp).has_value());
  save_cached_lane(folder.path(), stamp, lane);
  const auto cached = load_cached_lane(folder.path(), stamp);
  REQUIRE(cached.has_value());
  check_same(lane, *cached);

  // There is no lane for another state of the file.
  RecordingStamp later = stamp;
  later.changed_ns += 1;
  CHECK_FALSE(load_cached_lane(folder.path(), later).has_value());
}

TEST_CASE("a cached lane that is cut is not used") {
  const KeptLane kept;
  const auto size = fs::file_size(kept.file);
  for (const double part : {0.9999, 0.5, 0.001, 0.0}) {
    fs::resize_file(kept.file, static_cast<uintmax_t>(static_cast<double>(size) * part));
    CHECK_FALSE(kept.load().has_value());
  }
}

TEST_CASE("a cached lane that is damaged is not used") {
  const KeptLane kept;
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int unused = 0;
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t offset = random() % fs::file_size(kept.file);
    const int bit = static_cast<int>(random() % 8);
    flip(kept.file, offset, bit);
    const auto cached = kept.load();
    if (cached) check_same(kept.lane, *cached);  // bytes between two arrays are never read
    unused += cached ? 0 : 1;
    flip(kept.file, offset, bit);
  }
  CHECK(unused > kTries / 2);
  CHECK(kept.load().has_value());
}

TEST_CASE("short recordings are not kept, long ones are, the oldest go first") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const std::string cache = folder.file("cache");
  tests::write_profile(path, tests::synthetic_profile({.steps = 2, .layers = 2}));
  open_lane(path, cache);
  CHECK_FALSE(fs::exists(cache));
  tests::write_profile(path, tests::synthetic_profile({.steps = 200, .layers = 24}));
  const Lane first = open_lane(path, cache);
  REQUIRE(load_cached_lane(cache, stamp_of(path)).has_value());
  check_same(first, open_lane(path, cache));
  save_cached_lane(cache, stamp_of(path), first, 1);
  CHECK_FALSE(load_cached_lane(cache, stamp_of(path)).has_value());
}

}  // namespace shardlens::viewer
