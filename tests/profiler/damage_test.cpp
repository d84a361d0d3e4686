// Recordings cut off or changed anywhere are read or refused, without a crash, a hang or a wrong
// event.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <random>
#include <set>
#include <stdexcept>

#include "profiler/file/reader.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/sample.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {
namespace {

struct VariantOutcome {
  int refused = 0;
  int recovered = 0;  // with a diagnostic
  int unharmed = 0;
};

Profile small_profile() {
  return tests::synthetic_profile({.steps = 2, .layers = 1, .evaluate_every = 0});
}

/// The file is refused with a reason, or gives its events, with a reason if some are missing. A
/// damaged file must not pass for a whole one.
void read_damaged(const std::string& path, const Profile& whole, VariantOutcome& outcome) {
  try {
    const Profile read = read_profile(path);
    check_profile(path);
    if (read.judgement.faults.empty()) {
      REQUIRE(read.events == whole.events);
      ++outcome.unharmed;
    } else {
      ++outcome.recovered;
    }
  } catch (const std::invalid_argument& error) {
    REQUIRE(std::string(error.what()).find(path) != std::string::npos);
    ++outcome.refused;
  }
}

/// Leaves a recording of `count` events as kill -9 does, and reads it once for every place in its
/// file of open blocks from which 512 bytes are zero, as when a disk has lost a sector.
void read_with_zeros(int64_t events) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp"), live = folder.file("live.slp");
  Writer writer(live, {}, {.block_events = 60, .blocks = 4});
  for (int64_t i = 0; i < events; ++i) {
    Event event = tests::numbered_event(i);
    event.label = writer.intern(fmt::format("text {}", i));
    writer.append(event);
  }
  for (const char* suffix : {".open", ""}) {
    std::filesystem::copy_file(live + suffix, path + suffix);
  }
  const Profile whole = read_profile(path);
  REQUIRE(whole.judgement.faults.empty());
  REQUIRE(static_cast<int64_t>(whole.events.size()) == events);
  const std::string sound = tests::read_file(path + ".open");
  constexpr size_t kStep = 8, kZeros = 512;
  for (size_t used = 0; used != std::string::npos;) {
    const size_t at = used / kStep * kStep;
    used = sound.find_first_not_of('\0', at + kStep);
    std::string bytes = sound;
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                std::min(kZeros, bytes.size() - at), '\0');
    tests::write_file(path + ".open", bytes);
    const Profile read = read_profile(path);
    CAPTURE(events, at);
    if (!read.judgement.faults.empty()) continue;
    REQUIRE(read.events == whole.events);
    REQUIRE(read.strings == whole.strings);
  }
}

bool is_prefix(const std::vector<Event>& part, const std::vector<Event>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

TEST_CASE("a file cut off anywhere gives its first events") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = small_profile();
  tests::write_profile(path, profile, {.block_events = 60, .blocks = 64});
  const auto size = std::filesystem::file_size(path);
  REQUIRE(read_profile(path).events == profile.events);
  size_t most = 0;
  for (auto bytes = size; bytes-- > 0;) {
    std::filesystem::resize_file(path, bytes);
    VariantOutcome outcome;
    read_damaged(path, profile, outcome);
    REQUIRE(outcome.unharmed == 0);
    if (outcome.refused > 0) continue;
    const Profile read = read_profile(path);
    REQUIRE(is_prefix(read.events, profile.events));
    most = std::max(most, read.events.size());
  }
  CHECK(most == profile.events.size());
}

TEST_CASE("flipped bits never crash a reader, and never pass unseen") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = small_profile();
  tests::write_profile(path, profile, {.block_events = 60, .blocks = 64});
  const std::string sound = tests::read_file(path);
  VariantOutcome outcome;
  const int64_t rounds = tests::sampled(10'000);
  for (int64_t round = 0; round < rounds; ++round) {
    std::string bytes = sound;
    const int flips = 1 + static_cast<int>(engine() % 4);
    for (int i = 0; i < flips; ++i) {
      bytes[engine() % bytes.size()] ^= static_cast<char>(1U << (engine() % 8));
    }
    tests::write_file(path, bytes);
    read_damaged(path, profile, outcome);
  }
  fmt::print("seed {}: {} damaged files of {} bytes: {} refused, {} recovered\n", seed, rounds,
             sound.size(), outcome.refused, outcome.recovered);
  CHECK(outcome.recovered > rounds / 2);
}

TEST_CASE("flipped bits in the file of open blocks never crash a reader") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const std::string live = folder.file("live.slp");
  Writer writer(live, {}, {.block_events = 60, .blocks = 4});
  for (int i = 0; i < 40; ++i) writer.intern("text " + std::to_string(i));
  for (int64_t i = 0; i < 100; ++i) writer.append(tests::numbered_event(i));
  std::filesystem::copy_file(live, path);
  const std::string sound = tests::read_file(live + ".open");
  // The range of its preamble, strings and blocks: the rest is empty space.
  const size_t places[] = {0, 4096, 4096 + (1 << 20), 4096 + (2 << 20)};
  for (int round = 0; round < tests::sampled(2'000); ++round) {
    std::string bytes = sound;
    for (int i = 0; i < 3; ++i) {
      const size_t at = places[engine() % 4] + engine() % (round % 2 == 0 ? 64 : 3000);
      bytes[at] ^= static_cast<char>(1U << (engine() % 8));
    }
    tests::write_file(path + ".open", bytes);
    const Profile read = read_profile(path);
    REQUIRE(read.events.size() <= 240);
    for (const Event& event : read.events) REQUIRE(event.label < read.strings.size());
  }
}

TEST_CASE("512 zeros anywhere in the file of open blocks never pass unseen") {
  // The last block has 1 event; the 11 that fit a sector beside its header; one more; 40.
  for (const int64_t events : {61, 71, 72, 100}) read_with_zeros(events);
}

TEST_CASE("parts of a file in any order, repeated or mixed with others never crash a reader") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = small_profile();
  tests::write_profile(path, profile, {.block_events = 60, .blocks = 64});
  const std::string sound = tests::read_file(path);
  for (int round = 0; round < 1'000; ++round) {
    std::string bytes = sound.substr(0, engine() % sound.size());
    for (int part = 0; part < 4; ++part) {
      const size_t from = engine() % sound.size();
      bytes += sound.substr(from, engine() % (sound.size() - from));
    }
    tests::write_file(path, bytes);
    VariantOutcome outcome;
    read_damaged(path, profile, outcome);
  }
}

}  // namespace shardlens::profiler
