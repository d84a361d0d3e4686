#include "profiler/file/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>

#include "profiler/exchange/write_recording.h"
#include "profiler/file/format.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

const std::filesystem::path kFixtures =
    std::filesystem::path(SHARDLENS_SOURCE_DIR) / "tests/fixtures/profile";

std::string as_csv(const Profile& profile) {
  std::string csv = "time_ns,kind,space,category,address,value,action,label,stream\n";
  for (const Event& e : profile.events) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{}\n", e.time_ns, static_cast<int>(e.kind),
                       to_string(e.space), to_string(e.category), e.address, e.value, e.action,
                       profile.strings.at(e.label), e.stream);
  }
  return csv;
}

/// A line for each label that has a stack: the label, then its frames from the innermost outwards.
std::string stacks_text(const Profile& profile) {
  std::string text;
  const auto& [frames, of_label] = profile.stacks;
  for (size_t label = 0; label < of_label.size(); ++label) {
    if (of_label[label] == 0) continue;
    text += profile.strings.at(label);
    for (uint32_t at = of_label[label]; at != 0; at = frames.at(at).caller) {
      text += fmt::format(" < {} {}:{}", profile.strings.at(frames[at].function),
                          profile.strings.at(frames[at].file), frames[at].line);
    }
    text += "\n";
  }
  return text;
}

constexpr std::string_view kFixtureStacks =
    "train.py:7 main < aten::mm :0 < main /home/user/train.py:7\n"
    "train.py:7 main < main /home/user/train.py:7\n";

using Key = std::pair<Space, uint64_t>;

/// The live blocks after these events: bytes and category by address.
std::map<Key, std::pair<int64_t, Category>> live_after(const std::vector<Event>& events) {
  std::map<Key, std::pair<int64_t, Category>> live;
  for (const Event& event : events) {
    const Key key{event.space, event.address};
    if (event.kind == EventKind::alloc) live[key] = {event.value, event.category};
    if (event.kind == EventKind::free) live.erase(key);
    if (event.kind == EventKind::recategorise && live.contains(key)) {
      live[key].second = event.category;
    }
  }
  return live;
}

/// A recording of several snapshots, and what was recorded.
Profile write_many_blocks(const std::string& path) {
  const Profile profile = tests::synthetic_profile({.steps = 20, .layers = 4});
  tests::write_profile(path, profile, {.block_events = 700, .blocks = 64});
  return profile;
}

/// Changes one byte in the middle of the n-th sealed block of this type, counted from 0.
void damage_block(const std::string& path, const std::string& type, size_t number) {
  std::string bytes = tests::read_file(path);
  for (const BlockReport& block : check_profile(path).blocks) {
    if (block.type != type || number-- != 0) continue;
    bytes[block.offset + sizeof(BlockHeader) + (block.bytes - sizeof(BlockHeader)) / 2] ^= 1;
    break;
  }
  tests::write_file(path, bytes);
}

std::vector<Event> rest_of(Reader& reader) {
  std::vector<Event> all;
  for (std::vector<Event> block; reader.next(block);) {
    all.insert(all.end(), block.begin(), block.end());
  }
  return all;
}

template <class T>
void change(std::string& bytes, size_t at, const std::function<void(T&)>& edit) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  edit(value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

TEST_CASE("recordings of every version so far are read") {
  for (const std::string version : {"v1", "v1.1", "v1.2", "v1.3", "v1.4", "v1.5", "v1.6", "v1.7"}) {
    CAPTURE(version);
    const Profile profile = read_profile((kFixtures / (version + ".slp")).string());
    CHECK(profile.judgement.faults.empty());
    CHECK(profile.header.device == "null:h200");
    CHECK(profile.header.world_size == 8);
    CHECK(profile.header.libraries == "LibTorch 2.11.0\n");
    CHECK(as_csv(profile) == tests::read_file((kFixtures / (version + ".csv")).string()));
    CHECK(stacks_text(profile) == (version < "v1.3" ? "" : kFixtureStacks));
  }
}

// Run once a version: its files are never written again.
TEST_CASE("write the fixture of this version", "[.fixture]") {
  const std::string version = fmt::format("v{}.{}", kMajor, kMinor);
  const std::filesystem::path path = kFixtures / (version + ".slp");
  if (std::filesystem::exists(path)) SKIP("it exists");
  std::filesystem::create_directories(kFixtures);
  Profile profile = tests::synthetic_profile({.seed = 7, .steps = 2, .layers = 2});
  const auto segment = std::ranges::find(profile.events, Space::segment, &Event::space);
  REQUIRE(segment != profile.events.end());
  for (const auto kind : {EventKind::hold, EventKind::release}) {
    profile.events.push_back({.address = segment->address, .value = 512, .kind = kind});
  }
  for (int counter = 0; counter < kCounters; ++counter) {
    profile.events.push_back(
        {.address = static_cast<uint64_t>(counter), .value = 1000, .kind = EventKind::counter});
  }
  const auto add_text = [&](const char* text) {
    profile.strings.push_back(text);
    return static_cast<uint32_t>(profile.strings.size() - 1);
  };
  const uint32_t file = add_text("/home/user/train.py");
  profile.stacks.frames.push_back({.file = file, .function = add_text("main"), .line = 7});
  profile.stacks.frames.push_back({.caller = 1, .function = add_text("aten::mm")});
  for (const uint32_t innermost : {2, 1}) {
    const uint32_t label = add_text("train.py:7 main");
    profile.stacks.of_label.resize(label + 1);
    profile.stacks.of_label[label] = innermost;
    profile.events.push_back({.address = 1 << 20, .value = 512, .label = label});
  }
  profile.events.push_back({.address = 1 << 20,
                            .label = add_text("layers.0.weight"),
                            .kind = EventKind::recategorise,
                            .category = Category::parameter_copy});
  profile.events.push_back({.label = add_text("layers.0.mlp"), .kind = EventKind::module});
  write_recording(profile, path.string());
  tests::write_file((kFixtures / (version + ".csv")).string(), as_csv(profile));
}

TEST_CASE("a recording is read while it is written") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  Writer writer(path, tests::header_of_rank(2), {.block_events = 100, .blocks = 64});
  std::vector<Event> written;
  for (int64_t number = 0; number < 1050; ++number) {
    Event event = tests::numbered_event(number);
    event.label = writer.intern("text " + std::to_string(number));
    writer.append(event);
    written.push_back(event);
    if (number % 7 != 0) continue;
    const Profile profile = read_profile(path);
    REQUIRE(profile.events == written);
    REQUIRE(profile.strings.at(event.label) == "text " + std::to_string(number));
  }
  CHECK(Reader(path).judgement().state == RecordingState::growing);
  writer.close();
  CHECK(Reader(path).judgement().state == RecordingState::whole);
  CHECK(read_profile(path).events == written);
}

TEST_CASE("a reader may start in the middle") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = write_many_blocks(path);
  Reader reader(path);
  CHECK(reader.stored_events() == static_cast<int64_t>(profile.events.size()));
  int started_later = 0;
  for (int part = 0; part <= 10; ++part) {
    reader.start_at(profile.events.back().time_ns * part / 10);
    const std::vector<Event> events = rest_of(reader);
    CHECK(live_after(events) == live_after(profile.events));
    if (events.size() < profile.events.size()) ++started_later;
    if (part == 0) CHECK(events == profile.events);
  }
  CHECK(started_later > 5);
  CHECK(reader.judgement().faults.empty());
}

TEST_CASE("after a damaged block the live memory is right again") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = write_many_blocks(path);
  for (const size_t number : {0, 3, 9}) {
    write_many_blocks(path);
    damage_block(path, "events", number);
    const Profile read = read_profile(path);
    CAPTURE(number, read.judgement.faults);
    CHECK(live_after(read.events) == live_after(profile.events));
    CHECK(read.judgement.faults.size() == 3);  // the damage, the loss, the recovery
    CHECK_THAT(read.judgement.faults.front(), ContainsSubstring("offset"));
    CHECK_THAT(read.judgement.faults.back(), ContainsSubstring("known again"));
  }
}

TEST_CASE("two damaged blocks are recovered from one after the other") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = write_many_blocks(path);
  damage_block(path, "events", 2);
  damage_block(path, "events", 7);  // of the remaining ones
  const Profile read = read_profile(path);
  CHECK(live_after(read.events) == live_after(profile.events));
  // From the last stretch of intact events on, both know the same.
  size_t same = 0;
  while (read.events[read.events.size() - 1 - same] ==
         profile.events[profile.events.size() - 1 - same]) {
    ++same;
  }
  CHECK(same > 1000);
  const auto before = [&](const std::vector<Event>& events) {
    return live_after({events.begin(), events.end() - static_cast<std::ptrdiff_t>(same)});
  };
  CHECK(before(read.events) == before(profile.events));
}

TEST_CASE("a damaged last block is noticed, too") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = tests::synthetic_profile({.steps = 1, .layers = 2});
  tests::write_profile(path, profile);
  damage_block(path, "events", 0);
  const Profile read = read_profile(path);
  CAPTURE(read.judgement.faults);
  CHECK(read.judgement.faults.size() >= 2);
  CHECK(check_profile(path).closed);
}

TEST_CASE("damaged strings leave events without labels") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = tests::synthetic_profile({.steps = 1, .layers = 2});
  tests::write_profile(path, profile);
  damage_block(path, "strings", 0);
  const Profile read = read_profile(path);
  REQUIRE(read.events.size() == profile.events.size());
  for (const Event& event : read.events) CHECK(event.label < read.strings.size());
  CAPTURE(read.judgement.faults);
  CHECK(read.judgement.faults.size() == 2);
}

TEST_CASE("check lists blocks and what is wrong with them") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = write_many_blocks(path);
  const FileReport sound = check_profile(path);
  CHECK(sound.problems.empty());
  CHECK(sound.closed);
  CHECK(sound.major == kMajor);
  CHECK(sound.events == static_cast<int64_t>(profile.events.size()));
  uint64_t bytes = sizeof(Preamble);
  for (const BlockReport& block : sound.blocks) {
    CHECK(block.offset == bytes);
    CHECK_FALSE(block.problem);
    bytes += block.bytes;
  }
  CHECK(bytes == sound.bytes);
  CHECK(sound.bytes == std::filesystem::file_size(path));
  damage_block(path, "events", 4);
  const FileReport damaged = check_profile(path);
  CHECK_FALSE(damaged.problems.empty());
  CHECK(damaged.events < sound.events + 1000);
}

TEST_CASE("another major version is refused, blocks of a later minor one are skipped") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = tests::synthetic_profile({.steps = 1, .layers = 2});
  tests::write_profile(path, profile);
  const std::string sound = tests::read_file(path);
  std::string bytes = sound;
  change<Preamble>(bytes, 0, [](Preamble& preamble) {
    preamble.major = kMajor + 1;
    preamble.crc = crc_of(preamble);
  });
  tests::write_file(path, bytes);
  CHECK_THROWS_MATCHES(read_profile(path), std::invalid_argument,
                       MessageMatches(ContainsSubstring("format 2." + std::to_string(kMinor))));
  bytes = sound;
  change<Preamble>(bytes, 0, [](Preamble& preamble) {
    preamble.minor = kMinor + 1;
    preamble.crc = crc_of(preamble);
  });
  const Bytes later = BlockCodec().pack({.type = static_cast<BlockType>(77)}, Bytes(100));
  bytes.insert(sizeof(Preamble), reinterpret_cast<const char*>(later.data()), later.size());
  tests::write_file(path, bytes);
  const Profile read = read_profile(path);
  CHECK(read.header == profile.header);
  CHECK(read.events == profile.events);
  REQUIRE(read.judgement.faults.size() == 1);
  CHECK_THAT(read.judgement.faults.front(),
             ContainsSubstring("format 1." + std::to_string(kMinor + 1)));
}

TEST_CASE("a file that is not a recording is refused") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("a.slp");
  CHECK_THROWS_AS(read_profile(path), std::invalid_argument);
  for (const std::string& bytes : {std::string(), std::string("hello"), std::string(5000, 'x')}) {
    tests::write_file(path, bytes);
    CHECK_THROWS_MATCHES(read_profile(path), std::invalid_argument,
                         MessageMatches(ContainsSubstring("not a recording")));
  }
  CHECK_THROWS_AS(read_profile(folder.path()), std::invalid_argument);
}

TEST_CASE("the open blocks of another recording are left alone") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  {
    Writer other(folder.file("other.slp"), {});
    other.append(tests::numbered_event(1));
    std::filesystem::copy_file(folder.file("other.slp.open"), path + ".open");
  }
  const Profile profile = tests::synthetic_profile({.steps = 1, .layers = 2});
  tests::write_profile(folder.file("mine.slp"), profile);
  std::filesystem::rename(folder.file("mine.slp"), path);
  CHECK(read_profile(path).events == profile.events);
}

}  // namespace shardlens::profiler
