#include "planner/plan_command.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "planner/config/arguments.h"
#include "planner/config/options.h"
#include "planner/plan_target.h"
#include "planner/planner.h"
#include "planner/schedule/schedule.h"
#include "planner/simulate/allocator/peak_bands.h"
#include "profiler/file/reader.h"
#include "profiler/report/recording_report.h"
#include "tests/support/random_vit.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

using Flags = std::vector<std::string>;

Flags joined(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

PlanOutcome command(const Flags& flags, const std::string& settings = "") {
  return plan_command(flags, settings);
}

json json_of(const Flags& flags) { return json::parse(command(joined(flags, {"--json"})).out); }

/// The line that a user sees.
std::string refusal(const Flags& flags, const std::string& settings = "") {
  try {
    command(flags, settings);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a plan as JSON has every key of its schema", "[planner][plan]") {
  const json plan = json_of({"--gpu", "h100", "--world", "8"});
  CHECK(plan["schema"] == "shardlens.plan/1");
  CHECK(plan["config"]["world"] == 8);
  for (const char* key : {"allocated_bytes", "reserved_bytes", "device_bytes"}) {
    CHECK(plan["peak"][key].is_number_integer());
  }
  for (const char* key : {"allocated_bytes", "reserved_bytes"}) {
    CHECK(plan["step_peak"][key].is_number_integer());
    CHECK(plan["ranks"][0][key].is_number_integer());
  }
  CHECK(plan["ranks"][0]["rank"] == 0);
  CHECK(plan["static_bytes"].is_number_integer());
  CHECK(plan["at_peak"]["phase"] == "training");
  CHECK(plan["at_peak"]["action"].is_number_integer());
  CHECK(plan["at_peak"]["categories"].size() == profiler::kCategories);
  CHECK(plan["capacity_bytes"].get<int64_t>() - plan["headroom_bytes"].get<int64_t>() ==
        plan["least_capacity_bytes"]["fast"].get<int64_t>());
  CHECK(plan["verdict"] == "fits");
  CHECK(plan["outside"]["from"] == "cold");
  CHECK(plan["outside"]["doubt"] == nullptr);
}

TEST_CASE("a plan says what is outside the allocator, and how sure it is", "[planner][plan]") {
  const auto outside_line = [](const Flags& flags) {
    const std::string text = command(joined({"--model", "vit-b16"}, flags)).out;
    const size_t at = text.find("  outside the allocator");
    return text.substr(at, text.find("\n  peak:") - at);
  };
  CHECK(outside_line({"--gpu", "l4", "--world", "8"}) ==
        "  outside the allocator: 441.00 MiB (CUDA 249.00 MiB, from 235.00 MiB to 263.00 MiB, NCCL "
        "192.00 MiB in 2; cold: published figures; --calibration FILE.slp measures, --beside SIZE "
        "replaces)");
  CHECK(
      outside_line({"--gpu", "a10g"}) ==
      "  outside the allocator: 586.00 MiB (CUDA 586.00 MiB, NCCL 0 B in 0; cold: published "
      "figures; --calibration FILE.slp measures, --beside SIZE replaces)\n"
      "  in doubt: CUDA's share on NVIDIA A10G was not published: the estimate is from NVIDIA RTX "
      "6000 Ada, and a guess in part; --beside SIZE replaces it");
  CHECK(outside_line({"--gpu", "a10g", "--beside", "300MiB"}) ==
        "  outside the allocator: 300.00 MiB (--beside)");
  const json given = json_of({"--gpu", "a10g", "--beside", "300MiB"})["outside"];
  CHECK(given["from"] == "given");
  CHECK(given["beside_bytes"] == 300 << 20);
  CHECK(given["doubt"] == nullptr);
  const json cold = json_of({"--gpu", "h100"})["outside"];
  CHECK(cold["least_beside_bytes"] == 740 << 20);
  CHECK(cold["most_beside_bytes"] == 758 << 20);
}

TEST_CASE("the exit code is the verdict", "[planner][plan]") {
  const Flags model = {"--model", "vit-b16", "--batch", "32", "--device", "null:h200"};
  const json plan = json_of(model);
  const int64_t fast = plan["least_capacity_bytes"]["fast"].get<int64_t>();
  const int64_t any = plan["least_capacity_bytes"]["any"].get<int64_t>();
  const auto code_at = [&](int64_t bytes) {
    return command(joined(model, {"--capacity", std::to_string(bytes)})).exit_code;
  };
  CHECK(code_at(fast) == 0);
  CHECK(code_at(any - (2 << 20)) == 3);
  if (any < fast) CHECK(code_at(any) == 4);
}

TEST_CASE("a predicted timeline reads back as the plan", "[planner][plan]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("plan.slp");
  const std::vector<Flags> cases = {
      {"--gpu", "h200"},
      {"--gpu", "h100", "--model", "vit-b16", "--world", "8", "--param-dtype", "bf16"},
      {"--device", "null:l4", "--strategy", "ddp", "--world", "2", "--accumulate", "2"},
      {"--device", "null:h200", "--offload", "all", "--recompute", "full"},
      {"--device", "null:h200", "--capacity", "60MiB"},
      {"--device", "cpu", "--world", "2"}};
  for (const Flags& flags : cases) {
    CAPTURE(flags);
    const json plan = json_of(joined(flags, {"--timeline", path}));
    const profiler::RankReport report = profiler::report_of(path);
    CHECK(report.judgement.faults.empty());
    CHECK(report.unmatched == 0);
    CHECK(report.header.notice.starts_with("predicted"));
    CHECK(report.peak_bytes() == plan["peak"]["allocated_bytes"]);
    if (report.reserved_peak_bytes()) {
      CHECK(*report.reserved_peak_bytes() == plan["peak"]["reserved_bytes"]);
    }
    REQUIRE(report.step_peak);
    CHECK(report.step_peak->bytes[static_cast<size_t>(report.main)] ==
          plan["step_peak"]["allocated_bytes"]);
    CHECK(report.main_space()->peak_at.action == plan["at_peak"]["action"]);
    const profiler::Profile profile = profiler::read_profile(path);
    CHECK(std::ranges::is_sorted(profile.events, {}, &profiler::Event::time_ns));
    CHECK(parse_schedule(profile.header.train).actions.size() > 0);
  }
}

TEST_CASE("the schedule and the shards can be read", "[planner][plan]") {
  const Schedule schedule =
      parse_schedule(command({"--gpu", "h200", "--world", "4", "--text"}).out);
  CHECK(schedule.world_size == 4);
  const std::string shards = command({"--gpu", "h200", "--world", "4", "--shards"}).out;
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  for (const models::ParameterSpec& parameter : spec.parameters) {
    CHECK(shards.find(parameter.name) != std::string::npos);
  }
}

TEST_CASE("a search leaves configurations that train reads", "[planner][plan]") {
  const tests::TemporaryFolder folder;
  const Flags flags = {"--gpu",     "h200",         "--world",           "2",
                       "--offload", "none",         "--search",          "--budget",
                       "20GiB",     "--config-out", folder.file("found")};
  const json found = json_of(flags);
  REQUIRE(found["front"].size() > 0);
  for (size_t i = 0; i < found["front"].size(); ++i) {
    const std::string path = folder.file("found/pareto-" + std::to_string(i + 1) + ".json");
    const Config config = parse_arguments({"--config", path}).config;
    CHECK(json::parse(to_json(config)) == found["front"][i]["config"]);
    CHECK(config.workers == 2);
  }
  CHECK(found["front"].size() + found["rejected"].size() == found["candidates"]);
  CHECK(command({"--gpu", "h200", "--search", "--budget", "1MiB", "--world", "2"}).exit_code == 3);
}

TEST_CASE("a plan for a GPU's largest batch names it", "[planner][plan]") {
  const json plan = json_of({"--device", "null:l4", "--capacity", "1GiB", "--solve", "batch"});
  CHECK(plan["solve"]["what"] == "batch");
  CHECK(plan["solve"]["value"] == plan["config"]["batch"]);
}

TEST_CASE("wrong usage is one line that says how to fix it", "[planner][plan]") {
  const std::vector<Flags> wrong = {
      {"--gpu", "h2000"},
      {"--gpu", "h200", "--device", "cpu"},
      {"--device", "tpu"},
      {"--gpu", "h200", "--capacity", "much"},
      {"--gpu", "h200", "--model", "none.json"},
      {"--gpu", "h200", "--world", "0x2"},
      {"--gpu", "h200", "--strategy", "zero"},
      {"--gpu", "h200", "--strategy", "single", "--world", "2"},
      {"--gpu", "h200", "--solve", "width"},
      {"--gpu", "h200", "--solve", "batch", "--search"},
      {"--gpu", "h200", "--solve", "gpu"},
      {"--gpu", "h200", "--budget", "1GiB"},
      {"--gpu", "h200", "--search", "--budget", "-1"},
      {"--gpu", "h200", "--text", "--timeline", "x.slp"},
      {"--gpu", "h200", "--calibration", "missing.slp"},
      {"--gpu", "h200", "--calibration", "missing.slp", "--beside", "1GiB"},
      {"--gpu", "h200", "--beside", "much"},
      {"--device", "null:h200", "--beside", "1GiB"},
      {"--device", "cpu", "--beside", "1GiB"},
      {"--gpu"},
      {"--gpu", "h200", "--worlds", "2"},
      {"--gpu", "h200", "stray"},
      {"--gpu", "h200", "--batch", "9000000000000000000"},
  };
  for (const Flags& flags : wrong) {
    CAPTURE(flags);
    const std::string line = refusal(flags);
    CHECK(!line.empty());
    CHECK(line.find('\n') == std::string::npos);
  }
  CHECK(refusal({"--gpu", "h200"}, "max_split_size_mb:no").starts_with("PYTORCH_CUDA_ALLOC_CONF"));
  if (!gpu_of_machine()) {
    const std::string line = refusal({});
    CHECK(line.find("--gpu") != std::string::npos);
    CHECK(line.find("--device cpu") != std::string::npos);
  }
}

TEST_CASE("help names the flags of train and of plan", "[planner][plan]") {
  const std::string help = command({"--help"}).out;
  for (const char* flag :
       {"--reshard-after-forward", "--gpu", "--solve", "--search", "--shards", "--beside"}) {
    CHECK(help.find(flag) != std::string::npos);
  }
}

TEST_CASE("PyTorch's own settings of its allocator count", "[planner][plan]") {
  const Flags flags = {"--device", "null:h200", "--model", "vit-b16", "--json"};
  const json plain = json::parse(command(flags).out);
  const json expandable = json::parse(command(flags, "expandable_segments:True").out);
  CHECK(expandable["peak"]["reserved_bytes"] < plain["peak"]["reserved_bytes"]);
}

TEST_CASE("a plan is for the requested PyTorch, or for that of this build", "[planner][plan]") {
  const Flags flags = {"--gpu", "h200", "--model", "vit-l16", "--world", "8"};
  const json own = json_of(flags);
  CHECK(own["engine"] == "shardlens");
  CHECK(own["torch"]["source"] == "this build");
  const json old = json_of(joined(flags, {"--torch", "2.11.0"}));
  CHECK(old["torch"]["version"] == "2.11");
  CHECK(old["torch"]["source"] == "--torch");
  CHECK(old["peak"] != own["peak"]);
  CHECK_THROWS_AS(command(joined(flags, {"--torch", "2.16"})), std::invalid_argument);
  CHECK_THROWS_AS(command(joined(flags, {"--engine", "other"})), std::invalid_argument);

  // It counts for every answer: that GPU fits by these rules.
  const Flags small = {"--model", "vit-l16", "--world", "8", "--batch", "96", "--torch", "2.11"};
  CHECK(json_of(joined(small, {"--solve", "gpu"}))["torch"]["version"] == "2.11");
}

TEST_CASE("a plan has the range over addresses, and is in doubt where that crosses the memory",
          "[planner][plan]") {
  const Flags flags = {"--model",     "llama-1b", "--seq",       "1000", "--world", "8",
                       "--gpu",       "h200",     "--batch",     "17",   "--torch", "2.11",
                       "--recompute", "every:2",  "--attention", "math"};
  const json plan = json_of(flags);
  const json& reserved = plan["bands"]["reserved"];
  const int64_t least = reserved["least_bytes"], most = reserved["most_bytes"];
  CHECK(plan["bands"]["orders"] == kDefaultOrders);
  REQUIRE(least < most);
  CHECK(least <= plan["peak"]["reserved_bytes"]);
  CHECK(most >= plan["peak"]["reserved_bytes"]);
  CHECK(plan["verdict_doubts"].empty());
  CHECK_THAT(command(flags).out, ContainsSubstring(" reserved in 40 orders\n"));

  // All figures of outside memory agree, so that addresses alone decide.
  const auto within = [&](int64_t bytes) {
    return joined(flags, {"--capacity", std::to_string(bytes + (1 << 20)), "--beside", "1MiB"});
  };
  CHECK(json_of(within(most))["verdict_doubts"].empty());
  const PlanOutcome between = command(within(least));
  CHECK_THAT(between.out, ContainsSubstring("  in doubt: in "));
  CHECK_THAT(between.out, ContainsSubstring(" of 40 orders of the driver's addresses it fits"));
  CHECK_FALSE(json_of(within(least))["verdict_doubts"].empty());
}

TEST_CASE("a plan is in doubt where figures of outside memory decide", "[planner][plan]") {
  const Flags flags = {"--model", "vit-l16", "--world", "1",       "--strategy",
                       "single",  "--gpu",   "rtx4090", "--batch", "8"};
  const json plan = json_of(flags);
  const int64_t outside = plan["outside"]["beside_bytes"];
  const int64_t most = plan["outside"]["most_beside_bytes"];
  REQUIRE(most > outside);
  const int64_t fast = plan["least_capacity_bytes"]["fast"];
  CHECK(json_of(joined(flags, {"--capacity", std::to_string(fast + most)}))["verdict_doubts"]
            .empty());
  const PlanOutcome tight = command(joined(flags, {"--capacity", std::to_string(fast)}));
  CHECK(tight.exit_code == 0);
  CHECK_THAT(tight.out, ContainsSubstring(" outside the allocator, as some figures say, it "));
}

TEST_CASE("outputs that cannot be written are refused before the work", "[planner][plan]") {
  const tests::TemporaryFolder folder;
  const auto refused = [&](const Flags& flags, const std::string& why) {
    CAPTURE(flags);
    CHECK(refusal(joined({"--device", "null:h200"}, flags)).find(why) != std::string::npos);
    CHECK(std::filesystem::is_empty(folder.path()));
  };
  refused({"--timeline", folder.file("none/plan.slp")}, "there is no folder");
  refused({"--timeline", folder.path()}, "is a folder");
  refused({"--timeline", "/dev/full"}, "is not a regular file");
  refused({"--search", "--config-out", "/dev/null/out"}, "cannot be made");
  // A plan that cannot be made leaves no file, and keeps an older one unchanged.
  const std::string path = folder.file("plan.slp");
  CHECK_FALSE(refusal({"--device", "null:h200", "--batch", "0", "--timeline", path}).empty());
  CHECK(std::filesystem::is_empty(folder.path()));
  command({"--device", "null:h200", "--timeline", path});
  command({"--device", "null:h200", "--timeline", path});
  const auto files = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("the timeline of many microbatches shows a few of them in time", "[planner][plan]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("plan.slp");
  const json plan = json_of({"--device", "null:h200", "--world", "8", "--data", "synthetic",
                             "--accumulate", "10000", "--timeline", path});
  const profiler::Profile profile = profiler::read_profile(path);
  CHECK(profile.events.size() < 1'000'000);
  CHECK(std::ranges::is_sorted(profile.events, {}, &profiler::Event::time_ns));
  CHECK(profile.header.notice.find("left out") != std::string::npos);
  const profiler::RankReport report = profiler::report_of(path);
  CHECK(is_whole(report.judgement));
  CHECK(report.unmatched == 0);
  CHECK(report.peak_bytes() == plan["peak"]["allocated_bytes"]);
  const Schedule schedule = parse_schedule(profile.header.train);
  CHECK(schedule.microbatches == 10000);
  // A step lasts as long as its microbatches.
  std::vector<int64_t> steps;
  for (const profiler::Event& event : profile.events) {
    if (event.kind == profiler::EventKind::step) steps.push_back(event.time_ns);
  }
  REQUIRE(steps.size() > 1);
  const double seconds = static_cast<double>(steps[1] - steps[0]) / 1e9;
  CHECK(std::abs(seconds / plan["step_seconds"].get<double>() - 1) < 0.01);
  const int64_t last_action = schedule.size() - 1;
  CHECK(std::ranges::count(profile.events, last_action, &profiler::Event::action) > 0);
}

TEST_CASE("no model file makes a plan crash", "[planner][plan]") {
  const tests::TemporaryFolder folder;
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const std::string base = R"({"family":"vit","name":"m","image_px":28,"patch_px":7,"channels":1,)"
                           R"("layers":2,"heads":2,"width":16,"mlp_width":32,"classes":10})";
  const std::string path = folder.file("m.json");
  int planned = 0;
  for (int i = 0; i < 300; ++i) {
    std::string text = base;
    const int64_t edits = tests::random_between(engine, 0, 3);
    for (int64_t edit = 0; edit < edits; ++edit) {
      const auto at = static_cast<size_t>(
          tests::random_between(engine, 0, static_cast<int64_t>(text.size()) - 1));
      const char byte = "0123456789{}[]\",:-.eE \\"[tests::random_between(engine, 0, 22)];
      tests::random_between(engine, 0, 1) ? text.insert(at, 1, byte).size()
                                          : text.replace(at, 1, 1, byte).size();
    }
    tests::write_file(path, text);
    CAPTURE(text);
    try {
      command({"--model", path, "--gpu", "h200", "--batch", "1"});
      ++planned;
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
  CHECK(planned > 0);
}
