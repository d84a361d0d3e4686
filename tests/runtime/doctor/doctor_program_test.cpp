// Runs `shardlens doctor` on this machine: it trains a step on the CPU and on the null device.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/support/process.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the doctor finds that this build trains, and leaves nothing behind", "[doctor]") {
  const TemporaryFolder folder;
  const ProcessEnd ended = run({SHARDLENS, "doctor", "--json", "--workers", "2", "--seconds", "0.2",
                                "--storage", folder.file("runs"), "--data", folder.path()});
  INFO(ended.err << ended.out);
  CHECK(ended.exit_code == 1);  // the data is missing
  const auto json = nlohmann::json::parse(ended.out);
  CHECK(json.at("well") == false);
  const auto health = [&](const std::string& about) -> std::string {
    for (const auto& finding : json.at("findings")) {
      if (finding.at("about") == about) return finding.at("health");
    }
    return "not looked at";
  };
  CHECK(health("LibTorch") == "fine");
  CHECK(health("null device") == "fine");
  CHECK(health("collective") == "fine");
  CHECK(health("storage") == "fine");
  CHECK(health("data") == "wrong");
  for (const auto& finding : json.at("findings")) {
    CHECK(finding.at("mend") == finding.at("fix"));
    if (finding.at("health") == "wrong") CHECK_FALSE(finding.at("fix").get<std::string>().empty());
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("the doctor expects the NCCL that LibTorch asks for", "[doctor]") {
  const std::string version = SHARDLENS_TORCH_VERSION;
  const std::string metadata = read_file(SHARDLENS_DEPS "/libtorch-" + version + "/torch-" +
                                         version + ".dist-info/METADATA");
  const std::string words = "Requires-Dist: nvidia-nccl-cu13==";
  const size_t found = metadata.find(words);
  REQUIRE(found != std::string::npos);
  const std::string_view wanted = std::string_view(metadata).substr(found + words.size());
  CHECK(wanted.starts_with(SHARDLENS_NCCL_VERSION));
}

TEST_CASE("the doctor refuses unknown arguments in one line", "[doctor]") {
  const ProcessEnd ended = run({SHARDLENS, "doctor", "--workers", "none"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.out.empty());
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK_THAT(ended.err, ContainsSubstring("--workers"));
}
