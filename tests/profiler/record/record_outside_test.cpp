// Tests what a recorded program is said to take of a GPU's memory beside PyTorch.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "profiler/record/outside.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

RecordOptions options_of(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--", "python"});
  return parse_record_options(flags);
}

profiler::RankReport rank_of(int world_size) {
  profiler::RankReport report;
  report.header.world_size = world_size;
  return report;
}

OutsideBytes on_h100(int world_size, const RecordFacts& facts,
                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = {"--device", "null:h100"};
  flags.insert(flags.end(), more.begin(), more.end());
  return outside_of(options_of(flags), rank_of(world_size), facts);
}

}  // namespace

TEST_CASE("a single process takes what CUDA takes, and says that this is an estimate") {
  const OutsideBytes outside = on_h100(1, {.is_known = true});
  CHECK(outside.bytes == 745 * kMiB);
  CHECK(outside.least_bytes == 740 * kMiB);
  CHECK(outside.most_bytes == 758 * kMiB);
  CHECK(outside.from == "published");
  CHECK(outside.doubt.empty());
  CHECK(outside.estimate == "CUDA 745.00 MiB (published figures, from 740.00 MiB to 758.00 MiB)");
  CHECK(on_h100(8, {.is_known = true}).bytes == 745 * kMiB);  // it made no group
}

TEST_CASE("each communicator that the program made is counted") {
  const RecordFacts one{.communicators = {{8, 8}}, .is_known = true};
  CHECK(on_h100(8, one).bytes == (745 + 544) * kMiB);
  CHECK(on_h100(8, one).estimate ==
        "CUDA 745.00 MiB (published figures, from 740.00 MiB to 758.00 MiB), NCCL 544.00 MiB "
        "(buffers of its version 2.30) for 1 "
        "communicator of 8 ranks");
  const RecordFacts mesh{.communicators = {{8, 1}, {64, 8}, {8, 8}}, .is_known = true};
  CHECK(on_h100(64, mesh).bytes == (745 + 160 + 568 + 544) * kMiB);
  CHECK(on_h100(64, mesh).estimate ==
        "CUDA 745.00 MiB (published figures, from 740.00 MiB to 758.00 MiB), NCCL 1.24 GiB "
        "(buffers of its version 2.30) for 1 "
        "communicator of 64 ranks, 2 of 8, if all of them are used");
}

TEST_CASE("a process that does not list its communicators has one of all ranks") {
  CHECK(on_h100(16, {}, {"--world", "16"}).bytes == (745 + 568) * kMiB);
  CHECK(on_h100(16, {}).bytes == (745 + 568) * kMiB);  // the command's own torchrun
  CHECK(on_h100(16, {}, {"--world", "16", "--gpus-per-node", "1"}).bytes == (745 + 160) * kMiB);
  CHECK(on_h100(1, {}).bytes == 745 * kMiB);
}

TEST_CASE("a GPU without a figure of its own has a doubt, until the user gives one") {
  const RecordFacts facts{.communicators = {{8, 8}}, .is_known = true};
  const auto on_t4 = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--device", "null:t4", "--world", "8"});
    return outside_of(options_of(flags), rank_of(8), facts);
  };
  CHECK(on_t4({}).bytes == (586 + 96) * kMiB);
  CHECK(on_t4({}).estimate.starts_with("CUDA 586.00 MiB (published figures), NCCL"));
  CHECK(on_t4({}).doubt.starts_with("CUDA's share on Tesla T4 was not published"));
  const OutsideBytes given = on_t4({"--beside", "300MiB"});
  CHECK(given.bytes == 300 * kMiB);
  CHECK(given.from == "given");
  CHECK(given.estimate.empty());
  CHECK(given.doubt.empty());
}

TEST_CASE("the process's account keeps what is taken beside PyTorch") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("rank0.json"), R"({"retries": 2})");
  keep_outside(folder.file("rank0.slp"), on_h100(1, {.is_known = true}));
  CHECK(tests::read_file(folder.file("rank0.json")) ==
        R"({"beside_pytorch":{"bytes":781189120,"from":"published","least_bytes":775946240,)"
        R"("most_bytes":794820608},"retries":2})"
        "\n");
  keep_outside(folder.file("rank1.slp"), {});  // the process left no account
  CHECK_FALSE(std::filesystem::exists(folder.file("rank1.json")));
}

TEST_CASE("on a real GPU the memory is measured") {
  profiler::RankReport report = rank_of(8);
  report.ledger.device_used_bytes = 900 * kMiB;
  report.ledger.reserved_bytes = 300 * kMiB;
  const RecordFacts facts{.communicators = {{8, 8}}, .is_known = true};
  const OutsideBytes outside = outside_of(options_of({}), report, facts);
  CHECK(outside.bytes == 600 * kMiB);
  CHECK(outside.from == "measured");
  CHECK(outside.estimate.empty());
  CHECK(outside_of(options_of({}), rank_of(8), facts).bytes == 0);
}

TEST_CASE("communicators are read from the process's account, without senseless ones") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("rank0.json"),
                    R"({"communicators": [{"ranks": 8, "on_node": 4}, {"ranks": 1, "on_node": 1},
                       {"ranks": 2, "on_node": 3}, {"ranks": 99999999999, "on_node": 1}, 7,
                       {"ranks": 4, "on_node": 4}]})");
  CHECK(read_record_facts(folder.file("rank0.slp")).communicators ==
        std::vector<GpuGroup>{{8, 4}, {4, 4}});
  tests::write_file(folder.file("rank1.json"), R"({"communicators": 7})");
  CHECK(read_record_facts(folder.file("rank1.slp")).communicators.empty());
}
