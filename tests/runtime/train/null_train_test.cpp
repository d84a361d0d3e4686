// Tests `shardlens train --device null:GPU` as a user sees it, with the null device's checks on:
// they fail a run in which a wait does not order a use, or NCCL is not called as the schedule says.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/process.h"
#include "tests/support/sample.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

constexpr const char* kNotice = "null device: memory is real, values are not";

class NullRun {
 public:
  explicit NullRun(const std::vector<std::string>& flags, const std::string& variable = "A=1") {
    std::vector<std::string> words = {"/usr/bin/env", "SHARDLENS_NULL_CHECK=1",
                                      variable,       SHARDLENS_TRAIN,
                                      "--data",       "synthetic",
                                      "--storage",    folder_.file("runs"),
                                      "--name",       "r",
                                      "--log-every",  "1"};
    words.insert(words.end(), flags.begin(), flags.end());
    ended = run(words);
  }

  nlohmann::json result() const {
    return nlohmann::json::parse(read_file(folder_.file("runs/r/result.json")));
  }
  /// The output of `shardlens profile report --json` for the run.
  nlohmann::json report() const {
    const ProcessEnd report = run({SHARDLENS_PROFILE, "report", folder_.file("runs/r"), "--json"});
    INFO(report.err);
    REQUIRE(report.exit_code == 0);
    return nlohmann::json::parse(report.out);
  }
  std::string report_text() const {
    return run({SHARDLENS_PROFILE, "report", folder_.file("runs/r")}).out;
  }
  std::string metrics() const { return read_file(folder_.file("runs/r/metrics.jsonl")); }
  bool left_anything() const { return fs::exists(folder_.file("runs")); }

  ProcessEnd ended;

 private:
  TemporaryFolder folder_;
};

int64_t bytes(const nlohmann::json& result, const char* peak, const char* key) {
  return result.at("memory").at(peak).at(key).get<int64_t>();
}

}  // namespace

TEST_CASE("three steps of each strategy on the null device pass its checks", "[null]") {
  const std::string model = GENERATE("vit-tutorial", "vit-l16");
  const std::string strategy = GENERATE("fsdp", "ddp");
  const std::string dtype = GENERATE("fp32", "bf16");
  const std::string world = GENERATE("2", "8", "512");
  static Sample sample;
  if (!sample.has_next()) return;
  CAPTURE(model, strategy, dtype, world);
  const NullRun run({"--device", "null:h200", "--model", model, "--strategy", strategy,
                     "--param-dtype", dtype, "--world", world, "--solo-rank", "1", "--batch", "8",
                     "--steps", "3"});
  INFO(run.ended.out << run.ended.err);
  REQUIRE(run.ended.exit_code == 0);
  const nlohmann::json result = run.result();
  CHECK(result["steps"] == 3);
  CHECK(bytes(result, "step_peak", "allocated_bytes") > 0);
  CHECK(bytes(result, "peak", "reserved_bytes") >= bytes(result, "step_peak", "reserved_bytes"));
}

TEST_CASE("three steps of every family on the null device pass its checks", "[null]") {
  const std::string model = GENERATE("llama-1b", "llama-8b", "simple-model", "transformer");
  const std::string strategy = GENERATE("fsdp", "ddp");
  const std::string dtype = GENERATE("fp32", "bf16");
  static Sample sample;
  if (!sample.has_next()) return;
  CAPTURE(model, strategy, dtype);
  // A whole 8b model on each rank does not fit.
  if (model == "llama-8b" && strategy == "ddp") return;
  const NullRun run({"--device", "null:h200", "--model", model, "--strategy", strategy,
                     "--param-dtype", dtype, "--world", "64", "--solo-rank", "1", "--batch", "1",
                     "--steps", "3"});
  INFO(run.ended.out << run.ended.err);
  REQUIRE(run.ended.exit_code == 0);
  CHECK(bytes(run.result(), "step_peak", "allocated_bytes") > 0);
}

TEST_CASE("a llama's memory grows linearly with its sequence, not with the square", "[null]") {
  const std::string dtype = GENERATE("fp32", "bf16");
  const auto step_peak = [&](const char* seq) {
    const NullRun run({"--device", "null:h200", "--model", "llama-1b", "--world", "512",
                       "--solo-rank", "0", "--batch", "1", "--param-dtype", dtype, "--seq", seq,
                       "--steps", "3"});
    INFO(run.ended.err);
    REQUIRE(run.ended.exit_code == 0);
    return bytes(run.result(), "step_peak", "allocated_bytes");
  };
  // Anything that grows with the square of the length would make the second difference larger.
  const int64_t at_2k = step_peak("2048"), at_4k = step_peak("4096"), at_8k = step_peak("8192");
  CHECK(at_8k - at_4k < 2 * (at_4k - at_2k) + (64 << 20));
}

TEST_CASE("all output from the null device says that its values mean nothing", "[null]") {
  const NullRun run({"--device", "null:l4", "--steps", "3"});
  INFO(run.ended.err);
  REQUIRE(run.ended.exit_code == 0);
  CHECK_THAT(run.ended.out, ContainsSubstring(kNotice));
  CHECK_THAT(run.ended.out, !ContainsSubstring("loss"));
  CHECK(run.result()["notice"] == kNotice);
  std::istringstream lines(run.metrics());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CHECK(nlohmann::json::parse(line)["notice"] == kNotice);
  }
  CHECK(count == 3);
}

TEST_CASE("a recorded run reports LibTorch's own peaks, to the byte", "[null]") {
  const std::string model = GENERATE("vit-tutorial", "vit-l16");
  const std::string strategy = GENERATE("fsdp", "ddp");
  const std::string dtype = GENERATE("fp32", "bf16");
  CAPTURE(model, strategy, dtype);
  const NullRun run({"--device", "null:h200", "--model", model, "--strategy", strategy,
                     "--param-dtype", dtype, "--world", "8", "--solo-rank", "3", "--batch", "8",
                     "--steps", "4", "--profile", "on"});
  INFO(run.ended.err);
  REQUIRE(run.ended.exit_code == 0);
  const nlohmann::json report = run.report();
  REQUIRE(report["ranks"].size() == 1);
  const nlohmann::json& rank = report["ranks"][0];
  for (const char* peak : {"peak", "step_peak"}) {
    for (const char* key : {"allocated_bytes", "reserved_bytes"}) {
      CHECK(rank[peak][key] == bytes(run.result(), peak, key));
    }
  }
  int64_t total = 0;
  for (const auto& [name, in_category] : rank["at_peak"]["categories"].items()) {
    total += in_category.get<int64_t>();
  }
  CHECK(total == bytes(run.result(), "peak", "allocated_bytes"));
  CHECK(rank["at_peak"]["categories"]["other"].get<int64_t>() <= total / 100);
  CHECK(rank["steps"].size() == 4);
  CHECK(rank["lost"] == 0);
  CHECK(rank["notice"] == kNotice);
}

TEST_CASE("several workers on the null device are solo ranks of one world", "[null]") {
  const std::string communicators = GENERATE("1", "2");
  const NullRun run({"--device", "null:h100", "--workers", "3", "--steps", "3", "--communicators",
                     communicators});
  INFO(run.ended.err);
  CHECK(run.ended.exit_code == 0);
}

TEST_CASE("the host's communicators serve the null device through pinned memory", "[null]") {
  const std::string communicator = GENERATE("gloo", "local");
  const NullRun run(
      {"--device", "null:h100", "--workers", "2", "--steps", "3", "--communicator", communicator});
  INFO(run.ended.err);
  CHECK(run.ended.exit_code == 0);
}

TEST_CASE("expandable segments hold the same blocks", "[null]") {
  const std::vector<std::string> flags = {"--device",    "null:h200", "--world", "8",
                                          "--solo-rank", "7",         "--steps", "4"};
  const NullRun plain(flags);
  const NullRun expandable(flags, "PYTORCH_ALLOC_CONF=expandable_segments:True");
  INFO(expandable.ended.err);
  REQUIRE(plain.ended.exit_code == 0);
  REQUIRE(expandable.ended.exit_code == 0);
  CHECK(bytes(plain.result(), "step_peak", "allocated_bytes") ==
        bytes(expandable.result(), "step_peak", "allocated_bytes"));
  CHECK(bytes(plain.result(), "step_peak", "reserved_bytes") !=
        bytes(expandable.result(), "step_peak", "reserved_bytes"));
}

TEST_CASE("out of memory is reported in one line, then in LibTorch's own words", "[null]") {
  const NullRun run({"--device", "null:h200", "--model", "vit-l16", "--batch", "32", "--steps", "3",
                     "--capacity", "9GiB", "--anyway"});
  CHECK(run.ended.exit_code == 1);
  const std::string first = run.ended.err.substr(0, run.ended.err.find('\n'));
  CHECK_THAT(first, StartsWith("shardlens train: rank 0 ran out of memory on null:h200 in "));
  CHECK_THAT(first, ContainsSubstring("step 0, action ") && ContainsSubstring("--batch"));
  CHECK_THAT(run.ended.err, ContainsSubstring("\nCUDA out of memory. Tried to allocate"));
  CHECK(run.result()["status"] == "failed");
}

TEST_CASE("a run that cannot fit is refused before anything is made", "[null]") {
  const NullRun run({"--device", "null:h200", "--model", "vit-l16", "--batch", "32", "--steps", "3",
                     "--capacity", "9GiB"});
  CHECK(run.ended.exit_code == 3);
  CHECK_THAT(run.ended.err, StartsWith("shardlens train: does not fit: takes ") &&
                                ContainsSubstring("but there are 9.00 GiB; ") &&
                                EndsWith("--anyway starts it\n"));
  CHECK_FALSE(run.left_anything());
}

TEST_CASE("a run says what was planned, and that it matched", "[null]") {
  const NullRun run({"--device", "null:l4", "--model", "vit-tutorial", "--steps", "3"});
  CHECK(run.ended.exit_code == 0);
  CHECK_THAT(run.ended.out, ContainsSubstring("\nplan: fits: ") &&
                                ContainsSubstring("measured: the same to the byte\n"));
}

namespace {

const std::vector<std::string> kTooMuch = {"--device",   "null:h200", "--model", "vit-l16",
                                           "--batch",    "32",        "--steps", "3",
                                           "--capacity", "9GiB",      "--anyway"};

std::vector<std::string> with_flags(std::vector<std::string> flags,
                                    const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace

TEST_CASE("out of memory shows what held it, as the report does", "[null]") {
  const std::string steps = GENERATE("on", "2:3");  // also of steps after the failure
  const NullRun run(with_flags(kTooMuch, {"--profile", steps}));
  INFO(run.ended.err);
  CHECK(run.ended.exit_code == 1);
  const size_t at = run.ended.err.find("\nrank 0 of 1 on null:h200");
  REQUIRE(at != std::string::npos);
  const std::string screen = run.ended.err.substr(at + 1);
  CHECK(std::count(screen.begin(), screen.end(), '\n') <= 40);
  const nlohmann::json rank = run.report()["ranks"][0];
  REQUIRE(rank["out_of_memory"].size() == 1);
  const nlohmann::json& failure = rank["out_of_memory"][0];
  // LibTorch's own message, compared with the recording: "and 634.36 MiB is reserved by PyTorch
  // but".
  const std::string& told = run.ended.err;
  const size_t unused_end = told.find(" is reserved by PyTorch");
  const size_t unused_begin = told.rfind("and ", unused_end) + 4;
  const std::string unused = told.substr(unused_begin, unused_end - unused_begin);
  CHECK_THAT(screen, ContainsSubstring("reserved then ") && ContainsSubstring(", " + unused + " "));
  CHECK_THAT(screen, ContainsSubstring("out of memory: ") && ContainsSubstring("FORWARD") &&
                         ContainsSubstring("would have fit") && ContainsSubstring("activation"));
  CHECK(failure["tensors"].size() == 10);
  CHECK(failure["requested_bytes"] > failure["would_fit_bytes"]);
  CHECK(failure["largest_free_bytes"] < failure["requested_bytes"]);
  int64_t live = 0;
  for (const auto& [name, bytes] : failure["categories"].items()) live += bytes.get<int64_t>();
  const nlohmann::json& blocks = failure["fragmentation"];
  CHECK(live == blocks["requested_bytes"].get<int64_t>() + blocks["rounding_bytes"].get<int64_t>());
  CHECK(blocks["unplaced_bytes"] == 0);
  CHECK(rank["ledger"]["residual_bytes"] == 0);
  const std::string whole = run.report_text();
  CHECK_THAT(whole, ContainsSubstring(screen.substr(screen.find('\n'))));
}

TEST_CASE("without a recording, out of memory says how to see more", "[null]") {
  const NullRun run(kTooMuch);
  CHECK_THAT(run.ended.err, ContainsSubstring("train with --profile on to see what held the "
                                              "memory\nCUDA out of memory"));
}

TEST_CASE("a run's ledger leaves nothing unexplained on the null device", "[null]") {
  const NullRun run({"--device", "null:h200", "--world", "8", "--solo-rank", "3", "--steps", "3",
                     "--profile", "on"});
  INFO(run.ended.err);
  REQUIRE(run.ended.exit_code == 0);
  const nlohmann::json ledger = run.report()["ranks"][0]["ledger"];
  CHECK(ledger["residual_bytes"] == 0);
  CHECK(ledger["device_used_bytes"] == ledger["reserved_bytes"]);
  CHECK(ledger["reserved"]["reserved_bytes"] == ledger["reserved_bytes"]);
  CHECK(run.report()["ranks"][0]["counters"]["device_used"]["samples"] == 3);
}

TEST_CASE("some steps of a run are recorded with the peaks of the whole", "[null]") {
  const std::vector<std::string> flags = {"--device",    "null:h200", "--world", "8",
                                          "--solo-rank", "3",         "--steps", "6"};
  const NullRun whole(with_flags(flags, {"--profile", "on"}));
  const NullRun part(with_flags(flags, {"--profile", "4:5"}));
  INFO(part.ended.err);
  REQUIRE(part.ended.exit_code == 0);
  const nlohmann::json all = whole.report()["ranks"][0], some = part.report()["ranks"][0];
  REQUIRE(some["steps"].size() == 2);
  CHECK(some["steps"][0] == all["steps"][3]);
  CHECK(some["steps"][1] == all["steps"][4]);
  CHECK(some["step_peak"]["allocated_bytes"] == all["step_peak"]["allocated_bytes"]);
  CHECK(some["at_peak"]["categories"] == all["at_peak"]["categories"]);
  CHECK(some["ledger"]["residual_bytes"] == 0);
  CHECK(some["unmatched"] == 0);
}

TEST_CASE("steps that a run does not have are not recorded", "[null]") {
  const NullRun run({"--device", "null:l4", "--steps", "3", "--profile", "4:9"});
  CHECK(run.ended.exit_code == 2);
  CHECK_THAT(run.ended.err, ContainsSubstring("--profile 4:9: the run has 3 steps; give a range"));
  CHECK(std::count(run.ended.err.begin(), run.ended.err.end(), '\n') == 1);
  CHECK_FALSE(run.left_anything());
}

TEST_CASE("a LibTorch of another version is refused before anything is made", "[null]") {
  const NullRun run({"--device", "null:h200", "--steps", "1"},
                    "LD_PRELOAD=" SHARDLENS_OTHER_LIBTORCH);
  CHECK(run.ended.exit_code == 1);
  CHECK_THAT(run.ended.err,
             ContainsSubstring("LibTorch 2.12.1 was loaded, but this program was "
                               "built for " SHARDLENS_TORCH_VERSION "; run make build\n"));
  CHECK(std::count(run.ended.err.begin(), run.ended.err.end(), '\n') == 1);
  CHECK_FALSE(run.left_anything());
}

TEST_CASE("a null device that does not exist is refused before anything is made", "[null]") {
  struct Case {
    std::vector<std::string> flags;
    const char* what;
  };
  const auto refused = GENERATE(values<Case>(
      {{{"--device", "null:rtx4091"}, "GPU rtx4091: not known; did you mean rtx4090?"},
       {{"--device", "null:"}, "not known"},
       {{"--device", "gpu"}, "--device gpu: not a device"},
       {{"--device", "cpu", "--capacity", "1GiB"}, "only a null device's memory"},
       {{"--profile", "5:3"}, "--profile 5:3: the last step comes before the first; give"},
       {{"--device", "null:l4", "--capacity", "much"}, "--capacity much: not a size"},
       {{"--device", "null:l4", "--world", "8"}, "give --solo-rank R"},
       {{"--device", "null:l4", "--world", "8", "--solo-rank", "8"}, "ranks count from 0"},
       {{"--device", "null:l4", "--offload", "all", "--strategy", "ddp", "--workers", "64",
         "--model", "llama-70b"},
        "--offload all: 64 ranks would keep 65.71 TiB in this host's memory, which has"},
       {{"--device", "cpu", "--communicator", "nccl"}, "it serves GPUs only"}}));
  const NullRun run(refused.flags);
  CHECK(run.ended.exit_code == 2);
  CHECK_THAT(run.ended.err, ContainsSubstring(refused.what));
  CHECK(std::count(run.ended.err.begin(), run.ended.err.end(), '\n') == 1);
  CHECK_FALSE(run.left_anything());
}
