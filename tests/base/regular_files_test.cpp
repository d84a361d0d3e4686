// No reader opens a path that is not a regular file: each is given a pipe that nobody writes to, a
// device that never ends, a folder and a socket. A reader that opened the pipe would hang, and the
// device would fill its memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "models/data/dataset.h"
#include "models/data/image_file.h"
#include "models/spec.h"
#include "models/weights/safetensors.h"
#include "planner/config/arguments.h"
#include "planner/plan_command.h"
#include "profiler/commands/exchange_commands.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/file/reader.h"
#include "profiler/file/writer.h"
#include "profiler/record/record_verdict.h"
#include "runtime/checkpoint/checkpoint_commands.h"
#include "runtime/checkpoint/interchange/saved_state.h"
#include "runtime/checkpoint/run_directory.h"
#include "runtime/launch/events.h"
#include "tests/support/odd_files.h"
#include "tests/support/recordings/small_recording.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;

namespace {

struct OddFile {
  const char* kind;
  void (*make)(const std::string& path);
};

const std::vector<OddFile> kOdd = {{"a pipe", tests::make_pipe},
                                   {"a device", tests::make_device},
                                   {"a folder", tests::make_folder},
                                   {"a socket", tests::make_socket}};

struct FileReader {
  std::string name;  // of the file
  std::function<void(const std::string& path)> read;
};

const std::vector<FileReader> kReaders = {
    {"run.json",
     [](auto& path) {
       planner::parse_arguments({"--config", path});
     }},
    {"run.yaml",
     [](auto& path) {
       planner::parse_arguments({"--config", path});
     }},
    {"run.toml",
     [](auto& path) {
       planner::parse_arguments({"--config", path});
     }},
    {"model.json", [](auto& path) { models::find_spec(path); }},
    {"w.safetensors", [](auto& path) { models::SafetensorsFile{path}; }},
    {"calibration.json",
     [](auto& path) {
       planner::plan_command({"--gpu", "h200", "--model", "vit-tutorial", "--calibration", path},
                             "");
     }},
    {"rank0.slp", [](auto& path) { profiler::Reader{path}; }},
    {"snapshot.pickle", [](auto& path) { profiler::import_memory_viz_file(path); }},
    {"i.png", [](auto& path) { models::decode_image(path, 3); }},
};

std::string refusal_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a path that is not a regular file is refused before it is opened, in one line") {
  const tests::TemporaryFolder folder;
  for (const OddFile& odd : kOdd) {
    for (const FileReader& reader : kReaders) {
      const std::string path = folder.file(reader.name);
      odd.make(path);
      const std::string refusal = refusal_of([&] { reader.read(path); });
      INFO(odd.kind << " as " << reader.name << ": " << refusal);
      CHECK_THAT(refusal, ContainsSubstring(path));
      CHECK_THAT(refusal, ContainsSubstring(std::string(odd.kind) + ", not a file"));
      CHECK(refusal.find('\n') == std::string::npos);
      std::filesystem::remove_all(path);
    }
  }
}

TEST_CASE("a checkpoint that is a pipe or a device is refused") {
  const tests::TemporaryFolder folder;
  for (const char* name : {"w.pt", "w.safetensors"}) {
    for (const OddFile& odd : {kOdd[0], kOdd[1], kOdd[3]}) {
      const std::string path = folder.file(name);
      odd.make(path);
      const std::string refusal = refusal_of([&] { runtime::read_saved_state(path); });
      INFO(refusal);
      CHECK_THAT(refusal, ContainsSubstring(path) && ContainsSubstring(odd.kind));
      std::filesystem::remove(path);
    }
  }
  tests::make_folder(folder.file("dcp"));
  tests::make_pipe(folder.file("dcp/.metadata"));
  CHECK_THROWS_AS(runtime::read_saved_state(folder.file("dcp")), std::runtime_error);
  tests::make_folder(folder.file("step-00000001"));
  tests::make_pipe(folder.file("step-00000001/manifest.json"));
  CHECK(runtime::checkpoint_command({"verify", folder.file("step-00000001")}).exit_code == 1);
}

TEST_CASE("files of a run that are pipes count as missing") {
  const tests::TemporaryFolder folder;
  tests::make_pipe(folder.file("events.jsonl"));
  CHECK(runtime::read_events(folder.file("events.jsonl")).empty());
  tests::make_pipe(folder.file("rank0.json"));
  CHECK_FALSE(profiler::read_record_facts(folder.file("rank0.slp")).is_known);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz"}) {
    tests::make_pipe(folder.file(name));
  }
  CHECK_THROWS_AS(models::load_dataset(folder.path()), std::invalid_argument);
}

TEST_CASE("a pipe beside a recording, where open blocks would be, is left alone") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const profiler::Profile profile = tests::small_recording();
  profiler::Writer writer(path, profile.header);
  for (const profiler::Event& event : profile.events) writer.append(event);
  writer.close();
  tests::make_pipe(path + ".open");
  CHECK(profiler::read_profile(path).events.size() == profile.events.size());
}

TEST_CASE("a file keeps the size that it had when it was opened, and no more is read") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("f"), "0123456789");
  const InputFile file(folder.file("f"));
  CHECK(file.bytes() == 10);
  CHECK(read_file(folder.file("f"), 10).text == "0123456789");
  CHECK_THAT(read_file(folder.file("f"), 9).problem.value_or(""),
             ContainsSubstring("has 10 bytes; at most 9 are read"));
  CHECK_THAT(read_file(folder.file("none"), 9).problem.value_or(""),
             ContainsSubstring("No such file"));
  std::vector<std::byte> eleven(11);
  CHECK_FALSE(file.read_at(0, eleven));
  CHECK(file.read_at(1, std::span(eleven).first(9)));
}
