#include "runtime/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/shown.h"
#include "base/strict_json.h"
#include "base/units.h"

namespace shardlens::runtime {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// NCCL needs this much between processes of one host, and CPU ranks share memory too.
constexpr int64_t kLittleSharedMemory = 512 * kMiB;
constexpr int64_t kLittleHostMemory = 2048 * kMiB;
constexpr int64_t kLittleStorage = 1024 * kMiB;
/// NCCL and RDMA pin buffers.
constexpr int64_t kLittleLockedMemory = 64 * kMiB;

std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string nccl_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

/// Collects findings.
class Findings {
 public:
  void report_fine(const std::string& about, const std::string& text) {
    found_.push_back({about, Health::fine, text});
  }
  void report_note(const std::string& about, const std::string& text, const std::string& fix = "") {
    found_.push_back({about, Health::note, text, fix});
  }
  void report_wrong(const std::string& about, const std::string& text, const std::string& fix) {
    found_.push_back({about, Health::wrong, text, fix});
  }
  std::vector<Finding> take() { return std::move(found_); }

 private:
  std::vector<Finding> found_;
};

void judge_driver(const MachineFacts& facts, Findings& findings) {
  if (!facts.driver.version) {
    return findings.report_note("driver",
                                "this machine has no NVIDIA driver: ranks compute on the CPU");
  }
  const std::string text = "serves CUDA " + cuda_text(*facts.driver.version);
  if (facts.driver_fault) {
    return findings.report_wrong("driver", fmt::format("{}, but {}", text, *facts.driver_fault),
                                 "check nvidia-smi, and whether the container was given the GPUs");
  }
  if (*facts.driver.version / 1000 < facts.expected_cuda / 1000) {
    return findings.report_wrong(
        "driver", fmt::format("{}, but LibTorch needs {}", text, cuda_text(facts.expected_cuda)),
        "install a newer driver, or give --device cpu");
  }
  findings.report_fine("driver", text);
}

void judge_gpus(const MachineFacts& facts, Findings& findings) {
  if (facts.gpus.empty()) return;
  std::map<std::string, int> of_uuid;
  for (const GpuFact& gpu : facts.gpus) ++of_uuid[gpu.uuid];
  for (const auto& [uuid, count] : of_uuid) {
    if (count == 1) continue;
    findings.report_wrong(
        "gpus", fmt::format("{} is listed {} times", uuid, count),
        "name each GPU once in CUDA_VISIBLE_DEVICES: NCCL allows one rank per GPU");
  }
  for (const GpuFact& gpu : facts.gpus) {
    findings.report_fine(
        "gpu", fmt::format("{}, {}, {}", gpu.name, bytes_text(gpu.memory_bytes), gpu.uuid));
  }
}

void judge_library(const std::string& name, const LibraryFact& library, Findings& findings,
                   const std::string& version) {
  if (library.version) return findings.report_fine(name, version);
  findings.report_wrong(name, fmt::format("cannot be loaded: {}", library.fault.value_or("")),
                        "run make gpu, which fetches the libraries that LibTorch needs on a GPU");
}

void judge_nccl(const MachineFacts& facts, Findings& findings) {
  const LibraryFact& nccl = facts.nccl;
  if (!nccl.version || *nccl.version == facts.expected_nccl) {
    return judge_library("NCCL", nccl, findings, nccl_text(facts.expected_nccl));
  }
  const std::string text = fmt::format("{}, but LibTorch asks for {}", nccl_text(*nccl.version),
                                       nccl_text(facts.expected_nccl));
  const char* const fix = "remove any other NCCL from LD_LIBRARY_PATH and LD_PRELOAD";
  if (*nccl.version < facts.expected_nccl) return findings.report_wrong("NCCL", text, fix);
  findings.report_note("NCCL", text, fix);
}

/// Looks at the libraries only if there is a GPU to use them.
void judge_cuda_libraries(const MachineFacts& facts, Findings& findings) {
  if (facts.gpus.empty()) {
    return findings.report_note("CUDA runtime, CUPTI, NCCL", "not checked: no GPU");
  }
  const auto version = [](const LibraryFact& library, auto text) {
    return library.version ? text(*library.version) : std::string();
  };
  judge_library("CUDA runtime", facts.cuda, findings, version(facts.cuda, cuda_text));
  if (facts.cuda.version && *facts.cuda.version / 1000 != facts.expected_cuda / 1000) {
    findings.report_wrong(
        "CUDA runtime",
        fmt::format("{}, but LibTorch was built for {}", cuda_text(*facts.cuda.version),
                    cuda_text(facts.expected_cuda)),
        "remove other CUDA toolkits from LD_LIBRARY_PATH");
  }
  judge_library("CUPTI", facts.cupti, findings,
                version(facts.cupti, [](int number) { return fmt::format("API {}", number); }));
  judge_nccl(facts, findings);
}

void judge_trial(const std::string& name, const TrialFact& trial, const std::string& text,
                 const std::string& fix, Findings& findings) {
  if (!trial.is_done) return;
  if (!trial.fault) return findings.report_fine(name, text);
  findings.report_wrong(name, *trial.fault, fix);
}

void judge_libtorch(const MachineFacts& facts, Findings& findings) {
  judge_trial("LibTorch", facts.cpu_step,
              fmt::format("{} trains a step on the CPU", facts.torch_version),
              "if Shardlens was built from source, run make build", findings);
  judge_trial("null device", facts.null_step, "trains a step",
              "if Shardlens was built from source, run make build", findings);
}

void judge_network(const MachineFacts& facts, Findings& findings) {
  const auto is_there = [&](const InterfaceFact& interface) {
    return facts.asked_interface.empty() ? !interface.is_loopback
                                         : interface.name == facts.asked_interface;
  };
  const auto found = std::ranges::find_if(facts.interfaces, is_there);
  if (!facts.asked_interface.empty() && found == facts.interfaces.end()) {
    return findings.report_wrong(
        "network",
        fmt::format("GLOO_SOCKET_IFNAME is {}, but no such interface is up", facts.asked_interface),
        "name one that `ip address` lists, or unset it");
  }
  if (found == facts.interfaces.end()) {
    return findings.report_note("network",
                                "only loopback is up: ranks can meet only within this host");
  }
  findings.report_fine("network", fmt::format("{} has {}", found->name, found->address));
  if (!facts.host_address && facts.asked_interface.empty()) {
    findings.report_wrong(
        "network", fmt::format("this host's name, {}, does not resolve", facts.host),
        "add it to /etc/hosts, or set GLOO_SOCKET_IFNAME for ranks on several hosts");
  } else if (facts.host_address && facts.host_address->starts_with("127.") &&
             facts.asked_interface.empty()) {
    findings.report_note(
        "network",
        fmt::format("{} resolves to {}, which no other host can reach", facts.host,
                    *facts.host_address),
        fmt::format("for ranks on several hosts, set GLOO_SOCKET_IFNAME={}", found->name));
  }
}

void judge_storage(const MachineFacts& facts, Findings& findings) {
  if (facts.storage.empty()) return;
  if (facts.storage_fault) {
    return findings.report_wrong("storage",
                                 fmt::format("{}: {}", facts.storage, *facts.storage_fault),
                                 "give --storage a folder that you can write to");
  }
  const std::string text = fmt::format("{} ({}), {} free", facts.storage, facts.storage_kind,
                                       bytes_text(facts.storage_free_bytes));
  if (facts.storage_free_bytes < kLittleStorage) {
    return findings.report_wrong("storage", text,
                                 "free some space, or give --storage another folder");
  }
  findings.report_fine("storage", text);
}

void judge_memory(const MachineFacts& facts, Findings& findings) {
  const std::string shared = fmt::format("{} of {} free", bytes_text(facts.shm_free_bytes),
                                         bytes_text(facts.shm_total_bytes));
  if (facts.shm_free_bytes < kLittleSharedMemory) {
    findings.report_wrong("/dev/shm", shared,
                          "give the container more, for example with docker's --shm-size 8g");
  } else {
    findings.report_fine("/dev/shm", shared);
  }
  const std::string locked =
      facts.memlock_bytes ? bytes_text(*facts.memlock_bytes) : std::string("no limit");
  if (facts.memlock_bytes && *facts.memlock_bytes < kLittleLockedMemory && !facts.gpus.empty()) {
    findings.report_wrong("memlock",
                          locked + " can be locked, but NCCL over InfiniBand locks buffers",
                          "run ulimit -l unlimited, or give docker --ulimit memlock=-1");
  } else {
    findings.report_fine("memlock", locked);
  }
  if (!facts.host_bytes) return;
  const std::string host = fmt::format("{} available", bytes_text(*facts.host_bytes));
  if (*facts.host_bytes < kLittleHostMemory) {
    findings.report_wrong("host memory", host, "end what uses it, or raise the container's limit");
  } else {
    findings.report_fine("host memory", host);
  }
}

void judge_collective(const CollectiveFact& collective, Findings& findings) {
  if (collective.ranks == 0) return;
  if (collective.fault) {
    return findings.report_wrong("collective", *collective.fault,
                                 "fix what is wrong above, or give fewer --workers");
  }
  // Each rank must send at least this share of the buffer, as NCCL's tests count it.
  const double shares = 2.0 * (collective.ranks - 1) / collective.ranks;
  const double moved_bytes =
      shares * static_cast<double>(collective.bytes) * static_cast<double>(collective.count);
  findings.report_fine("collective",
                       fmt::format("{} sums of {} over {} CPU ranks of this host: {:.1f} GB/s",
                                   collective.count, bytes_text(collective.bytes), collective.ranks,
                                   moved_bytes / collective.seconds / 1e9));
}

}  // namespace

std::vector<Finding> findings_of(const MachineFacts& facts) {
  Findings findings;
  judge_driver(facts, findings);
  judge_gpus(facts, findings);
  judge_cuda_libraries(facts, findings);
  judge_libtorch(facts, findings);
  judge_network(facts, findings);
  judge_storage(facts, findings);
  judge_memory(facts, findings);
  judge_trial("data", facts.data_found, facts.data + " can be read",
              "install the package dataset-fashion-mnist, or give --data DIR", findings);
  judge_collective(facts.collective, findings);
  return findings.take();
}

bool is_well(const std::vector<Finding>& findings) {
  return std::ranges::none_of(
      findings, [](const Finding& finding) { return finding.health == Health::wrong; });
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const char* const mark = finding.health == Health::wrong ? "WRONG" : "ok";
    text += fmt::format("{:<6}{}: {}{}{}\n", finding.health == Health::note ? "note" : mark,
                        finding.about, shown(finding.text), finding.fix.empty() ? "" : "; ",
                        shown(finding.fix));
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json json = {{"schema", "shardlens.doctor/1"},
                                 {"well", is_well(findings)},
                                 {"findings", nlohmann::ordered_json::array()}};
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"about", finding.about},
                                {"health", to_string(finding.health)},
                                {"text", finding.text},
                                {"fix", finding.fix},
                                {"mend", finding.fix}});  // the older name of "fix"
  }
  return json_text(json);
}

}  // namespace shardlens::runtime
