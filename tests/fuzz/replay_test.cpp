// Replays through the harnesses what fuzzing has found, what it starts from, and fixtures of other
// tests: so each finding stays fixed, in every build, and every harness keeps working.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/harness.h"
#include "tests/support/memory_folder.h"

namespace shardlens::fuzz {
namespace {

namespace fs = std::filesystem;

struct Harness {
  void (*take)(std::string_view input) = nullptr;
  std::vector<std::string> fixtures;  // files and folders below tests/fixtures
};

const std::map<std::string, Harness>& harnesses() {
  static const std::map<std::string, Harness> table = {
      {"checkpoint", {checkpoint, {}}},
      {"configuration", {configuration, {}}},
      {"images", {images, {"viewer"}}},
      {"model", {model, {}}},
      {"plan", {plan, {}}},
      {"recording", {recording, {"profile"}}},
      {"safetensors", {safetensors, {"safetensors"}}},
      {"schedule", {schedule, {"schedules"}}},
      {"snapshot", {snapshot, {"memory_viz"}}},
      {"torch_file", {torch_file, {"interchange"}}},
  };
  return table;
}

const fs::path kSeeds = fs::path(SHARDLENS_SOURCE_DIR) / "tests/fuzz/seeds";
const fs::path kFixtures = fs::path(SHARDLENS_SOURCE_DIR) / "tests/fixtures";

std::set<fs::path> files_in(const fs::path& folder) {
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.insert(entry.path());
  }
  return files;
}

std::set<fs::path> inputs_of(const std::string& name, const Harness& harness) {
  std::set<fs::path> inputs = files_in(kSeeds / name);
  for (const std::string& fixture : harness.fixtures) inputs.merge(files_in(kFixtures / fixture));
  return inputs;
}

/// A harness may change the working directory.
class SameDirectory {
 public:
  ~SameDirectory() { fs::current_path(before_); }

 private:
  fs::path before_ = fs::current_path();
};

}  // namespace

TEST_CASE("every harness has seeds, and accepts them and the fixtures", "[fuzz]") {
  const tests::TemporariesInMemory in_memory;
  const SameDirectory same;
  for (const auto& [name, harness] : harnesses()) {
    const std::set<fs::path> inputs = inputs_of(name, harness);
    CHECK(inputs.size() > harness.fixtures.size());
    for (const fs::path& input : inputs) {
      CAPTURE(name, input.string());
      CHECK_NOTHROW(harness.take(tests::read_file(input.string())));
    }
  }
  for (const fs::directory_entry& folder : fs::directory_iterator(kSeeds)) {
    CHECK(harnesses().contains(folder.path().filename().string()));
  }
}

TEST_CASE("an input is cut into files at lines that begin with the mark", "[fuzz]") {
  const auto parts = parts_of("one\n@@ b/../two.json\ntwo\n\n@@ ..\n", "a");
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].name == "a");
  CHECK(parts[0].bytes == "one");
  CHECK(parts[1].name == "b..two.json");
  CHECK(parts[1].bytes == "two\n");
  CHECK(parts[2].name == "file");
  CHECK(parts[2].bytes.empty());
  CHECK(parts_of("", "a").size() == 1);
  CHECK(parts_of("x @@ no mark", "a").front().bytes == "x @@ no mark");
  CHECK(parts_of("@@ first\n", "a").front().name == "first");
}

TEST_CASE("a harness distinguishes a refusal from a finding", "[fuzz]") {
  CHECK(answers([] {}));
  CHECK_FALSE(answers([] { throw std::invalid_argument("why"); }));
  CHECK_FALSE(answers([] { throw std::runtime_error("why"); }));
  CHECK_THROWS_AS(answers([] { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK_THROWS_AS(answers([] { throw std::out_of_range("vector"); }), std::out_of_range);
  CHECK_THROWS_AS(answers([] { throw std::runtime_error(""); }), std::logic_error);
  CHECK_THROWS_AS(answers([] { throw std::runtime_error(std::string(100'000, 'x')); }),
                  std::logic_error);
  CHECK_THROWS_AS(answers([] { throw std::runtime_error("[json.exception.type_error.302]"); }),
                  std::logic_error);
}

}  // namespace shardlens::fuzz
