#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/report/report.h"
#include "tests/support/small_recording.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using test::small_recording;

namespace {

constexpr const char* kSmallText =
    R"(rank 0 of 2 on null:h200 (NVIDIA H200, 141.00 GiB)
  notice                null device: memory is real, values are not
  peak                  7.00 MiB allocated, 20.00 MiB reserved
  when                  training, step 0, after 0.004 s
  action                0 FORWARD unit=a group=b0
  peak of steps         7.00 MiB allocated, 20.00 MiB reserved, from the third step on

  alive at the peak           given        asked
  parameter_shard          4.00 MiB     4.00 MiB   57.1 %
  activation               3.00 MiB     3.00 MiB   42.9 %
  total                    7.00 MiB     7.00 MiB  100.0 %

      4.00 MiB  parameter_shard     mlp0.weight              outside a pass, 1 step old
      3.00 MiB  activation          -                        0 FORWARD unit=a group=b0, 0 steps old

  steps from 0          7.00 MiB, 7.00 MiB, 7.00 MiB
  phases                starting 4.00 MiB, training 7.00 MiB
  rounding              100 B given beyond what was asked
  reserved, not given   13.00 MiB = 13.00 MiB beside used blocks + 0 B cached

  device, total         140.62 GiB
  device, used at most  1000.00 MiB
    before us           not recorded  other processes
    context and others  not recorded  when the recording began
    given by the driver   420.00 MiB
        400.00 MiB  libnccl.so.2
         20.00 MiB  libc10_cuda.so
    residual              580.00 MiB  not explained
  reserved by LibTorch  20.00 MiB
    asked for               4.00 MiB
    rounding                   100 B
    pending                      0 B  freed, other streams still use it
    split                  16.00 MiB  free beside used blocks
    cached                       0 B
  host memory           2.00 GiB resident at most, 2.00 GiB at the end
  at the end            4.00 MiB allocated
  events                21, 0 lost
)";

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
  CHECK(
      text.ends_with("\nrank 1 of 3 on cpu: no allocation in 0 events; the recording is damaged, "
                     "but no event is missing; 4 events were lost, since more came than could be "
                     "kept: the peak may be higher or lower\n"));
}

TEST_CASE("what was not recorded is said to be so") {
  Profile profile;
  profile.events = {{.address = 1, .value = 100}};
  const std::string text = report_text({analyse(profile)});
  CHECK_THAT(text, ContainsSubstring("device, used at most  not recorded"));
  CHECK_THAT(text, ContainsSubstring("residual            not recorded"));
  CHECK_THAT(text, ContainsSubstring("peak of steps         fewer than three steps"));
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
  rounding              100 B given beyond what was asked
  reserved, not given   16.00 MiB = 16.00 MiB beside used blocks + 0 B cached
  largest free block    16.00 MiB
  allocated             4.00 MiB
    parameter_shard         4.00 MiB
      4.00 MiB  parameter_shard     mlp0.weight              outside a pass, 3 steps old
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

TEST_CASE("a recording of a CPU has no reserved bytes, and none of nothing has zeros") {
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
