#include "planner/outside_memory.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <string>

#include "planner/config/arguments.h"
#include "planner/config/options.h"
#include "planner/plan_target.h"
#include "planner/prepared_run.h"
#include "profiler/file/writer.h"
#include "profiler/null_device/outside_figures.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

using profiler::Event;
using profiler::EventKind;
using profiler::Space;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

PreparedRun run_of(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--model", "vit-b16", "--device", "null:h200"});
  const Config config = parse_arguments(flags).config;
  return prepare(spec_of(config), config, target_of(config, ""), {});
}

int communicators(const std::vector<std::string>& flags) {
  const PreparedRun run = run_of(flags);
  return communicators_of(run.train, run.asked.communicators);
}

/// A run of two communicators on a GPU, whose memory is known in full.
void write_recording(const std::string& path, bool has_counters) {
  const PreparedRun run = run_of({"--world", "8"});
  profiler::Writer writer(path, {.world_size = 8,
                                 .device = "cuda",
                                 .gpu = "NVIDIA H200",
                                 .notice = {},
                                 .config = to_json(run.asked),
                                 .train = to_text(run.train),
                                 .evaluate = {},
                                 .libraries = {}});
  const auto count = [&](profiler::Counter counter, int64_t mib) {
    if (!has_counters) return;
    writer.append({.address = static_cast<uint64_t>(counter),
                   .value = mib * kMiB,
                   .kind = EventKind::counter});
  };
  const auto take = [&](Space space, uint64_t address, int64_t mib, const char* library) {
    writer.append({.address = address,
                   .value = mib * kMiB,
                   .label = writer.intern(library),
                   .kind = EventKind::alloc,
                   .space = space});
  };
  count(profiler::Counter::device_before, 100);
  count(profiler::Counter::device_start, 600);  // a context of 500
  take(Space::driver, 1 << 30, 2000, "libc10_cuda.so");
  take(Space::segment, 1 << 30, 2000, "");
  take(Space::driver, 5 << 28, 640, "libnccl.so.2");
  take(Space::driver, 7 << 28, 40, "libcublas.so.13");
  count(profiler::Counter::device_used, 600 + 2000 + 640 + 40 + 30);
  writer.close();
}

}  // namespace

TEST_CASE("communicators are those that the schedule uses", "[planner][outside]") {
  CHECK(communicators({"--world", "1"}) == 0);
  CHECK(communicators({"--world", "8"}) == 2);
  CHECK(communicators({"--world", "8", "--communicators", "1"}) == 1);
  CHECK(communicators({"--world", "8", "--strategy", "ddp"}) == 1);
  CHECK(communicators({"--world", "8", "--strategy", "hsdp", "--replicas", "2"}) == 3);
  CHECK(communicators({"--world", "8", "--reshard-after-forward", "2"}) == 3);
}

TEST_CASE("every GPU has a figure within its band, or a doubt", "[planner][outside]") {
  for (const Gpu& gpu : gpus()) {
    CAPTURE(gpu.name);
    const profiler::CudaFigure figure = profiler::cuda_figure(gpu);
    CHECK(figure.least_bytes <= figure.bytes);
    CHECK(figure.bytes <= figure.most_bytes);
    CHECK(figure.bytes >= 200 * kMiB);
    CHECK(figure.bytes <= 1024 * kMiB);
    CHECK(profiler::bytes_beside_pytorch(gpu) == figure.bytes);
    if (figure.doubt.empty()) continue;
    CHECK_THAT(figure.doubt,
               ContainsSubstring(std::string(gpu.display_name) + " was not published"));
  }
}

TEST_CASE("figures are those that GPUs were seen to take", "[planner][outside]") {
  const auto band = [](const char* gpu) {
    const profiler::CudaFigure figure = profiler::cuda_figure(find_gpu(gpu));
    CHECK(figure.doubt.empty());
    return std::pair(figure.least_bytes / kMiB, figure.most_bytes / kMiB);
  };
  CHECK(band("rtx4090") == std::pair<int64_t, int64_t>(447, 489));
  CHECK(band("l4") == std::pair<int64_t, int64_t>(235, 263));
  CHECK(band("a100-40") == std::pair<int64_t, int64_t>(501, 501));
  CHECK(band("h100") == std::pair<int64_t, int64_t>(740, 758));
  CHECK(band("h200") == std::pair<int64_t, int64_t>(680, 686));
  CHECK(band("b200") == std::pair<int64_t, int64_t>(712, 712));
  CHECK(band("a800").second == 738);
  const profiler::CudaFigure h20 = profiler::cuda_figure(find_gpu("h20"));
  CHECK(h20.bytes == profiler::cuda_figure(find_gpu("h100")).bytes);
  CHECK_THAT(h20.doubt, ContainsSubstring("the estimate is from NVIDIA H100"));
  const profiler::CudaFigure t4 = profiler::cuda_figure(find_gpu("t4"));
  CHECK(t4.bytes == 586 * kMiB);
  CHECK_THAT(t4.doubt, ContainsSubstring("--beside SIZE replaces it"));
}

TEST_CASE("what the user gives replaces every estimate", "[planner][outside]") {
  const Config config = parse_arguments({"--model", "vit-b16", "--world", "8"}).config;
  const auto outside = [&](const char* gpu, const KnownOutside& known) {
    return prepare(spec_of(config), config, target_of(config, gpu), known).outside;
  };
  const OutsideMemory given = outside("t4", {.bytes = 300 * kMiB});
  CHECK(given.total_bytes() == 300 * kMiB);
  CHECK(given.least_bytes() == given.most_bytes());
  CHECK(given.doubt.empty());
  const OutsideMemory cold = outside("l4", {});
  CHECK(cold.total_bytes() == (249 + 2 * 96) * kMiB);
  CHECK(cold.least_bytes() == (235 + 2 * 96) * kMiB);
  CHECK(cold.most_bytes() == (263 + 2 * 96) * kMiB);
  CHECK_THROWS_MATCHES(
      prepare(spec_of(config), parse_arguments({"--device", "null:h200"}).config,
              target_of(parse_arguments({"--device", "null:h200"}).config, ""), {.bytes = 1}),
      std::invalid_argument, MessageMatches(ContainsSubstring("--beside: only applies")));
}

TEST_CASE("NCCL takes channels, not ranks", "[planner][outside]") {
  // 24 channels of 10 + 2 MiB; NVLink SHARP on Hopper, 2 x 16 channels x 1 MiB a GPU.
  CHECK(profiler::published_nccl_bytes(find_gpu("a100-80"), 8, 8) == 288 * kMiB);
  CHECK(profiler::published_nccl_bytes(find_gpu("h200"), 8, 8) == (288 + 256) * kMiB);
  CHECK(profiler::published_nccl_bytes(find_gpu("h200"), 2, 2) == (288 + 64) * kMiB);
  for (const char* const name : {"l4", "h100-pcie", "rtx5090", "t4"}) {  // have no NVLink
    CHECK(profiler::published_nccl_bytes(find_gpu(name), 8, 8) == 96 * kMiB);
  }
  CHECK(profiler::published_nccl_bytes(find_gpu("v100"), 8, 8) == 288 * kMiB);
  CHECK(profiler::published_nccl_bytes(find_gpu("b300"), 8, 8) == (288 + 384) * kMiB);
  // Three of 24 channels leave the node at each of 8 GPUs, which send 8 MiB more; if a rank is
  // alone on its node, all of 8 channels do.
  CHECK(profiler::published_nccl_bytes(find_gpu("h200"), 16, 8) == (288 + 256 + 24) * kMiB);
  CHECK(profiler::published_nccl_bytes(find_gpu("h200"), 512, 8) ==
        profiler::published_nccl_bytes(find_gpu("h200"), 16, 8));
  CHECK(profiler::published_nccl_bytes(find_gpu("h200"), 64, 1) == (96 + 64) * kMiB);
}

TEST_CASE("more ranks never take less NCCL memory", "[planner][outside]") {
  for (const char* const name : {"l4", "a100-80", "h100", "h200", "b300"}) {
    for (const int gpus_a_node : {1, 2, 4, 8}) {
      int64_t before = 0;
      for (int ranks = 2; ranks <= 1024; ranks *= 2) {
        INFO(name << ", " << ranks << " ranks, " << gpus_a_node << " a node");
        const int64_t bytes =
            profiler::published_nccl_bytes(find_gpu(name), ranks, std::min(ranks, gpus_a_node));
        CHECK(bytes >= before);
        before = bytes;
      }
    }
  }
}

TEST_CASE("ranks of a communicator that are far apart share no node", "[planner][outside]") {
  // Shards within a node have two communicators, replicas of them one of two ranks, 8 apart.
  const auto nccl_mib = [](const std::vector<std::string>& flags) {
    const PreparedRun run = run_of(flags);
    return outside_memory(find_gpu("h200"), run.train, run.asked.communicators, {}).nccl_bytes /
           kMiB;
  };
  CHECK(nccl_mib({"--world", "16", "--strategy", "hsdp", "--replicas", "2"}) ==
        2 * (288 + 256) + (96 + 64));
  CHECK(nccl_mib({"--world", "4", "--strategy", "hsdp", "--replicas", "2"}) ==
        2 * (288 + 64) + (288 + 64));
}

TEST_CASE("a recorded run says what is outside", "[planner][outside]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  write_recording(path, true);
  const Calibration calibration = read_calibration(path);
  CHECK(calibration.context_bytes == 500 * kMiB);
  CHECK(calibration.nccl_bytes_a_communicator == 320 * kMiB);
  CHECK(calibration.modules_bytes == 70 * kMiB);  // cuBLAS's own, and memory without an owner
  const PreparedRun run = run_of({"--world", "4", "--strategy", "ddp"});
  const OutsideMemory outside =
      outside_memory(find_gpu("h200"), run.train, 2, {.calibration = calibration});
  CHECK(outside.total_bytes() == (500 + 70 + 320) * kMiB);
  CHECK(outside.is_calibrated());

  Config config = parse_arguments({"--model", "vit-b16", "--world", "4"}).config;
  CHECK(prepare(spec_of(config), config, target_of(config, "h200"), {.calibration = calibration})
            .outside.is_calibrated());
  CHECK_THROWS_MATCHES(
      prepare(spec_of(config), config, target_of(config, "h100"), {.calibration = calibration}),
      std::invalid_argument, MessageMatches(ContainsSubstring("recorded on")));
}

TEST_CASE("a calibration that says nothing is refused", "[planner][outside]") {
  const tests::TemporaryFolder folder;
  write_recording(folder.file("cpu.slp"), false);
  CHECK_THROWS_MATCHES(read_calibration(folder.file("cpu.slp")), std::invalid_argument,
                       MessageMatches(ContainsSubstring("record a run on a GPU")));
  CHECK_THROWS_AS(read_calibration(folder.file("missing.slp")), std::invalid_argument);
  const std::string json = folder.file("c.json");
  CHECK_THROWS_AS(read_calibration(json), std::invalid_argument);
  for (const char* text : {"", "[]", "{}", "{\"context_bytes\": -1}", "{\"context_bytes\": 1.5}",
                           "{\"context_bytes\": 9e99, \"modules_bytes\": 1}"}) {
    tests::write_file(json, text);
    CHECK_THROWS_AS(read_calibration(json), std::invalid_argument);
  }
  tests::write_file(json,
                    R"({"context_bytes": 5, "modules_bytes": 6, "nccl_bytes_a_communicator": 7})");
  CHECK(read_calibration(json) == Calibration{5, 6, 7, json, ""});
}

TEST_CASE("the GPU of a machine is the one that the kernel module lists", "[planner][outside]") {
  const tests::TemporaryFolder folder;
  CHECK(!gpu_of_machine(folder.file("none")));
  std::filesystem::create_directories(folder.file("gpus/0000:01:00.0"));
  const std::string file = folder.file("gpus/0000:01:00.0/information");
  tests::write_file(file, "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 3\n");
  CHECK(gpu_of_machine(folder.file("gpus")) == "h100");
  tests::write_file(file, "Model: \t\t NVIDIA Unknown\n");
  CHECK(!gpu_of_machine(folder.file("gpus")));
}
