#include "runtime/checkpoint/run_directory.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <stdexcept>

#include "base/durable_files.h"
#include "planner/config/options.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using runtime::RunDirectory;
namespace fs = std::filesystem;

namespace {

planner::Config config_in(const tests::TemporaryFolder& folder) {
  planner::Config config;
  config.storage = folder.file("deep/runs");
  config.name = "r";
  return config;
}

void check_refused(const planner::Config& config, const std::string& why) {
  CHECK_THROWS_MATCHES(RunDirectory::open(config), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("a new run gets a folder with its configuration") {
  const tests::TemporaryFolder folder;
  const planner::Config config = config_in(folder);
  const RunDirectory run = RunDirectory::open(config);
  CHECK(tests::read_file(run.path() / "config.json") == planner::to_json(config));
  CHECK(run.log(3) == run.path() / "logs/rank3.log");
  CHECK(fs::is_directory(run.path() / "logs"));
}

TEST_CASE("a run's configuration does not depend on where it was started") {
  const tests::TemporaryFolder folder;
  const fs::path here = fs::current_path();
  planner::Config config;
  fs::current_path(folder.path());
  config.name = "r";
  config.model = "m.json";
  config.data = "d";
  config.init = "w.safetensors";
  config.profile_dir = "recordings";
  const planner::Config kept = RunDirectory::open(config).config();
  fs::current_path(here);
  const std::string base = fs::canonical(folder.path()).string();
  CHECK(kept.storage == base + "/runs");
  CHECK(kept.model == base + "/m.json");
  CHECK(kept.data == base + "/d");
  CHECK(kept.init == base + "/w.safetensors");
  CHECK(kept.profile_dir == base + "/recordings");
}

TEST_CASE("a run without a name is named by model, strategy and time") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  config.name.clear();
  config.model = folder.file("small.json");
  const RunDirectory run = RunDirectory::open(config);
  const std::string name = run.path().filename().string();
  CHECK_THAT(name, Catch::Matchers::Matches("small-fsdp-[0-9]{8}-[0-9]{6}"));
  CHECK_THAT(tests::read_file(run.path() / "config.json"), ContainsSubstring(name));
}

TEST_CASE("runs without a name that begin in one second have folders of their own") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  config.name.clear();
  const RunDirectory first = RunDirectory::open(config);
  const RunDirectory second = RunDirectory::open(config);
  CHECK(first.path() != second.path());
}

TEST_CASE("a live run keeps all other starts out, --fresh too") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  std::optional<RunDirectory> run = RunDirectory::open(config);
  check_refused(config, "the run is live");
  config.fresh = true;
  check_refused(config, "the run is live");
  run.reset();
  CHECK_NOTHROW(RunDirectory::open(config));
}

TEST_CASE("the run's existing folder decides") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  const fs::path path = RunDirectory::open(config).path();
  CHECK(RunDirectory::open(config).is_unfinished());
  write_file(path / "result.json", R"({"status": "failed"})");
  CHECK(RunDirectory::open(config).is_unfinished());
  write_file(path / "result.json", R"({"status": "ok"})");
  check_refused(config, "the run is finished");
  config.seed = 1;
  check_refused(config, "another configuration");
  write_file(path / "config.json", "{");
  check_refused(config, "another configuration");
}

TEST_CASE("an unfinished run goes on from its checkpoint") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  const fs::path path = RunDirectory::open(config).path();
  write_file(path / "result.json", R"({"status": "failed"})");
  write_file(path / "metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":2");
  config.workers = 2;
  config.batch = 32;  // the same number of samples a step in all
  const RunDirectory run = RunDirectory::open(config);
  REQUIRE(run.is_unfinished());
  CHECK(fs::exists(path / "result.json"));
  CHECK(run.config().workers == 1);
  run.go_on(config, 2);
  CHECK_FALSE(fs::exists(path / "result.json"));
  CHECK(tests::read_file(path / "metrics.jsonl") == "{\"step\":1}\n{\"step\":2}\n");
  CHECK(run.config().workers == 2);
}

TEST_CASE("the flag --fresh removes what a run wrote and nothing else") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  const fs::path path = RunDirectory::open(config).path();
  write_file(path / "result.json", R"({"status": "ok"})");
  write_file(path / "metrics.jsonl", "old");
  write_file(path / "logs/rank9.log", "old");
  write_file(path / "notes.txt", "mine");
  config.fresh = true;
  RunDirectory::open(config);
  planner::Config kept;
  planner::read_json(kept, tests::read_file(path / "config.json"), "config.json");
  CHECK_FALSE(kept.fresh);  // else repeating the run by its config.json would remove it
  CHECK_FALSE(fs::exists(path / "result.json"));
  CHECK_FALSE(fs::exists(path / "metrics.jsonl"));
  CHECK_FALSE(fs::exists(path / "logs/rank9.log"));
  CHECK(tests::read_file(path / "notes.txt") == "mine");
}

TEST_CASE("a folder that is not a run is never touched") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  fs::create_directories(fs::path(config.storage) / "r");
  tests::write_file(config.storage + "/r/thesis.txt", "mine");
  config.fresh = true;
  check_refused(config, "not a run");
  CHECK(tests::read_file(config.storage + "/r/thesis.txt") == "mine");
}

TEST_CASE("an unwritable storage is refused and nothing is left") {
  const tests::TemporaryFolder folder;
  planner::Config config = config_in(folder);
  tests::write_file(folder.file("file"), "");
  config.storage = folder.file("file/runs");
  check_refused(config, "--storage");
  config.storage = "/proc/shardlens";
  check_refused(config, "--storage");
  CHECK(fs::file_size(folder.file("file")) == 0);
}

TEST_CASE("a name is one folder's name") {
  const tests::TemporaryFolder folder;
  for (const char* name : {"..", ".", "a/b", "/abs"}) {
    CAPTURE(name);
    planner::Config config = config_in(folder);
    config.name = name;
    check_refused(config, "--name");
  }
  CHECK(fs::is_empty(folder.path()));
}
