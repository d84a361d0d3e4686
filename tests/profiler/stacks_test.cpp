// Tests stacks of labels: written, imported or damaged ones come back unchanged, or not at all.

#include <fmt/format.h>

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/document/read_document.h"
#include "profiler/exchange/export_memory_viz.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/exchange/write_recording.h"
#include "profiler/file/reader.h"
#include "profiler/file/writer.h"
#include "tests/support/gzip_file.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {
namespace {

using Stack = std::vector<std::string>;  // "file:line function", the innermost first

std::string frame_text(const std::vector<std::string>& strings, const StackFrame& frame) {
  return fmt::format("{}:{} {}", strings.at(frame.file), frame.line, strings.at(frame.function));
}

Stack stack_of(const std::vector<std::string>& strings, const Stacks& stacks, uint32_t label) {
  Stack stack;
  for (uint32_t at = stacks.innermost_frame(label); at != 0; at = stacks.frames.at(at).caller) {
    stack.push_back(frame_text(strings, stacks.frames[at]));
  }
  return stack;
}

/// The text of a label and its stack.
using Place = std::pair<std::string, Stack>;

/// A profile with `labels` labels of random stacks up to 40 deep, whose frames are shared by most,
/// and one allocation for each.
Profile profile_with_stacks(std::mt19937_64& engine, size_t labels) {
  Profile profile;
  const auto below = [&](uint64_t limit) { return static_cast<uint32_t>(engine() % limit); };
  profile.strings = {"",
                     "/home/user/train.py",
                     "/usr/lib/torch/nn/module.py",
                     "main",
                     "forward",
                     "Block.forward",
                     "aten::mm"};
  std::vector<StackFrame>& frames = profile.stacks.frames;
  profile.stacks.of_label.resize(profile.strings.size());
  for (uint32_t i = 0; i < labels; ++i) {
    const auto depth = below(40);
    uint32_t innermost = i % 3 == 0 ? 0 : below(frames.size());
    for (uint32_t call = 0; call < depth; ++call) {
      frames.push_back({innermost, below(3), 3 + below(4), i * 64 + call});
      innermost = static_cast<uint32_t>(frames.size() - 1);
    }
    profile.strings.push_back(fmt::format("train.py:{} main", i / 4));
    profile.stacks.of_label.push_back(innermost);
    profile.events.push_back({.time_ns = i,
                              .address = 512 * (i + 1),
                              .value = 512,
                              .label = static_cast<uint32_t>(profile.strings.size() - 1)});
  }
  return profile;
}

std::vector<Place> places_of(const Profile& profile) {
  std::vector<Place> places;
  for (const Event& event : profile.events) {
    places.emplace_back(profile.strings.at(event.label),
                        stack_of(profile.strings, profile.stacks, event.label));
  }
  return places;
}

std::map<Stack, int> allocations_by_stack(const Profile& profile) {
  std::map<Stack, int> counts;
  for (const Event& event : profile.events) {
    if (event.kind != EventKind::alloc || event.space != Space::device) continue;
    ++counts[stack_of(profile.strings, profile.stacks, event.label)];
  }
  return counts;
}

/// Writes the profile's labels as a recorder does: each with the first event that has it.
void record(const Profile& profile, Writer& writer) {
  std::vector<uint32_t> numbers = {0};
  for (size_t i = 1; i < profile.stacks.frames.size(); ++i) {
    const StackFrame& frame = profile.stacks.frames[i];
    const auto text = [&](uint32_t id) { return writer.intern(profile.strings[id]); };
    const StackFrame written{numbers[frame.caller], text(frame.file), text(frame.function),
                             frame.line};
    numbers.push_back(writer.frame(written));
    CHECK(writer.frame(written) == numbers.back());
  }
  for (Event event : profile.events) {
    const uint32_t innermost = numbers[profile.stacks.innermost_frame(event.label)];
    event.label = writer.intern(profile.strings[event.label], innermost);
    writer.append(event);
  }
}

}  // namespace

TEST_CASE("labels come back with their stacks, also while they are written and after a kill") {
  std::mt19937_64 engine(Catch::getSeed());
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = profile_with_stacks(engine, 400);
  const std::vector<Place> places = places_of(profile);
  {
    Writer writer(path, {}, {.block_events = 90, .blocks = 64});
    record(profile, writer);
    CHECK(places_of(read_profile(path)) == places);  // it is growing
    // The open blocks first, as a reader does: some are still being sealed.
    std::filesystem::copy_file(path + ".open", folder.file("killed.slp.open"));
    std::filesystem::copy_file(path, folder.file("killed.slp"));
  }
  const Profile read = read_profile(path);
  CHECK(read.judgement.faults.empty());
  CHECK(places_of(read) == places);
  CHECK(places_of(read_profile(folder.file("killed.slp"))) == places);
}

TEST_CASE("one text with two stacks is two labels") {
  const tests::TemporaryFolder folder;
  Writer writer(folder.file("rank0.slp"), {});
  const uint32_t file = writer.intern("a.py");
  const uint32_t outer = writer.frame({.file = file, .function = writer.intern("f"), .line = 1});
  const uint32_t inner = writer.frame({.caller = outer, .file = file, .function = file, .line = 2});
  CHECK(outer == 1);
  CHECK(inner == 2);
  const uint32_t plain = writer.intern("a.py:1 f");
  CHECK(writer.intern("a.py:1 f", 0) == plain);
  CHECK(writer.intern("a.py:1 f", outer) != plain);
  CHECK(writer.intern("a.py:1 f", outer) == writer.intern("a.py:1 f", outer));
  CHECK(writer.intern("a.py:1 f", inner) != writer.intern("a.py:1 f", outer));
  CHECK(writer.frame({.caller = 7, .function = file}) == 0);  // its caller does not exist
}

TEST_CASE("damage loses stacks, and never makes one up") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = profile_with_stacks(engine, 60);
  const std::vector<Place> places = places_of(profile);
  std::map<uint64_t, Place> by_address;
  for (size_t i = 0; i < places.size(); ++i) by_address[profile.events[i].address] = places[i];
  {
    Writer writer(path, {}, {.block_events = 20, .blocks = 64});
    record(profile, writer);
  }
  const std::string sound = tests::read_file(path);
  int without_stack = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string bytes = sound;
    for (int flips = 1 + static_cast<int>(engine() % 3); flips > 0; --flips) {
      bytes[32 + engine() % (bytes.size() - 32)] ^= static_cast<char>(1U << (engine() % 8));
    }
    tests::write_file(path, bytes);
    const Profile read = read_profile(path);
    for (const Event& event : read.events) {
      if (event.kind != EventKind::alloc) continue;
      const Place found{read.strings.at(event.label),
                        stack_of(read.strings, read.stacks, event.label)};
      const Place& wanted = by_address.at(event.address);
      if (found == wanted) continue;
      ++without_stack;
      REQUIRE(found.second.empty());
      REQUIRE(!read.judgement.faults.empty());
    }
  }
  CHECK(without_stack > 0);
}

TEST_CASE("many stacks are written without loss") {
  std::mt19937_64 engine(Catch::getSeed());
  const tests::TemporaryFolder folder;
  const Profile profile = profile_with_stacks(engine, 10'000);  // more than two areas of strings
  REQUIRE(profile.stacks.frames.size() > 100'000);
  write_recording(profile, folder.file("a.slp"));
  CHECK(places_of(read_profile(folder.file("a.slp"))) == places_of(profile));
}

TEST_CASE("a snapshot's frames are imported, and exported again") {
  for (const std::string name : {"whole.pickle", "late.pickle", "fsdp2.pickle.gz"}) {
    CAPTURE(name);
    const std::string file = SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/" + name;
    const std::string bytes =
        name.ends_with(".gz") ? tests::read_gzip_file(file) : tests::read_file(file);
    const Profile profile = import_memory_viz(bytes);
    const Document document = read_snapshot(bytes);
    const Value traces = Value(document)["device_traces"];
    std::vector<Stack> wanted;
    for (size_t device = 0; device < traces.size(); ++device) {
      for (size_t i = 0; i < traces.at(device).size(); ++i) {
        const Value entry = traces.at(device).at(i);
        if (entry["action"].text() != "alloc") continue;
        Stack stack;
        for (size_t at = 0; at < entry["frames"].size(); ++at) {
          const Value frame = entry["frames"].at(at);
          stack.push_back(fmt::format("{}:{} {}", frame["filename"].text(), frame["line"].integer(),
                                      frame["name"].text()));
        }
        wanted.push_back(stack);
      }
    }
    std::vector<Stack> found;
    for (const Event& event : profile.events) {
      if (event.kind != EventKind::alloc || event.space != Space::device) continue;
      found.push_back(stack_of(profile.strings, profile.stacks, event.label));
    }
    REQUIRE(found.size() >= wanted.size());  // after the frames of blocks that were alive
    found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(wanted.size()));
    CHECK(found == wanted);
    std::ostringstream out;
    export_memory_viz(profile, *json_writer(out));
    const Profile again = import_memory_viz(out.str());
    for (const auto& [stack, count] : allocations_by_stack(profile)) {
      if (!stack.empty()) CHECK(allocations_by_stack(again)[stack] == count);
    }
  }
}

TEST_CASE("a stack of only C++ is named by the function that asked for memory") {
  const auto snapshot = [](const std::string& frames) {
    return R"({"device_traces": [[{"action": "alloc", "addr": 512, "size": 512, "stream": 0,
               "time_us": 1, "frames": [)" +
           frames + R"(]}]], "segments": []})";
  };
  const Profile profile = import_memory_viz(snapshot(R"-(
      {"name": "torch::unwind::unwind()", "filename": "u.cpp", "line": 1},
      {"name": "torch::CapturedTraceback::gather(bool)", "filename": "c.cpp", "line": 2},
      {"name": "c10::CUDACachingAllocator::malloc()", "filename": "a.cpp", "line": 3},
      {"name": "at::native::addmm_out()", "filename": "b.cpp", "line": 4})-"));
  REQUIRE(profile.events.size() == 1);
  const uint32_t label = profile.events.front().label;
  CHECK(profile.strings.at(label) == "at::native::addmm_out()");
  CHECK(stack_of(profile.strings, profile.stacks, label) ==
        Stack{"a.cpp:3 c10::CUDACachingAllocator::malloc()", "b.cpp:4 at::native::addmm_out()"});
}

}  // namespace shardlens::profiler
