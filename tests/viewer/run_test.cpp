// Any file gives a lane or one message, and does not affect the other files.

#include "viewer/model/run.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "profiler/exchange/import_memory_viz.h"
#include "profiler/file/work_layer.h"
#include "profiler/file/writer.h"
#include "tests/support/gzip_file.h"
#include "tests/support/recordings/large_recording.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "viewer/model/lane_builder.h"
#include "viewer/page/page.h"
#include "viewer/scene/panels/comparison_report.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

/// A run of two ranks, the second with the higher peak.
std::string write_run(const tests::TemporaryFolder& folder, const std::string& name) {
  const std::string run = folder.file(name);
  fs::create_directories(fs::path(run) / "profiles");
  for (int32_t rank = 0; rank < 2; ++rank) {
    tests::write_profile(
        run + "/profiles/rank" + std::to_string(rank) + ".slp",
        tests::view_recording(
            {.rank = rank, .keep_weights = true, .activation_bytes = (3 + rank) << 20}));
  }
  return run;
}

}  // namespace

TEST_CASE("a run opens as lanes in the order of their ranks", "[threads]") {
  const tests::TemporaryFolder folder;
  const OpenedRuns opened = open_runs({write_run(folder, "keep")});
  CHECK(opened.messages.empty());
  REQUIRE(opened.runs.size() == 1);
  const Run& run = opened.runs.front();
  CHECK(run.name == "keep");
  CHECK(run.strategy == "fsdp, keeps weights");
  REQUIRE(run.ranks.size() == 2);
  CHECK(run.ranks[1].lane.rank() == 1);
  CHECK(run.peak_rank() == 1);
  CHECK(run.capacity_bytes() == int64_t{1} << 30);
}

TEST_CASE("a snapshot of PyTorch opens without being imported first") {
  const tests::TemporaryFolder folder;
  const std::string whole =
      std::string(SHARDLENS_SOURCE_DIR) + "/tests/fixtures/memory_viz/whole.pickle";
  const std::string bytes = tests::read_file(whole);
  tests::write_file(folder.file("cut.pickle"), bytes.substr(0, bytes.size() / 2));
  const OpenedRuns opened = open_runs({whole, folder.file("cut.pickle")});
  REQUIRE(opened.runs.size() == 1);
  CHECK(opened.runs[0].name == "whole");
  CHECK(opened.runs[0].ranks[0].lane.peak().max_bytes ==
        lane_of(profiler::import_memory_viz(bytes)).peak().max_bytes);
  REQUIRE(opened.messages.size() == 1);
  CHECK(opened.messages[0].starts_with(folder.file("cut.pickle") + ": "));
}

TEST_CASE("a snapshot as JSON opens like a pickle, and may have several devices") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const auto segment = [](int device, int64_t bytes) {
    return nlohmann::json{
        {"device", device},
        {"address", 4096 * kMiB},
        {"total_size", bytes},
        {"blocks", {{{"address", 4096 * kMiB}, {"size", bytes}, {"state", "active_allocated"}}}}};
  };
  const tests::TemporaryFolder folder;
  const std::string file = folder.file("two.json");
  tests::write_file(file, nlohmann::json{segment(0, 2 * kMiB), segment(1, 6 * kMiB)}.dump());
  const OpenedRuns both = open_runs({file});
  CHECK(both.runs.empty());
  REQUIRE(both.messages.size() == 1);
  CHECK(both.messages[0].find("choose one with --device") != std::string::npos);
  const OpenedRuns second = open_runs({file}, {.device = 1});
  REQUIRE(second.runs.size() == 1);
  CHECK(second.runs[0].ranks[0].lane.peak().max_bytes == 6 * kMiB);
}

TEST_CASE("each file that cannot be opened is one message, and the others open") {
  const tests::TemporaryFolder folder;
  const std::string good = write_run(folder, "good");
  tests::write_file(folder.file("empty.slp"), "");
  tests::write_file(folder.file("foreign.slp"), "PNG\n\x1a\n not a recording at all");
  fs::create_directories(folder.file("nothing"));
  fs::create_directories(folder.file("half"));
  fs::copy(good + "/profiles/rank0.slp", folder.file("half/rank0.slp"));
  tests::write_file(folder.file("half/rank1.slp"), "cut");
  const OpenedRuns opened =
      open_runs({folder.file("missing"), folder.file("empty.slp"), good, folder.file("foreign.slp"),
                 folder.file("nothing"), folder.file("half")});
  CHECK(opened.messages.size() == 5);
  for (const std::string& message : opened.messages) {
    CHECK(message.find(folder.path()) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  REQUIRE(opened.runs.size() == 2);
  CHECK(opened.runs[0].ranks.size() == 2);
  CHECK(opened.runs[1].ranks.size() == 1);
}

TEST_CASE("runs with the same name are distinguished") {
  const tests::TemporaryFolder folder;
  const std::string run = write_run(folder, "same");
  const OpenedRuns opened = open_runs({run, run + "/"});
  REQUIRE(opened.runs.size() == 2);
  CHECK(opened.runs[0].name == "same");
  CHECK(opened.runs[1].name == "same (2)");
}

TEST_CASE("a run is named by its folder, also if one of its recordings is given") {
  const tests::TemporaryFolder folder;
  const std::string first = write_run(folder, "monday/keep");
  const std::string second = write_run(folder, "tuesday/keep");
  const OpenedRuns inside = open_runs({first + "/profiles", first + "/profiles/rank1.slp", second});
  REQUIRE(inside.runs.size() == 3);
  CHECK(inside.runs[0].name == "monday/keep");
  CHECK(inside.runs[1].name == "keep rank1");
  CHECK(inside.runs[2].name == "tuesday/keep");
}

TEST_CASE("a closed run is left out of its folder, and a renamed one keeps its new name") {
  const tests::TemporaryFolder folder;
  const std::string first = write_run(folder, "runs/a");
  write_run(folder, "runs/b");
  OpenedRuns opened = open_runs({folder.file("runs")}, {.closed = {first}});
  REQUIRE(opened.runs.size() == 1);
  CHECK(opened.messages.empty());
  Run& run = opened.runs.front();
  CHECK(run.key() == folder.file("runs/b"));
  CHECK(run.rename("mine"));
  CHECK_FALSE(run.rename("mine"));
  CHECK(run.name == "mine");
  CHECK(run.rename(""));
  CHECK(run.name == "b");
}

TEST_CASE("runs are compared with the first wanted one that shows the same memory") {
  const tests::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const char* name : {"gpu0.slp", "cpu0.slp", "gpu1.slp", "cpu1.slp"}) {
    paths.push_back(folder.file(name));
    const bool is_cpu = std::string_view(name).starts_with("cpu");
    tests::write_profile(paths.back(),
                         tests::view_recording({.steps = 1, .device = is_cpu ? "cpu" : "cuda"}));
  }
  const OpenedRuns opened = open_runs(paths);
  using Bases = std::vector<size_t>;
  CHECK(bases_of(opened.runs, {0}) == Bases{0, 1, 0, 1});
  CHECK(bases_of(opened.runs, {3}) == Bases{0, 3, 0, 3});
  CHECK(bases_of(opened.runs, {2, 3, 0}) == Bases{2, 3, 2, 3});
  CHECK(bases_of(opened.runs, {9}) == Bases{0, 1, 0, 1});
}

TEST_CASE("files cut or changed anywhere open or are a message") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("whole.slp");
  tests::write_profile(path, tests::view_recording({.steps = 1}),
                       {.block_events = 50, .blocks = 64});
  const std::string whole = tests::read_file(path);
  const std::string damaged = folder.file("damaged.slp");
  int opened_files = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    if (i % 3 == 0) bytes.resize(engine() % bytes.size());
    for (uint64_t flips = engine() % 8; flips > 0 && !bytes.empty(); --flips) {
      bytes[engine() % bytes.size()] ^= static_cast<char>(1U << engine() % 8);
    }
    tests::write_file(damaged, bytes);
    const OpenedRuns opened = open_runs({damaged});
    CHECK(opened.runs.size() + opened.messages.size() == 1);
    for (const Run& run : opened.runs) {
      const Lane& lane = run.at_peak().lane;
      CHECK(sum_of(lane.peak().at_max) == lane.peak().max_bytes);
      CHECK(lane.alive_after(lane.changes()).size() <= lane.arrays().blocks.size());
      ++opened_files;
    }
  }
  CHECK(opened_files > 30);
}

TEST_CASE("a folder of runs opens as its runs, in natural order, and says which have no room") {
  const tests::TemporaryFolder folder;
  const auto write_run = [&](const std::string& name) {
    fs::create_directories(folder.file(name + "/profiles"));
    tests::write_profile(folder.file(name + "/profiles/rank0.slp"),
                         tests::view_recording({.steps = 1}));
  };
  for (const char* name : {"run10", "run2", "run1"}) write_run(name);
  fs::create_directories(folder.file("plans"));
  const OpenedRuns opened = open_runs({folder.path()});
  REQUIRE(opened.runs.size() == 3);
  CHECK(opened.messages.empty());
  CHECK(opened.runs[0].name == "run1");
  CHECK(opened.runs[1].name == "run2");
  CHECK(opened.runs[2].name == "run10");
  CHECK(open_runs({folder.file("plans")}).messages.front().find("no recording profiles") !=
        std::string::npos);
  for (int i = 11; i < 75; ++i) write_run("run" + std::to_string(i));
  const OpenedRuns many = open_runs({folder.path()});
  CHECK(many.runs.size() == 64);
  REQUIRE(many.messages.size() == 1);
  CHECK(many.messages.front().ends_with(
      "only the first 64 of 67 runs are open; name the others to see them"));
}

TEST_CASE("a recording that is still being written is followed") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const profiler::Profile profile = tests::view_recording();
  profiler::Writer writer(path, profile.header, {.block_events = 64, .blocks = 64});
  for (const std::string& text : profile.strings) writer.intern(text);
  const size_t half = profile.events.size() / 2;
  for (size_t i = 0; i < half; ++i) writer.append(profile.events[i]);
  OpenedRuns opened = open_runs({path});
  REQUIRE(opened.runs.size() == 1);
  Run& run = opened.runs.front();
  const int64_t before = run.at_peak().lane.changes();
  CHECK(run.judgement().state == profiler::RecordingState::growing);
  for (size_t i = half; i < profile.events.size(); ++i) writer.append(profile.events[i]);
  writer.close();
  CHECK(follow(run));
  CHECK(run.at_peak().lane.changes() > before);
  CHECK(run.judgement().state == profiler::RecordingState::whole);
  CHECK_FALSE(follow(run));
}

TEST_CASE("the files of a killed process are checked more and more rarely") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const profiler::Profile profile = tests::view_recording();
  profiler::Writer writer(path, profile.header, {.block_events = 64, .blocks = 64});
  for (const std::string& text : profile.strings) writer.intern(text);
  for (size_t i = 0; i < profile.events.size() / 2; ++i) writer.append(profile.events[i]);
  // A copy of the current files never grows.
  const std::string left = folder.file("left.slp");
  fs::copy(path + ".open", left + ".open");  // first, as a reader does: blocks are still sealed
  fs::copy(path, left);
  OpenedRuns opened = open_runs({left});
  REQUIRE(opened.runs.size() == 1);
  RankLane& rank = opened.runs.front().ranks.front();
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(follow(opened.runs.front()));
  CHECK(rank.patience == 63);
}

TEST_CASE("a strategy is described in words") {
  CHECK(strategy_text("") == "");
  CHECK(strategy_text("not json") == "");
  CHECK(strategy_text(R"({"strategy":"ddp","param_dtype":"bf16"})") == "ddp, bf16");
  CHECK(strategy_text(R"({"strategy":"fsdp","reshard_after_forward":"true","offload":"all"})") ==
        "fsdp, reshards, offload all");
}

TEST_CASE("opening a recording reports its progress, and can be stopped") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("long.slp");
  tests::write_large_recording(path, 300'000);
  std::vector<double> parts;
  const Lane lane = read_lane(path, std::nullopt, [&](double part) {
    parts.push_back(part);
    return true;
  });
  CHECK(lane.info().events == 300'000);
  CHECK(parts.size() > 2);
  CHECK(std::ranges::is_sorted(parts));
  CHECK(parts.front() > 0);
  CHECK(parts.back() == 1);
  CHECK_THROWS_AS(read_lane(path, std::nullopt, [](double) { return false; }), std::runtime_error);
  // However quickly a recording opens, the resulting runs do not depend on the progress callback.
  const OpenedRuns watched = open_runs({path}, {}, [](double part) {
    CHECK((part >= 0 && part <= 1));
    return true;
  });
  REQUIRE(watched.runs.size() == 1);
  CHECK(watched.messages.empty());
  CHECK(watched.runs.front().at_peak().lane.peak().max_bytes == lane.peak().max_bytes);
}

namespace {

constexpr int64_t kBase = 1'790'857'026'000'000'000;  // baseTimeNanoseconds of a trace

/// Returns an event of a trace as Kineto writes it; times are in microseconds from kBase.
nlohmann::json slice(const std::string& category, const std::string& name, double us,
                     double duration_us, int64_t stream) {
  return {{"ph", "X"},          {"cat", category},
          {"name", name},       {"pid", 0},
          {"tid", stream},      {"ts", us},
          {"dur", duration_us}, {"args", {{"device", 0}, {"stream", stream}, {"correlation", 9}}}};
}

nlohmann::json trace_of(nlohmann::json events) {
  return {{"schemaVersion", 1},
          {"deviceProperties", {{{"id", 0}, {"name", "NVIDIA H100"}}}},
          {"distributedInfo", {{"backend", "nccl"}, {"rank", 1}, {"world_size", 2}}},
          {"baseTimeNanoseconds", kBase},
          {"traceEvents", std::move(events)},
          {"traceName", "trace.json"}};
}

/// A trace of rank 1: kernels one after the other, with NCCL beside them, and a copy.
nlohmann::json gpu_events() {
  nlohmann::json events = {slice("cuda_runtime", "cudaLaunchKernel", 0, 3, 77)};
  for (int i = 0; i < 100; ++i) events.push_back(slice("kernel", "gemm", 100 + 10 * i, 6, 7));
  events.push_back(slice("kernel", "ncclDevKernel_AllGather_RING_LL", 500, 200, 20));
  events.push_back(slice("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 150, 20, 24));
  events.push_back(slice("gpu_memset", "Memset (Device)", 107, 2, 7));
  return events;
}

/// Writes a run of two ranks that began this long before the trace's time was 0.
std::string write_timed_run(const tests::TemporaryFolder& folder, int64_t before_ns) {
  const std::string run = folder.file("run");
  fs::create_directories(run);
  for (int32_t rank = 0; rank < 2; ++rank) {
    profiler::Profile profile = tests::view_recording({.rank = rank, .steps = 1});
    profile.header.start_realtime_ns = kBase - before_ns;
    tests::write_profile(run + "/rank" + std::to_string(rank) + ".slp", profile);
  }
  return run;
}

}  // namespace

TEST_CASE("a trace of torch.profiler lies under the rank that was recorded then") {
  const tests::TemporaryFolder folder;
  constexpr int64_t kBefore = 2'000'000;
  const std::string run = write_timed_run(folder, kBefore);
  const std::string trace = folder.file("trace.json.gz");
  tests::write_gzip_file(trace, trace_of(gpu_events()).dump(1));
  const OpenedRuns opened = open_runs({run, trace});
  REQUIRE(opened.messages.empty());
  REQUIRE(opened.runs.size() == 1);
  CHECK(opened.runs[0].ranks[0].work == nullptr);
  REQUIRE(opened.runs[0].ranks[1].work != nullptr);
  const JoinedTrace& work = *opened.runs[0].ranks[1].work;
  REQUIRE(work.rows() == 3);
  CHECK(work.row_names(1).front() == "stream 20");
  const auto at = [&](int64_t us) { return kBefore + us * 1000; };
  const auto kernel = work.work_between(0, at(131), at(132));
  REQUIRE(kernel);
  CHECK(kernel->name == "gemm");
  CHECK(kernel->begin_ns == at(130));
  CHECK(kernel->end_ns == at(136));
  CHECK(work.work_between(1, at(600), at(601))->kind == profiler::GpuWork::collective);
  CHECK(work.work_between(2, at(160), at(161))->kind == profiler::GpuWork::copy);
  CHECK_FALSE(work.work_between(0, at(137), at(138)));
  const auto busy = work.busy_between(0, at(200), at(300));  // ten kernels of 6 us
  CHECK(std::abs(busy[0] - 60'000) < 1);
  CHECK(std::abs(work.busy_between(1, at(600), at(650))[1] - 50'000) < 1);
  CHECK(std::abs(work.busy_between(0, at(1000), at(1003))[0] - 3'000) < 1);
}

/// Writes a recording on a simulated H200. After 2 ms the program asks for a product that takes
/// more than a millisecond there, and waits for it.
std::string write_worked_recording(const tests::TemporaryFolder& folder) {
  using profiler::NumberType;
  std::string path = folder.file("rank0.slp");
  const profiler::Profile profile = tests::view_recording({.steps = 1});
  profiler::WorkEncoder encoder;
  const uint32_t product = encoder.work({.kind = profiler::WorkKind::product,
                                         .name = encoder.string("gemm"),
                                         .product = {.m = 8192,
                                                     .n = 8192,
                                                     .k = 8192,
                                                     .a = NumberType::bf16,
                                                     .b = NumberType::bf16,
                                                     .c = NumberType::bf16,
                                                     .compute = NumberType::fp32}});
  const uint32_t wait = encoder.work({.kind = profiler::WorkKind::device_synchronize});
  encoder.add({.time_ns = 2'000'000, .work = product});
  encoder.add({.time_ns = 2'100'000, .work = wait});
  encoder.add({.time_ns = 5'000'000, .work = product, .stream = 7});
  profiler::Writer writer(path, profile.header);
  for (const std::string& text : profile.strings) writer.intern(text);
  for (const profiler::Event& event : profile.events) writer.append(event);
  writer.append_work(encoder.take());
  return path;
}

TEST_CASE("a recording with a trace of its work has the times that are predicted for its GPU") {
  const tests::TemporaryFolder folder;
  const std::string path = write_worked_recording(folder);
  const auto open = [&](Clock clock) {
    OpenedRuns opened = open_runs({path}, {.clock = clock});
    REQUIRE(opened.messages.empty());
    return std::move(opened.runs.front().ranks.front());
  };
  const RankLane recorded = open(Clock::recorded), predicted = open(Clock::predicted);
  CHECK(recorded.work == nullptr);
  CHECK(recorded.lane.info().header.notice.find("predicted") == std::string::npos);
  CHECK(predicted.lane.info().header.notice.find("times as predicted on NVIDIA H200: ") !=
        std::string::npos);
  CHECK(predicted.lane.changes() == recorded.lane.changes());
  CHECK(predicted.lane.peak().max_bytes == recorded.lane.peak().max_bytes);

  REQUIRE(predicted.work != nullptr);
  REQUIRE(predicted.work->rows() == 2);
  CHECK(predicted.work->row_names(1).front() == "stream 7");
  const auto product = predicted.work->work_between(0, 0, 100'000'000);
  REQUIRE(product);
  CHECK(product->name == "gemm");
  const int64_t length_ns = product->end_ns - product->begin_ns;
  CHECK(length_ns > 1'000'000);
  // Changes before the work are as recorded, but for the latency of the first launch, and those
  // behind the wait are later.
  const auto first_from = [&](const Lane& lane, int64_t time_ns) {
    return lane.change_at(static_cast<double>(time_ns));
  };
  const int64_t before = first_from(recorded.lane, 1'900'000) - 1;
  CHECK(std::abs(predicted.lane.time_of(before) - recorded.lane.time_of(before)) < 10'000);
  const int64_t behind = first_from(recorded.lane, 2'100'001);
  CHECK(predicted.lane.time_of(behind) >= product->end_ns);
  CHECK(recorded.lane.time_of(behind) < product->end_ns);
  // The second product ends after the program, and the lane lasts until then.
  const auto second = predicted.work->work_between(1, 0, 100'000'000);
  REQUIRE(second);
  CHECK(predicted.lane.info().end_ns >= second->end_ns);
}

TEST_CASE("times are those that were recorded where none can be predicted for all of the work") {
  const tests::TemporaryFolder folder;
  const std::string path = write_worked_recording(folder);
  const profiler::FileReport file = profiler::check_profile(path);
  const auto work = std::ranges::find(file.blocks, "work", &profiler::BlockReport::type);
  REQUIRE(work != file.blocks.end());
  std::string bytes = tests::read_file(path);
  bytes[work->offset + work->bytes - 1] ^= 1;
  tests::write_file(path, bytes);
  const OpenedRuns opened = open_runs({path});
  CHECK(opened.runs.front().ranks.front().work == nullptr);

  // Beside a trace of torch.profiler, too: it knows the recorded times alone.
  const tests::TemporaryFolder other;
  const std::string trace = other.file("trace.json");
  tests::write_file(trace, trace_of(gpu_events()).dump());
  const OpenedRuns beside = open_runs({write_worked_recording(other), trace});
  CHECK(beside.runs.front().ranks.front().work == nullptr);
}

TEST_CASE("a report and a page say how busy each stream of an open trace is") {
  const tests::TemporaryFolder folder;
  const std::string run = write_timed_run(folder, 2'000'000);
  const std::string trace = folder.file("trace.json");
  tests::write_file(trace, trace_of(gpu_events()).dump());
  const OpenedRuns opened = open_runs({run, trace});
  const std::string text = comparison_report(opened.runs, 0, ReportFormat::text);
  INFO(text);
  // From 100 to 1096 us: 100 kernels of 6 us and a fill of 2 us; 200 us of NCCL; a copy of 20 us.
  CHECK(text.find("\n  rank 1, stream 7 is busy 60.4 % of 1.0 ms (kernel 60.2 %, fill 0.2 %)") !=
        std::string::npos);
  CHECK(text.find("\n  rank 1, stream 20 is busy 20.1 % of 1.0 ms (collective 20.1 %)") !=
        std::string::npos);
  const auto json = nlohmann::json::parse(comparison_report(opened.runs, 0, ReportFormat::json));
  const auto& streams = json.at("strategies").at(0).at("gpu_work");
  REQUIRE(streams.size() == 3);
  CHECK(streams[2].at("busy_ns").at("copy") == 20'000);
  CHECK(streams[2].at("rank") == 1);
  ViewState state;
  state.ranks = Ranks::each;
  std::ostringstream page;
  write_page(opened.runs, state, page);
  CHECK(page.str().find("stream 20 is busy 20.1 % of 1.0 ms (collective 20.1 %)<") !=
        std::string::npos);
}

TEST_CASE("a trace that fits no recording says why, and a damaged one what is wrong") {
  const tests::TemporaryFolder folder;
  const std::string run = write_timed_run(folder, 3'600'000'000'000);
  const std::string trace = folder.file("trace.json");
  const auto message_of = [&](const std::string& text) {
    tests::write_file(trace, text);
    const OpenedRuns opened = open_runs({run, trace});
    CHECK(opened.runs.size() == 1);
    CHECK(opened.runs[0].ranks[1].work == nullptr);
    REQUIRE(opened.messages.size() == 1);
    return opened.messages[0];
  };
  const auto says = [&](const std::string& text, const std::string& words) {
    const std::string message = message_of(text);
    CAPTURE(message);
    CHECK(message.find(words) != std::string::npos);
    CHECK(message.find("trace.json") != std::string::npos);
  };
  nlohmann::json document = trace_of(gpu_events());
  const std::string whole = document.dump();
  says(whole, "no recording or snapshot that is open was made at that time");
  says(whole.substr(0, whole.size() - 40), "not JSON from byte");
  document.erase("baseTimeNanoseconds");
  says(document.dump(), "does not say when it was made");
  says(trace_of({slice("cpu_op", "aten::mm", 1, 2, 3)}).dump(), "neither work on a GPU nor memory");
}

TEST_CASE("a trace of several ranks' time that names none is under none") {
  const tests::TemporaryFolder folder;
  const std::string run = write_timed_run(folder, 0);
  nlohmann::json document = trace_of(gpu_events());
  document.erase("distributedInfo");
  tests::write_file(folder.file("trace.json"), document.dump());
  const OpenedRuns opened = open_runs({run, folder.file("trace.json")});
  REQUIRE(opened.messages.size() == 1);
  CHECK(opened.messages[0].find("does not say of which rank") != std::string::npos);
}

TEST_CASE("a trace with memory is a run: its bytes are the totals that PyTorch wrote") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  nlohmann::json events = gpu_events();
  std::vector<std::pair<uint64_t, int64_t>> live = {{4096, 1024}, {8192, 2048}};
  int64_t total = 10'240;  // including two blocks that are freed in the trace
  std::vector<int64_t> totals;
  for (int i = 0; i < 300; ++i) {
    int64_t bytes = 512 * static_cast<int64_t>(1 + engine() % 9);
    uint64_t address = (uint64_t{1} << 40) + static_cast<uint64_t>(i) * (1 << 20);
    if (!live.empty() && engine() % 2 == 0) {
      std::swap(live[engine() % live.size()], live.back());
      address = live.back().first;
      bytes = -live.back().second;
      live.pop_back();
    } else {
      live.emplace_back(address, bytes);
    }
    totals.push_back(total += bytes);
    events.push_back({{"ph", "i"},
                      {"cat", "cpu_instant_event"},
                      {"name", "[memory]"},
                      {"pid", 77},
                      {"tid", 77},
                      {"ts", 10 * i},
                      {"args",
                       {{"Total Allocated", total},
                        {"Bytes", bytes},
                        {"Addr", address},
                        {"Device Type", 1},
                        {"Device Id", 0}}}});
  }
  events.push_back(slice("cpu_op", "aten::linear", -1, 5000, 77));
  events.push_back(slice("cpu_op", "aten::empty", 0, 4000, 77));
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("trace.json"), trace_of(events).dump());
  const OpenedRuns opened = open_runs({folder.file("trace.json")});
  REQUIRE(opened.messages.empty());
  REQUIRE(opened.runs.size() == 1);
  const RankLane& rank = opened.runs[0].ranks[0];
  REQUIRE(rank.work != nullptr);
  CHECK(rank.lane.info().unmatched == 0);
  const int64_t first = rank.lane.changes() - 300;
  for (int64_t i = 0; i < 300; ++i) {
    CHECK(sum_of(rank.lane.pyramid().bytes_after(first + i)) == totals[static_cast<size_t>(i)]);
  }
  CHECK(rank.lane.label(rank.lane.arrays().blocks.back()) == "aten::linear");
}

}  // namespace shardlens::viewer
