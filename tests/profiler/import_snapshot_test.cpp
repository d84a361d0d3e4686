// Snapshots are made by a brute-force allocator that knows what was true, cut at a random entry,
// and imported: places, sizes and sums are those. Real snapshots are compared with their own sums.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/document/document_writer.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/report/block_tracker.h"
#include "profiler/report/report.h"
#include "tests/support/gzip_file.h"
#include "tests/support/recordings/snapshot_allocator.h"
#include "tests/support/sample.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using tests::SnapshotAllocator;

constexpr int64_t kMiB = int64_t{1} << 20;

void write_value(DocumentWriter& out, const json& value) {
  if (value.is_string()) return out.text(value.get<std::string>());
  if (value.is_boolean()) return out.boolean(value);
  if (value.is_number()) return out.integer(value);
  if (value.is_array()) {
    out.begin_list();
    for (const json& item : value) write_value(out, item);
    return out.end_list();
  }
  out.begin_map();
  for (const auto& [name, item] : value.items()) {
    out.key(name);
    write_value(out, item);
  }
  out.end_map();
}

std::string pickled(const json& value) {
  std::ostringstream out;
  const auto writer = pickle_writer(out);
  write_value(*writer, value);
  writer->finish();
  return out.str();
}

/// Checks that every byte that was reserved is in one part.
void check_parts(const BlockTotals& totals) {
  CHECK(totals.unplaced == 0);
  CHECK(totals.requested + totals.rounding + totals.pending + totals.split + totals.cached ==
        totals.reserved);
}

/// Checks the listed blocks of the start. Returns how many differ in size.
int64_t check_start(const Profile& profile, const SnapshotAllocator::Segments& start) {
  std::map<uint64_t, int64_t> held;
  for (const Event& event : profile.events) {
    if (event.time_ns == 0 && event.kind == EventKind::hold && event.value > 0) {
      held.try_emplace(event.address, event.value);
    }
  }
  int64_t smaller = 0;
  for (const auto& [key, segment] : start) {
    for (const auto& [address, block] : segment.blocks) {
      if (block.use == SnapshotAllocator::Use::none) continue;
      REQUIRE(held.contains(address));
      const int64_t missing = block.bytes - held[address];
      CHECK(missing >= 0);
      CHECK(missing <= kMiB);
      smaller += missing > 0;
    }
  }
  return smaller;
}

/// Checks the sums after every entry, whose time is its number.
void check_sums(const Profile& profile, const SnapshotAllocator& made) {
  const int64_t doubt = profile.judgement.lost_events * kMiB;
  BlockTracker tracker;
  for (size_t i = 0; i < profile.events.size(); ++i) {
    tracker.take(profile.events[i]);
    const int64_t time_ns = profile.events[i].time_ns;
    if (i + 1 < profile.events.size() && profile.events[i + 1].time_ns == time_ns) continue;
    const auto& truth = made.after_entries()[static_cast<size_t>(time_ns / 1000)];
    const BlockTotals& found = tracker.totals();
    check_parts(found);
    CHECK(found.reserved == truth.reserved);
    CHECK(found.requested == truth.asked);
    CHECK(found.allocated() <= truth.allocated);
    CHECK(found.allocated() >= truth.allocated - doubt);
  }
  const auto end = SnapshotAllocator::totals_of(made.end());
  CHECK(tracker.totals().allocated() == end.allocated);
  CHECK(tracker.totals().requested == end.asked);
  CHECK(tracker.totals().reserved == end.reserved);
  CHECK(tracker.totals().pending == end.pending);
}

/// Imports a snapshot of a random history. Returns true if no size is in doubt.
bool check_random_history(uint64_t seed, bool expandable) {
  std::mt19937_64 engine(seed);
  SnapshotAllocator made(seed, expandable, engine() % 900);
  made.run(static_cast<int>(engine() % 900) + 100);
  const json snapshot = made.snapshot();
  if (made.after_entries().empty() || snapshot["segments"].empty()) return true;
  const bool as_pickle = engine() % 2 == 0;
  const Profile profile = import_memory_viz(as_pickle ? pickled(snapshot) : snapshot.dump());
  const int64_t smaller = check_start(profile, made.start());
  CHECK(smaller <= profile.judgement.lost_events);
  CHECK(profile.header.notice.find("do not fit") == std::string::npos);
  CHECK(profile.header.notice.find("default settings") == std::string::npos);
  check_sums(profile, made);
  return profile.judgement.lost_events == 0;
}

/// Sums of a snapshot, read without the code under test.
struct SegmentSums {
  int64_t allocated = 0;
  int64_t reserved = 0;
};

SegmentSums sums_in(const std::string& pickle) {
  SegmentSums sums;
  const Document document = read_snapshot(pickle);
  const Value segments = Value(document)["segments"];
  for (size_t i = 0; i < segments.size(); ++i) {
    sums.allocated += segments.at(i)["allocated_size"].integer();
    sums.reserved += segments.at(i)["total_size"].integer();
  }
  return sums;
}

std::string evidence_folder() {
  const char* const asked = std::getenv("SHARDLENS_EVIDENCE");
  return asked != nullptr ? asked : SHARDLENS_SOURCE_DIR "/../shared/evidence";
}

json small_segment(int64_t address) {
  return {{"device", 0},        {"address", address},      {"total_size", 2 * kMiB},
          {"stream", 0},        {"segment_type", "small"}, {"blocks", json::array()},
          {"allocated_size", 0}};
}

json alloc_entry(int64_t address, const json& frames) {
  return {{"action", "alloc"}, {"addr", address}, {"size", 512}, {"stream", 0}, {"frames", frames}};
}

}  // namespace

TEST_CASE("random histories, cut anywhere, keep the sizes, places and sums that were true") {
  const uint64_t first = std::random_device{}();
  constexpr uint64_t kCases = 400;
  int exact = 0;
  int all = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(tests::sampled(kCases)); ++i) {
    const bool expandable = i % 4 == 3;
    CAPTURE(first + i, expandable);
    const bool is_exact = check_random_history(first + i, expandable);
    if (expandable) CHECK(is_exact);
    exact += is_exact;
    ++all;
  }
  CAPTURE(first, all);
  CHECK(exact > all / 4);
}

TEST_CASE("a history that stopped before its snapshot is as the snapshot at its end, or in doubt") {
  const uint64_t first = std::random_device{}();
  int in_doubt = 0;
  for (uint64_t seed = first; seed < first + 40; ++seed) {
    CAPTURE(seed);
    SnapshotAllocator made(seed, seed % 2 == 0, 200);
    made.run(500);
    json snapshot = made.snapshot();
    json& trace = snapshot["device_traces"][0];
    trace.erase(trace.end() - static_cast<std::ptrdiff_t>(trace.size() / 4), trace.end());
    const Profile profile = import_memory_viz(snapshot.dump());
    BlockTracker tracker;
    for (const Event& event : profile.events) tracker.take(event);
    const auto end = SnapshotAllocator::totals_of(made.end());
    const bool is_as_at_end =
        tracker.totals().allocated() == end.allocated && tracker.totals().reserved == end.reserved;
    CHECK((is_as_at_end || profile.judgement.lost_events > 0));
    if (profile.judgement.lost_events == 0) continue;
    ++in_doubt;
    CHECK_THAT(profile.header.notice, ContainsSubstring("; "));
  }
  CHECK(in_doubt > 0);
}

TEST_CASE("snapshots of real GPUs keep the bytes that PyTorch wrote") {
  const std::string folder = evidence_folder() + "/snapshots";
  if (!std::filesystem::is_directory(folder)) {
    SKIP("no ../shared/evidence beside the repository, nor in SHARDLENS_EVIDENCE");
  }
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    CAPTURE(file.path().filename().string());
    const std::string pickle = tests::read_gzip_file(file.path().string());
    const SegmentSums truth = sums_in(pickle);
    const RankReport report = analyse(import_memory_viz(pickle));
    CHECK(report.blocks_at_end.allocated() == truth.allocated);
    CHECK(report.blocks_at_end.reserved == truth.reserved);
    check_parts(report.blocks_at_end);
    check_parts(report.blocks_at_peak);
    CHECK(report.unmatched == 0);
  }
}

TEST_CASE("sizes that only other settings of the allocator explain leave the peak in doubt") {
  json snapshot = {{"device_traces", json::array({json::array({alloc_entry(4096, {})})})},
                   {"segments", json::array({small_segment(4096)})},
                   {"allocator_settings", {{"roundup_power2_divisions", {{"1", 4}}}}}};
  snapshot["segments"][0]["blocks"] =
      json::array({{{"address", 4096}, {"size", 512}, {"state", "active_allocated"}},
                   {{"address", 4608}, {"size", 2 * kMiB - 512}, {"state", "inactive"}}});
  CHECK(import_memory_viz(snapshot.dump()).judgement.lost_events ==
        0);  // its size is in the snapshot
  snapshot["segments"][0]["blocks"][0]["size"] = 1024;
  snapshot["segments"][0]["blocks"][1] = {
      {"address", 5120}, {"size", 2 * kMiB - 1024}, {"state", "inactive"}};
  const Profile profile = import_memory_viz(snapshot.dump());
  CHECK(analyse(profile).blocks_at_end.allocated() == 1024);
  CHECK(profile.judgement.bound() == PeakBound::about);
  CHECK_THAT(profile.header.notice, ContainsSubstring("default settings: 1"));
}

TEST_CASE("a snapshot of PyTorch 2.1, which has no times, is reported so") {
  json snapshot = {{"device_traces", json::array({json::array({alloc_entry(4096, {})})})}};
  CHECK_THAT(report_text({analyse(import_memory_viz(snapshot.dump()))}),
             ContainsSubstring("starting, no times\n"));
  snapshot["device_traces"][0][0]["time_us"] = 1'700'000'000'000'000;
  CHECK_THAT(report_text({analyse(import_memory_viz(snapshot.dump()))}),
             ContainsSubstring("starting, after 0.000 s\n"));
}

TEST_CASE("blocks of older versions are named by the operator that asked for them") {
  json frames = json::array();
  for (const char* name :
       {"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char)",
        "at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*)",
        "at::detail::empty_generic(c10::ArrayRef<long>)", "at::detail::empty_cuda(long)",
        "at::(anonymous namespace)::create_out(c10::ArrayRef<long>)",
        "at::(anonymous namespace)::structured_sqrt_out_functional::set_output_raw_strided(long)",
        "at::TensorIteratorBase::fast_set_up(at::TensorIteratorConfig const&)",
        "at::(anonymous namespace)::wrapper_CUDA_sqrt(at::Tensor const&)"}) {
    frames.push_back({{"name", name}, {"filename", "??"}, {"line", 0}});
  }
  const json snapshot = {
      {"device_traces", json::array({json::array({alloc_entry(4096, frames)})})}};
  const Profile profile = import_memory_viz(snapshot.dump());
  CHECK(profile.strings.at(profile.events.at(0).label) ==
        "at::(anonymous namespace)::wrapper_CUDA_sqrt(at::Tensor const&)");
}

TEST_CASE("a history that begins with memory in use gives a lower bound") {
  const json used = {{"address", 4096 * kMiB}, {"size", 8 * kMiB}, {"state", "active_allocated"}};
  const json free = {{"address", 4088 * kMiB}, {"size", 8 * kMiB}, {"state", "inactive"}};
  const json segment = {
      {"device", 0},           {"address", 4088 * kMiB},  {"total_size", 16 * kMiB},
      {"stream", 0},           {"segment_type", "large"}, {"segment_pool_id", {0, 3}},
      {"blocks", {free, used}}};
  json snapshot = {{"segments", {segment}}, {"device_traces", json::array({json::array()})}};
  const auto check = [](const Profile& profile) {
    CHECK(profile.judgement.bound() == PeakBound::at_least);
    const RankReport report = analyse(profile);
    CHECK(report.judgement.bound() == PeakBound::at_least);
    CHECK(report_text({report}).find("the peak is a lower bound") != std::string::npos);
    REQUIRE(report.reserved_peak);
    CHECK(report.reserved_peak->asked_bytes == 0);
    CHECK(report.reserved_peak->parts.given() == 8 * kMiB);
    CHECK(report.reserved_peak->parts.private_pools.bytes == 8 * kMiB);
    CHECK(report.blocks_at_peak.in_private == 8 * kMiB);
  };
  check(import_memory_viz(snapshot.dump()));
  check(import_memory_viz(snapshot["segments"].dump()));  // as torch.cuda.memory_snapshot() has it

  json common = snapshot;  // the same segment in no pool of its own
  common["segments"][0]["segment_pool_id"] = {0, 0};
  const RankReport split = analyse(import_memory_viz(common.dump()));
  CHECK(split.blocks_at_peak.split == 8 * kMiB);
  CHECK(split.blocks_at_peak.cached == 0);
  CHECK(split.reserved_peak->parts.held.bytes == 8 * kMiB);
  CHECK_THAT(report_text({split}),
             ContainsSubstring("8.00 MiB given, 8.00 MiB beside used blocks"));

  const json taken = {{"action", "segment_alloc"}, {"addr", 4088 * kMiB}, {"size", 16 * kMiB}};
  const auto of_block = [](const char* action, int64_t at) {
    return json{{"action", action}, {"addr", at * kMiB}, {"size", 8 * kMiB}};
  };
  snapshot["device_traces"][0] = {taken, of_block("alloc", 4088), of_block("alloc", 4096),
                                  of_block("free_requested", 4088),
                                  of_block("free_completed", 4088)};
  const RankReport whole = analyse(import_memory_viz(snapshot.dump()));
  CHECK(whole.judgement.is_exact());
  CHECK(whole.reserved_peak->asked_bytes == 8 * kMiB);
  CHECK(whole.reserved_peak->parts.private_pools.bytes == 8 * kMiB);
}
