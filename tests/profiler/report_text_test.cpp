#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/report/report.h"
#include "tests/support/recordings/small_recording.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using tests::small_recording;

namespace {

constexpr const char* kSmallText =
    R"(rank 0 of 2 on null:h200 (NVIDIA H200, 141.00 GiB)
  notice                null device: memory is real, values are not
  peak                  7.00 MiB allocated, 20.00 MiB reserved
  when                  training, step 0, after 0.004 s
  action                0 FORWARD unit=a group=b0
  peak of steps         7.00 MiB allocated, 20.00 MiB reserved, from step 2 on
  reserved then         20.00 MiB: 7.00 MiB given (100 B rounding), 13.00 MiB beside used blocks

  alive at the peak           given        asked
  parameter_shard          4.00 MiB     4.00 MiB   57.1 %
  activation               3.00 MiB     3.00 MiB   42.9 %
  total                    7.00 MiB     7.00 MiB  100.0 %

      4.00 MiB                           parameter_shard     mlp0.weight, 1 step old
      3.00 MiB                           activation          0 FORWARD unit=a group=b0

  reserved peak         20.00 MiB, starting, after 0.003 s, for 4.00 MiB of mlp0.weight
    asked for               4.00 MiB
    rounding                   100 B
    beside used blocks     16.00 MiB  free in one piece
         16.00 MiB  beside 4.00 MiB in 1 block: mlp0.weight

  steps from 0          7.00 MiB, 7.00 MiB, 7.00 MiB
  phases                starting 4.00 MiB, training 7.00 MiB

  device, total         140.62 GiB
  device, used at most  1000.00 MiB
    given by the driver   420.00 MiB
        400.00 MiB  libnccl.so.2
         20.00 MiB  libc10_cuda.so
    residual              580.00 MiB  not explained
  reserved by LibTorch  20.00 MiB
    asked for               4.00 MiB
    rounding                   100 B
    split                  16.00 MiB  free beside used blocks
  host memory           at most 2.00 GiB resident, 2.00 GiB at the end
  at the end            4.00 MiB allocated
  events                21, 0 lost
)";

/// Blocks of one size that the same place allocates.
struct Blocks {
  int count = 0;
  int64_t bytes = 0;
  uint32_t label = 0;
};

/// A Python program's activations, all alive at the end.
Profile with_blocks(const std::vector<Blocks>& blocks) {
  Profile profile;
  profile.header.device = "cuda";
  profile.strings = {"", "model.py:62 forward", "train.py:9 main"};
  for (int label = 3; label <= 12; ++label) {
    profile.strings.push_back("line " + std::to_string(label));
  }
  uint64_t address = uint64_t{1} << 40;
  for (const Blocks& some : blocks) {
    for (int i = 0; i < some.count; ++i, address += uint64_t{1} << 30) {
      profile.events.push_back({.address = address,
                                .value = some.bytes,
                                .label = some.label,
                                .category = Category::activation});
    }
  }
  return profile;
}

}  // namespace

TEST_CASE("a report fills a screen") {
  const std::string text = report_text({analyse(small_recording())});
  CHECK(text == kSmallText);
}

TEST_CASE("the rank with the highest peak comes first, an empty one is a line") {
  Profile empty;
  empty.header.rank = 1;
  empty.header.world_size = 3;
  empty.header.device = "cpu";
  empty.judgement = {.state = RecordingState::damaged, .lost_events = 4};
  const std::string text = report_text(
      {analyse(small_recording(0)), analyse(empty), analyse(small_recording(2, 5 << 20))});
  CHECK(text.starts_with("rank 2 of"));
  CHECK_THAT(text, ContainsSubstring("\n\nrank 0 of"));
  CHECK(text.ends_with(
      "\nrank 1 of 3 on cpu: no allocation in 0 events; the recording is not whole: damaged, "
      "but no event is missing; 4 events were lost or are uncertain: the peak may "
      "be higher or lower\n"));
}

TEST_CASE("a report has no row for what was not recorded, nor for zero bytes") {
  Profile profile;
  profile.header.device = "cuda";
  profile.events = {{.address = static_cast<uint64_t>(Counter::device_total),
                     .value = 80 << 20,
                     .kind = EventKind::counter},
                    {.address = 1 << 20, .value = 2 << 20, .space = Space::segment},
                    {.address = 1 << 20, .value = 2 << 20, .category = Category::parameter_shard}};
  CHECK(report_text({analyse(profile)}) == R"(rank 0 of 1 on cuda
  peak                  2.00 MiB allocated, 2.00 MiB reserved
  when                  starting, no times
  reserved then         2.00 MiB: 2.00 MiB given

  alive at the peak           given        asked
  parameters               2.00 MiB     2.00 MiB  100.0 %
  total                    2.00 MiB     2.00 MiB  100.0 %

      2.00 MiB                           parameters          without a line

  reserved peak         2.00 MiB, starting, no times, for 2.00 MiB of parameters
    asked for               2.00 MiB

  phases                starting 2.00 MiB
  at the end            2.00 MiB allocated
  events                3, 0 lost
)");
}

TEST_CASE("free memory at the peak is split by kind") {
  constexpr int64_t kMiB = 1 << 20;
  Profile profile;
  profile.header.device = "cuda";
  profile.events = {
      {.address = 64 * kMiB, .value = 20 * kMiB, .space = Space::segment},
      {.address = 128 * kMiB, .value = 20 * kMiB, .space = Space::segment},
      {.address = 64 * kMiB, .value = 12 * kMiB},
  };
  const std::string text = report_text({analyse(profile)});
  CHECK_THAT(text, ContainsSubstring("\n  reserved then         40.00 MiB: 12.00 MiB "
                                     "given, 28.00 MiB not (8.00 MiB beside used blocks, 20.00 "
                                     "MiB cached)\n"));
}

TEST_CASE("the blocks of a place are a row, with their number, sizes and ages") {
  constexpr int64_t kMiB = 1 << 20;
  Profile profile = with_blocks({{27, 108 * kMiB, 1}, {2, 4 * kMiB, 2}, {1, 3 * kMiB, 2}});
  profile.events[3] = {.kind = EventKind::step};  // instead of one of 27
  const std::string text = report_text({analyse(profile)});
  CHECK_THAT(text, ContainsSubstring(R"(
      2.74 GiB  26 x 108.00 MiB          activation          model.py:62 forward, 0 to 1 step old
     11.00 MiB  3 of up to 4.00 MiB      activation          train.py:9 main
)"));
}

TEST_CASE("places beyond the table are counted, and in JSON they add up to the peak") {
  constexpr int64_t kMiB = 1 << 20;
  std::vector<Blocks> blocks;
  for (uint32_t label = 1; label <= 12; ++label) blocks.push_back({2, label * kMiB, label});
  const RankReport report = analyse(with_blocks(blocks));
  CHECK_THAT(report_text({report}), ContainsSubstring("\n      6.00 MiB  in 2 more places\n"));
  const auto json = nlohmann::json::parse(report_json({report}));
  const auto& at_peak = json.at("ranks").at(0).at("at_peak");
  CHECK(at_peak.at("tensors").size() == kTensorRows);
  REQUIRE(at_peak.at("places").size() == blocks.size());
  CHECK(at_peak.at("places").at(0).at("bytes") == 24 * kMiB);
  CHECK(at_peak.at("places").at(0).at("count") == 2);
  CHECK(at_peak.at("places").at(0).at("label") == "line 12");
  int64_t total = 0;
  for (const auto& place : at_peak.at("places")) total += place.at("bytes").get<int64_t>();
  CHECK(total == report.peak_bytes());
}

TEST_CASE("only a schedule of ours on several ranks has shards of parameters") {
  Profile profile = small_recording();
  CHECK_THAT(report_text({analyse(profile)}), ContainsSubstring("\n  parameter_shard  "));
  profile.header.world_size = 1;
  CHECK_THAT(report_text({analyse(profile)}), ContainsSubstring("\n  parameters  "));
  profile.header.world_size = 8;
  profile.header.train.clear();
  CHECK_THAT(report_text({analyse(profile)}), ContainsSubstring("\n  parameters  "));
}

TEST_CASE("a report names the levers that the program was recorded with") {
  Profile profile = small_recording();
  CHECK(nlohmann::json::parse(report_json({analyse(profile)}))["ranks"][0]["levers"].empty());
  profile.header.config = R"({"levers": {"optimizer": "fused", "set-to-none": ""}})";
  const std::string text = report_text({analyse(profile)});
  CHECK_THAT(text, ContainsSubstring("\n  levers                optimizer=fused,set-to-none\n"));
  const auto json = nlohmann::json::parse(report_json({analyse(profile)}));
  CHECK(json["ranks"][0]["levers"] == nlohmann::json{"optimizer=fused", "set-to-none"});
  for (const char* config : {"no JSON", "[1]", R"({"levers": [2]})", R"({"levers": null})"}) {
    profile.header.config = config;
    CHECK(report_text({analyse(profile)}).find("  levers ") == std::string::npos);
  }
}

TEST_CASE("running out of memory is a screen of its own") {
  Profile profile = small_recording();
  profile.events.push_back({.time_ns = 9'000'000,
                            .address = 3 << 20,
                            .value = int64_t{1} << 37,
                            .action = 0,
                            .label = 1,
                            .kind = EventKind::out_of_memory,
                            .category = Category::activation});
  const std::string text = report_text({analyse(profile)});
  const size_t at = text.find("\n  out of memory");
  REQUIRE(at != std::string::npos);
  CHECK(text.substr(at) ==
        R"(
  out of memory: 128.00 GiB asked for, training, step 2, after 0.009 s
  action                0 FORWARD unit=a group=b0
  for                   activation of mlp0.weight
  free on the device    3.00 MiB
  would have fit        16.00 MiB
  reserved then         20.00 MiB: 4.00 MiB given (100 B rounding), 16.00 MiB beside used blocks
    asked for               4.00 MiB
    rounding                   100 B
    beside used blocks     16.00 MiB  free in one piece, too small
         16.00 MiB  beside 4.00 MiB in 1 block, 3 steps old: mlp0.weight
  largest free block    16.00 MiB
  allocated             4.00 MiB
    parameter_shard         4.00 MiB
      4.00 MiB                           parameter_shard     mlp0.weight, 3 steps old
)");
  CHECK(out_of_memory_text(analyse(profile)) ==
        "rank 0 of 2 on null:h200 (NVIDIA H200, 141.00 GiB)" + text.substr(at));
  CHECK(out_of_memory_text(analyse(small_recording())).empty());
}

TEST_CASE("the report as JSON has the keys of the schema") {
  Profile profile = small_recording();
  profile.strings[1] = "not UTF-8: \xff";
  const auto json = nlohmann::json::parse(report_json({analyse(profile)}));
  CHECK(json.at("schema") == "shardlens.profile/1");
  const auto& rank = json.at("ranks").at(0);
  CHECK(rank.at("rank") == 0);
  CHECK(rank.at("device") == "null:h200");
  CHECK(rank.at("peak").at("allocated_bytes") == 7 << 20);
  CHECK(rank.at("peak").at("reserved_bytes") == 20 << 20);
  CHECK(rank.at("step_peak").at("allocated_bytes") == 7 << 20);
  CHECK(rank.at("step_peak").at("reserved_bytes") == 20 << 20);
  CHECK(rank.at("steps").size() == 3);
  CHECK(rank.at("steps").at(2).at("step") == 2);
  CHECK(rank.at("steps").at(2).at("peak_allocated_bytes") == 7 << 20);
  int64_t total = 0;
  for (const auto& [name, bytes] : rank.at("at_peak").at("categories").items()) {
    total += bytes.get<int64_t>();
  }
  CHECK(total == 7 << 20);
  CHECK(rank.at("at_peak").at("categories").size() == kCategories);
  CHECK(rank.at("events") == profile.events.size());
  CHECK(rank.at("lost") == 0);
  CHECK(rank.at("ledger").at("residual_bytes") == int64_t{580} << 20);
}

TEST_CASE("a recording of a CPU has no reserved bytes, and an empty one has zeros") {
  Profile profile;
  profile.header.device = "cpu";
  const auto empty = nlohmann::json::parse(report_json({analyse(profile)})).at("ranks").at(0);
  CHECK(empty.at("peak").at("allocated_bytes") == 0);
  CHECK(empty.at("step_peak").is_null());
  profile.events = {{.address = 1, .value = 100, .space = Space::host}};
  const auto host = nlohmann::json::parse(report_json({analyse(profile)})).at("ranks").at(0);
  CHECK(host.at("peak").at("allocated_bytes") == 100);
  CHECK(host.at("peak").at("reserved_bytes").is_null());
}

TEST_CASE("a program without a schedule says in which part its peak was") {
  Profile profile = small_recording();
  profile.header.train.clear();
  profile.header.evaluate.clear();
  for (Event& event : profile.events) event.action = -1;
  profile.events.insert(
      profile.events.begin(),
      {.action = static_cast<int32_t>(ProgramPart::backward), .kind = EventKind::action_begin});
  const RankReport rank = analyse(profile);
  CHECK_THAT(
      report_text({rank}),
      ContainsSubstring("  when                  training, step 0, backward, after 0.004 s"));
  const auto json = nlohmann::json::parse(report_json({rank}));
  CHECK(json.at("ranks").at(0).at("at_peak").at("part") == "backward");
  CHECK(json.at("ranks").at(0).at("at_peak").at("module").is_null());
  profile.header.train = "schedule";  // then actions are those of the schedule
  CHECK_THAT(report_text({analyse(profile)}), !ContainsSubstring("backward"));
}

TEST_CASE("the module of the peak is the last that was told before it") {
  Profile profile = small_recording();
  profile.header.train.clear();
  profile.header.evaluate.clear();
  for (Event& event : profile.events) event.action = -1;
  const RankReport without = analyse(profile);
  const int64_t peak_ns = without.main_space()->peak_at.time_ns;
  const auto in_module = [&](const std::string& module) {
    profile.strings.push_back(module);
    return Event{.label = static_cast<uint32_t>(profile.strings.size() - 1),
                 .kind = EventKind::module};
  };
  const auto peak = std::ranges::find(profile.events, peak_ns, &Event::time_ns);
  REQUIRE(peak != profile.events.end());
  const auto at = peak - profile.events.begin();
  profile.events.insert(profile.events.end(), in_module("layers.12"));
  profile.events.insert(profile.events.begin() + at, in_module("layers.11.mlp"));
  profile.events.insert(profile.events.begin(), in_module("layers.10"));
  const RankReport rank = analyse(profile);
  CHECK(rank.peak_bytes() == without.peak_bytes());
  CHECK_THAT(
      report_text({rank}),
      ContainsSubstring("  when                  training, step 0, in layers.11.mlp, after"));
  profile.events.insert(
      profile.events.begin(),
      {.action = static_cast<int32_t>(ProgramPart::backward), .kind = EventKind::action_begin});
  CHECK_THAT(report_text({analyse(profile)}),
             ContainsSubstring("training, step 0, backward of layers.11.mlp, after"));
  const auto json = nlohmann::json::parse(report_json({analyse(profile)}));
  CHECK(json.at("ranks").at(0).at("at_peak").at("module") == "layers.11.mlp");
}
