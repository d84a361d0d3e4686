// Puts a run into one file and unpacks it with the system's own tar.
#include "profiler/commands/bundle.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "tests/support/odd_files.h"
#include "tests/support/process.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
namespace fs = std::filesystem;

namespace {

using Contents = std::map<std::string, std::string>;

std::string random_bytes(std::mt19937& random, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

void write_all(const fs::path& folder, const Contents& files) {
  for (const auto& [name, content] : files) {
    fs::create_directories((folder / name).parent_path());
    tests::write_file((folder / name).string(), content);
  }
}

Contents read_all(const fs::path& folder) {
  Contents files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), folder).string()] = tests::read_file(entry.path().string());
  }
  return files;
}

}  // namespace

TEST_CASE("a bundle holds a run without its checkpoints, byte for byte", "[bundle]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const tests::TemporaryFolder folder;
  const Contents kept = {
      {"config.json", "{}"},
      {"result.json", "{\"status\": \"ok\"}"},
      {"metrics.jsonl", std::string(100'000, 'm')},
      {"events.jsonl", ""},
      {"logs/rank0.log", "joined\n"},
      {"logs/" + std::string(150, 'n') + "/deep.log", "a name that old tar has no room for"},
      {"profiles/rank0.slp", random_bytes(random, 3'000'001)},
      {"profiles/rank10.slp", random_bytes(random, 1 << 20)}};
  write_all(folder.file("run 7"), kept);
  write_all(folder.file("run 7"), {{"checkpoints/LATEST", "step-1"},
                                   {"model/model.safetensors", "large"},
                                   {".lock", ""},
                                   {"mine.txt", "somebody's"}});
  const std::string file = folder.file("home.tar.zst");
  const Bundle bundle = bundle_run(folder.file("run 7") + "/", file);
  CHECK(bundle.files == 8);
  CHECK(bundle.bytes == static_cast<int64_t>(fs::file_size(file)));
  CHECK(bundle.input_bytes > 4'000'000);

  fs::create_directory(folder.file("home"));
  const tests::ProcessEnd unpacked =
      tests::run({"/usr/bin/env", "tar", "--zstd", "-xf", file, "-C", folder.file("home")});
  INFO(unpacked.err);
  REQUIRE(unpacked.exit_code == 0);
  CHECK(read_all(folder.file("home/run 7")) == kept);
}

TEST_CASE("a bundle replaces nothing, and leaves nothing if it fails", "[bundle]") {
  const tests::TemporaryFolder folder;
  write_all(folder.file("run"), {{"config.json", "{}"}, {"logs/rank0.log", "joined"}});
  const std::string file = folder.file("home.tar.zst");
  tests::write_file(file, "mine");
  CHECK_THROWS_MATCHES(bundle_run(folder.file("run"), file), std::invalid_argument,
                       MessageMatches(ContainsSubstring("the file already exists")));
  CHECK(tests::read_file(file) == "mine");
  CHECK_THROWS_MATCHES(bundle_run(folder.file("logs"), folder.file("b")), std::invalid_argument,
                       MessageMatches(ContainsSubstring("not a run")));
  CHECK_THROWS_AS(bundle_run(folder.file("run"), folder.file("nowhere/b")), std::runtime_error);
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++entries;
  CHECK(entries == 2);
}

TEST_CASE("a bundle follows no link out of the run, and names what it leaves out", "[bundle]") {
  const tests::TemporaryFolder folder;
  write_all(folder.file("secrets"), {{"key", "private"}, {"deep/key", "private, too"}});
  write_all(folder.file("run"), {{"config.json", "{}"},
                                 {"logs/rank0.log", "joined"},
                                 {"profiles/rank0.slp", "recorded"},
                                 {"checkpoints/LATEST", "step-1"}});
  const auto link = [&](const std::string& to, const std::string& name) {
    fs::create_symlink(to, folder.file("run/" + name));
  };
  link("rank0.log", "logs/latest.log");
  link("../checkpoints/LATEST", "logs/latest-step");
  link(folder.file("secrets/key"), "logs/secret.log");
  link("../../secrets/key", "metrics.jsonl");
  link(folder.file("secrets"), "logs/all");
  link("/dev/zero", "logs/endless.log");
  link("nowhere", "events.jsonl");
  tests::make_pipe(folder.file("run/logs/pipe.log"));
  const std::string file = folder.file("home.tar.zst");
  const Bundle bundle = bundle_run(folder.file("run"), file);
  fs::create_directory(folder.file("home"));
  REQUIRE(tests::run({"/usr/bin/env", "tar", "--zstd", "-xf", file, "-C", folder.file("home")})
              .exit_code == 0);
  CHECK(read_all(folder.file("home/run")) == Contents{{"config.json", "{}"},
                                                      {"logs/latest-step", "step-1"},
                                                      {"logs/latest.log", "joined"},
                                                      {"logs/rank0.log", "joined"},
                                                      {"profiles/rank0.slp", "recorded"}});
  std::set<std::string> left_out;
  for (const fs::path& path : bundle.left_out) left_out.insert(path.string());
  CHECK(left_out == std::set<std::string>{"events.jsonl", "logs/all", "logs/endless.log",
                                          "logs/pipe.log", "logs/secret.log", "metrics.jsonl"});
  const tests::ProcessEnd names = tests::run({"/usr/bin/env", "tar", "--zstd", "-tf", file});
  CHECK(names.out.find("..") == std::string::npos);
  CHECK(names.out.find("\n/") == std::string::npos);
}

TEST_CASE("a bundle omits a folder of logs that is a link", "[bundle]") {
  const tests::TemporaryFolder folder;
  write_all(folder.file("secrets"), {{"key", "private"}});
  write_all(folder.file("run"), {{"config.json", "{}"}});
  fs::create_symlink(folder.file("secrets"), folder.file("run/logs"));
  fs::create_symlink(folder.file("run"), folder.file("linked"));
  for (const char* run : {"run", "linked"}) {
    const Bundle bundle = bundle_run(folder.file(run), folder.file(std::string(run) + ".tar.zst"));
    CHECK(bundle.files == 1);
    CHECK(bundle.left_out == std::vector<fs::path>{"logs"});
  }
}
