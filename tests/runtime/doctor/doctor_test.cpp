// Tests the doctor's findings about machines, most of which are made up.
#include "runtime/doctor/doctor.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/doctor/facts.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

MachineFacts laptop() {
  MachineFacts facts;
  facts.driver.fault = "libcuda.so.1 is missing";
  facts.torch_version = "2.11.0";
  facts.expected_cuda = 13000;
  facts.expected_nccl = 22809;
  facts.cpu_step = {.is_done = true};
  facts.null_step = {.is_done = true};
  facts.interfaces = {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.7", false}};
  facts.host = "laptop";
  facts.host_address = "10.0.0.7";
  facts.storage = "runs";
  facts.storage_kind = "ext4";
  facts.storage_free_bytes = 100 * kGiB;
  facts.shm_total_bytes = facts.shm_free_bytes = 8 * kGiB;
  facts.memlock_bytes = 8 << 20;
  facts.host_bytes = 12 * kGiB;
  facts.data = "fashion-mnist";
  facts.data_found = {.is_done = true};
  return facts;
}

MachineFacts server() {
  MachineFacts facts = laptop();
  facts.driver = {.version = 13000};
  facts.cuda = {.version = 13000};
  facts.nccl = {.version = 22809};
  facts.cupti = {.version = 130000};
  facts.gpus = {{"NVIDIA H200", "GPU-00", 140 * kGiB}, {"NVIDIA H200", "GPU-01", 140 * kGiB}};
  facts.memlock_bytes = std::nullopt;
  return facts;
}

/// The lines that are not fine after this one change to a machine that is.
std::string complaint(MachineFacts facts, const std::function<void(MachineFacts&)>& change) {
  REQUIRE(is_well(findings_of(facts)));
  change(facts);
  std::string text;
  for (const Finding& finding : findings_of(facts)) {
    if (finding.health != Health::wrong) continue;
    CHECK_FALSE(finding.fix.empty());
    text += finding.about + ": " + finding.text + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("a machine without a GPU has nothing wrong with it", "[doctor]") {
  const std::vector<Finding> findings = findings_of(laptop());
  CHECK(is_well(findings));
  const std::string text = to_text(findings);
  CHECK_THAT(text, ContainsSubstring("note  driver: this machine has no NVIDIA driver"));
  CHECK_THAT(text, ContainsSubstring("note  CUDA runtime, CUPTI, NCCL: not checked: no GPU\n"));
  CHECK_THAT(text, !ContainsSubstring("WRONG"));
  CHECK(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) == findings.size());
}

TEST_CASE("each problem is one line with its fix", "[doctor]") {
  const auto on_server = [](const std::function<void(MachineFacts&)>& change) {
    return complaint(server(), change);
  };
  CHECK(on_server([](MachineFacts&) {}).empty());
  CHECK(on_server([](MachineFacts& facts) { facts.driver.version = 12080; }) ==
        "driver: serves CUDA 12.8, but LibTorch needs 13.0\n");
  CHECK(on_server([](MachineFacts& facts) { facts.driver.version = 13010; }).empty());
  CHECK(on_server([](MachineFacts& facts) {
          facts.gpus.clear();
          facts.driver_fault = "cuInit says 100";
        }) == "driver: serves CUDA 13.0, but cuInit says 100\n");
  CHECK(on_server([](MachineFacts& facts) { facts.gpus[1].uuid = "GPU-00"; }) ==
        "gpus: GPU-00 is listed 2 times\n");
  CHECK(on_server([](MachineFacts& facts) { facts.nccl.version = 22203; }) ==
        "NCCL: 2.22.3, but LibTorch asks for 2.28.9\n");
  CHECK(on_server([](MachineFacts& facts) { facts.nccl.version = 22902; }).empty());
  CHECK(on_server([](MachineFacts& facts) { facts.nccl = {.fault = "no such file"}; }) ==
        "NCCL: cannot be loaded: no such file\n");
  CHECK(on_server([](MachineFacts& facts) { facts.cuda.version = 12060; }) ==
        "CUDA runtime: 12.6, but LibTorch was built for 13.0\n");
  CHECK(on_server([](MachineFacts& facts) { facts.cupti.version.reset(); }) ==
        "CUPTI: cannot be loaded: \n");
  CHECK(on_server([](MachineFacts& facts) { facts.memlock_bytes = 64 << 10; }) ==
        "memlock: 64.00 KiB can be locked, but NCCL over InfiniBand locks buffers\n");
}

TEST_CASE("an NCCL newer than LibTorch asks for is reported", "[doctor]") {
  MachineFacts facts = server();
  CHECK_THAT(to_text(findings_of(facts)), ContainsSubstring("ok    NCCL: 2.28.9\n"));
  facts.nccl.version = 22902;
  CHECK_THAT(to_text(findings_of(facts)),
             ContainsSubstring("note  NCCL: 2.29.2, but LibTorch asks for 2.28.9; remove any"));
}

TEST_CASE("problems that any machine may have are found", "[doctor]") {
  const auto on_laptop = [](const std::function<void(MachineFacts&)>& change) {
    return complaint(laptop(), change);
  };
  CHECK(on_laptop([](MachineFacts& facts) { facts.memlock_bytes = 64 << 10; }).empty());
  CHECK(on_laptop([](MachineFacts& facts) { facts.shm_free_bytes = 64 << 20; }) ==
        "/dev/shm: 64.00 MiB of 8.00 GiB free\n");
  CHECK(on_laptop([](MachineFacts& facts) { facts.host_bytes = kGiB; }) ==
        "host memory: 1.00 GiB available\n");
  CHECK(on_laptop([](MachineFacts& facts) { facts.host_bytes.reset(); }).empty());
  CHECK(on_laptop([](MachineFacts& facts) { facts.storage_fault = "Read-only file system"; }) ==
        "storage: runs: Read-only file system\n");
  CHECK(on_laptop([](MachineFacts& facts) { facts.storage_free_bytes = 1; }) ==
        "storage: runs (ext4), 1 B free\n");
  CHECK(on_laptop([](MachineFacts& facts) { facts.asked_interface = "ib0"; }) ==
        "network: GLOO_SOCKET_IFNAME is ib0, but no such interface is up\n");
  CHECK(on_laptop([](MachineFacts& facts) { facts.asked_interface = "eth0"; }).empty());
  CHECK(on_laptop([](MachineFacts& facts) { facts.host_address.reset(); }) ==
        "network: this host's name, laptop, does not resolve\n");
  CHECK(on_laptop([](MachineFacts& facts) { facts.host_address = "127.0.1.1"; }).empty());
  CHECK(on_laptop([](MachineFacts& facts) { facts.interfaces.pop_back(); }).empty());
  CHECK(on_laptop([](MachineFacts& facts) { facts.cpu_step.fault = "LibTorch 2.9 was loaded"; }) ==
        "LibTorch: LibTorch 2.9 was loaded\n");
  CHECK(on_laptop([](MachineFacts& facts) { facts.data_found.fault = "no folder"; }) ==
        "data: no folder\n");
  CHECK(on_laptop([](MachineFacts& facts) {
          facts.collective = {.ranks = 2, .fault = "rank 1 ended"};
        }) == "collective: rank 1 ended\n");
}

TEST_CASE("a collective's bandwidth counts what a rank must send", "[doctor]") {
  MachineFacts facts = laptop();
  facts.collective = {.ranks = 4, .count = 10, .bytes = 1'000'000'000, .seconds = 5};
  CHECK_THAT(to_text(findings_of(facts)),
             ContainsSubstring("over 4 CPU ranks of this host: 3.0 GB/s"));
}

TEST_CASE("the findings are printed as JSON", "[doctor]") {
  MachineFacts facts = laptop();
  facts.storage_fault = "full";
  const auto json = nlohmann::json::parse(to_json(findings_of(facts)));
  CHECK(json.at("schema") == "shardlens.doctor/1");
  CHECK(json.at("well") == false);
  CHECK(json.at("findings").size() == findings_of(facts).size());
  CHECK(json["findings"][0] ==
        nlohmann::json{{"about", "driver"},
                       {"health", "note"},
                       {"text", "this machine has no NVIDIA driver: ranks compute on the CPU"},
                       {"fix", ""},
                       {"mend", ""}});
  std::string storage_fix;
  for (const nlohmann::json& finding : json["findings"]) {
    CHECK(finding.at("mend") == finding.at("fix"));  // the older name of the key
    if (finding.at("about") == "storage") storage_fix = finding.at("fix").get<std::string>();
  }
  CHECK(storage_fix == "give --storage a folder that you can write to");
}

TEST_CASE("this machine's facts are found", "[doctor]") {
  const tests::TemporaryFolder folder;
  const MachineFacts facts = collect_facts(
      {.storage = folder.file("runs"), .data = "/nowhere", .workers = 2, .collective_s = 0.2});
  CHECK(facts.shm_total_bytes > 0);
  CHECK(facts.host_bytes > 0);
  CHECK(std::ranges::any_of(facts.interfaces, [](const auto& each) { return each.is_loopback; }));
  CHECK_FALSE(facts.storage_fault);
  CHECK(facts.storage_free_bytes > 0);
  CHECK_FALSE(std::filesystem::exists(folder.file("runs")));  // nothing is left behind
  CHECK_THAT(facts.data_found.fault.value_or(""), ContainsSubstring("/nowhere"));
  CHECK_FALSE(facts.collective.fault);
  CHECK(facts.collective.count > 0);
  CHECK(facts.collective.seconds > 0);
  const MachineFacts elsewhere = collect_facts({.storage = "/proc/runs"});
  CHECK(elsewhere.storage_fault);
  CHECK(elsewhere.storage_kind == "proc");
}
