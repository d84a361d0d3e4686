// Other tools see a run as it was: its recording as memory_viz, Perfetto and a page show it is
// compared with its report and LibTorch's own counters; and PyTorch FSDP2's snapshot with a
// recording of ours.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/gzip_file.h"
#include "tests/support/process.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const std::string kFixtures = SHARDLENS_SOURCE_DIR "/tests/fixtures/";
constexpr int kSteps = 5;

using Bytes = std::map<std::string, int64_t>;  // by category, those that are used

int64_t sum_of(const Bytes& bytes) {
  int64_t sum = 0;
  for (const auto& [category, in_category] : bytes) sum += in_category;
  return sum;
}

/// A recorded run of five steps.
class Run {
 public:
  explicit Run(const std::vector<std::string>& flags) {
    std::vector<std::string> words = {SHARDLENS_TRAIN,
                                      "--data",
                                      "synthetic",
                                      "--steps",
                                      std::to_string(kSteps),
                                      "--storage",
                                      folder_.path(),
                                      "--name",
                                      "r",
                                      "--profile",
                                      "on"};
    words.insert(words.end(), flags.begin(), flags.end());
    const ProcessEnd ended = run(words);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
  }

  std::string path() const { return folder_.file("r"); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  json result() const { return json::parse(read_file(folder_.file("r/result.json"))); }

  /// The output of `shardlens profile`.
  static std::string profile(std::vector<std::string> words) {
    words.insert(words.begin(), SHARDLENS_PROFILE);
    const ProcessEnd ended = run(words);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return ended.out;
  }
  std::string exported(const std::string& format, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"export", path(), "--format", format, "--out", file("out")};
    words.insert(words.end(), more.begin(), more.end());
    profile(words);
    return read_file(file("out"));
  }
  json ranks() const { return json::parse(profile({"report", path(), "--json"})).at("ranks"); }

 private:
  TemporaryFolder folder_;
};

/// On the null device, and on the CPU. Every rank has a recording.
const std::vector<std::string> kNullRanks = {"--device", "null:h200", "--workers", "2"};
const std::vector<std::string> kCpuRanks = {"--device", "cpu", "--workers", "2", "--batch", "8"};

struct Peak {
  int64_t bytes = 0;
  Bytes categories;
};

constexpr std::string_view kReserved = "reserved bytes";  // the name of a counter

void check_same(const Peak& found, const Peak& expected) {
  CHECK(found.bytes == expected.bytes);
  CHECK(found.categories == expected.categories);
}

Bytes used(const json& categories) {
  Bytes bytes;
  for (const auto& [category, in_category] : categories.items()) {
    if (in_category != 0) bytes[category] = in_category;
  }
  return bytes;
}

Peak reported_peak(const json& rank) {
  return {.bytes = rank.at("peak").at("allocated_bytes"),
          .categories = used(rank.at("at_peak").at("categories"))};
}

/// The first point at which the counters of one rank are highest. That of what is allocated and
/// that of its categories have the same points, and the categories add up to the total in each.
Peak counted_peak(const json& trace, int64_t process) {
  Peak peak;
  int64_t total = 0;
  size_t totals = 0;
  size_t sums = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "C" || event.at("pid") != process) continue;
    if (event.at("name") == kReserved) continue;
    const json& values = event.at("args");
    if (values.contains("total")) {
      total = values.at("total");
      ++totals;
      continue;
    }
    const Bytes bytes = used(values);
    if (sum_of(bytes) == total) ++sums;
    if (total > peak.bytes) peak = {total, bytes};
  }
  CHECK(totals > 0);
  CHECK(sums == totals);
  return peak;
}

/// The highest value of the counter of reserved bytes; null if the rank has none, as on a CPU.
json reserved_peak(const json& trace, int64_t process) {
  json peak;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("pid") != process || event.at("name") != kReserved) continue;
    const json& bytes = event.at("args").at("total");
    if (peak.is_null() || bytes > peak) peak = bytes;
  }
  return peak;
}

size_t steps_of(const json& trace, int64_t process) {
  return static_cast<size_t>(std::ranges::count_if(trace.at("traceEvents"), [&](const json& event) {
    return event.at("ph") == "X" && event.at("pid") == process &&
           event.at("name").get<std::string>().starts_with("step ");
  }));
}

/// The page's facts, from which its script starts.
json facts_of(const std::string& page) {
  const std::string begins = "id=\"facts\">";
  const size_t begin = page.find(begins) + begins.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

Peak page_peak(const json& lane) {
  const json& peak = lane.at("peak");
  return {.bytes = peak.at("bytes"), .categories = used(peak.at("categories"))};
}

}  // namespace

TEST_CASE("Perfetto's counters peak where each rank's report does", "[profiler][null]") {
  const Run run(GENERATE(kNullRanks, kCpuRanks));
  const json ranks = run.ranks();
  REQUIRE(ranks.size() == 2);
  for (const char* points : {"20", "1000000"}) {
    const json trace = json::parse(run.exported("perfetto", {"--points", points}));
    for (const json& rank : ranks) {
      const int64_t process = rank.at("rank").get<int64_t>() + 1;
      const Peak expected = reported_peak(rank);
      CHECK(expected.bytes > 0);
      CHECK(sum_of(expected.categories) == expected.bytes);
      check_same(counted_peak(trace, process), expected);
      CHECK(reserved_peak(trace, process) == rank.at("peak").at("reserved_bytes"));
      CHECK(steps_of(trace, process) == kSteps);
    }
  }
}

TEST_CASE("a page has the peak of each rank's report", "[profiler][null]") {
  const Run run(GENERATE(kNullRanks, kCpuRanks));
  const std::string page = run.exported("html");
  const json lanes = facts_of(page).at("lanes");
  const json ranks = run.ranks();
  REQUIRE(lanes.size() == ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Peak expected = reported_peak(ranks[i]);
    check_same(page_peak(lanes[i]), expected);
    CHECK(lanes[i].at("steps") == kSteps);
    CHECK_THAT(page, ContainsSubstring("(" + std::to_string(expected.bytes) + " bytes)"));
  }
}

TEST_CASE("a run exported to memory_viz and imported has the same peaks", "[profiler][null]") {
  const Run run({"--device", "null:h200", "--world", "8", "--solo-rank", "3"});
  const std::string format = GENERATE("memory-viz", "memory-viz-json");
  run.exported(format);
  Run::profile({"import", run.file("out"), "--out", run.file("back.slp")});
  const json diff = json::parse(Run::profile({"diff", run.path(), run.file("back.slp"), "--json"}));
  const json& rank = diff.at("ranks").at(0);
  CHECK(rank.at("peak").at("growth_bytes") == 0);
  CHECK(rank.at("reserved").at("growth_bytes") == 0);
  CHECK(rank.at("peak").at("a_bytes") ==
        run.result().at("memory").at("peak").at("allocated_bytes"));
  for (const auto& [category, pair] : rank.at("categories").items()) {
    INFO(category);
    CHECK(pair.at("growth_bytes") == 0);
  }
}

TEST_CASE("PyTorch FSDP2's snapshot and a run of ours differ by their peaks", "[profiler][null]") {
  const json expected = json::parse(read_file(kFixtures + "memory_viz/expected.json")).at("fsdp2");
  const Run ours({"--device", "null:h200", "--model", "vit-tutorial", "--strategy", "fsdp",
                  "--world", "2", "--solo-rank", "0", "--batch", "64", "--reshard-after-forward",
                  "true"});
  write_file(ours.file("fsdp2.pickle"), read_gzip_file(kFixtures + "memory_viz/fsdp2.pickle.gz"));
  Run::profile({"import", ours.file("fsdp2.pickle"), "--out", ours.file("fsdp2.slp")});
  const json diff =
      json::parse(Run::profile({"diff", ours.file("fsdp2.slp"), ours.path(), "--json"}));
  REQUIRE(diff.at("ranks").size() == 1);
  const json& rank = diff.at("ranks")[0];
  const json memory = ours.result().at("memory");
  const int64_t theirs_bytes = expected.at("peak_allocated_bytes");
  const int64_t ours_bytes = memory.at("peak").at("allocated_bytes");
  CHECK(rank.at("peak").at("a_bytes") == theirs_bytes);
  CHECK(rank.at("peak").at("b_bytes") == ours_bytes);
  CHECK(rank.at("peak").at("growth_bytes") == ours_bytes - theirs_bytes);
  CHECK(rank.at("reserved").at("a_bytes") == expected.at("peak_reserved_bytes"));
  CHECK(rank.at("reserved").at("b_bytes") == memory.at("peak").at("reserved_bytes"));
  Bytes a, b;
  for (const auto& [category, pair] : rank.at("categories").items()) {
    a[category] = pair.at("a_bytes");
    b[category] = pair.at("b_bytes");
  }
  CHECK(sum_of(a) == theirs_bytes);
  CHECK(sum_of(b) == ours_bytes);
  CHECK(a.at("other") == theirs_bytes);  // a snapshot of PyTorch declares no category
  CHECK(b.at("other") <= ours_bytes / 100);
}

TEST_CASE("PyTorch FSDP2's snapshot has the peaks that other tests compare with", "[profiler]") {
  const json snapshot = json::parse(read_file(kFixtures + "memory_viz/expected.json")).at("fsdp2");
  const json peaks = json::parse(read_file(kFixtures + "fsdp2_null_peaks.json"));
  size_t found = 0;
  const json configuration = {{"model", "vit-tutorial"}, {"world", 2},
                              {"strategy", "fsdp"},      {"param_dtype", "fp32"},
                              {"reduce_dtype", "fp32"},  {"reshard_after_forward", "true"},
                              {"offload", "none"}};
  for (const json& row : peaks.at("rows")) {
    json same = row;
    same.update(configuration);
    if (same != row) continue;
    ++found;
    const json& root = row.at("peaks").at("root");  // as the snapshot's model is wrapped
    CHECK(root.at(0) == snapshot.at("peak_allocated_bytes"));
    CHECK(root.at(1) == snapshot.at("peak_reserved_bytes"));
  }
  CHECK(found == 1);
}
