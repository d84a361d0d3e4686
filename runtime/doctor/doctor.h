// Reports what a machine has for training, and what is wrong with it. MachineFacts are collected
// elsewhere (facts.h); the findings follow from them, one line each with its fix. Having no GPU is
// not a fault.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/fault.h"

namespace shardlens::runtime {

/// Describes a library that is loaded when a rank opens a GPU.
struct LibraryFact {
  std::optional<int> version{};  // by its own numbering; empty: it cannot be loaded
  Problem fault{};               // why it cannot be loaded
};

struct GpuFact {
  std::string name;
  std::string uuid;
  int64_t memory_bytes = 0;
};

struct InterfaceFact {
  std::string name;
  std::string address;
  bool is_loopback = false;
};

/// Holds the result of something that was tried.
struct TrialFact {
  bool is_done = false;  // false: it was not tried
  Problem fault{};       // nothing: it succeeded
};

/// Holds the result of a trial collective: an all-reduce of all ranks' buffers.
struct CollectiveFact {
  int ranks = 0;  // 0: not asked for
  Problem fault{};
  int64_t count = 0;  // operations done
  int64_t bytes = 0;  // bytes of one operation
  double seconds = 0;
};

struct MachineFacts {
  LibraryFact driver;      // the CUDA version that it serves, 13000 for 13.0
  Problem driver_fault{};  // why a driver that is installed finds no GPU
  std::vector<GpuFact> gpus;
  LibraryFact cuda;             // the runtime
  LibraryFact nccl;             // 22809 for 2.28.9
  LibraryFact cupti;            // 130000 or 28: CUPTI numbers versions in its own way
  int expected_cuda = 0;        // the version that LibTorch was built for
  int expected_nccl = 0;        // the version that LibTorch asks for
  std::string torch_version{};  // the version this program was built for; empty: none
  TrialFact cpu_step;           // LibTorch loads and trains a step
  TrialFact null_step;          // the same on a null device

  std::vector<InterfaceFact> interfaces;  // those that are up
  std::string asked_interface{};          // GLOO_SOCKET_IFNAME
  std::string host{};
  std::optional<std::string> host_address;  // what `host` resolves to; empty: unknown

  std::string storage{};
  Problem storage_fault{};     // nothing: files can be written, renamed, locked
  std::string storage_kind{};  // "ext4", "nfs"
  int64_t storage_free_bytes = 0;

  int64_t shm_total_bytes = 0;
  int64_t shm_free_bytes = 0;
  std::optional<int64_t> memlock_bytes;  // empty: no limit
  std::optional<int64_t> host_bytes;     // still available, within a container's limit

  std::string data{};
  TrialFact data_found;
  CollectiveFact collective;
};

enum class Health { fine, note, wrong };
constexpr auto choice_words(Health) { return words("fine", "note", "wrong"); }

struct Finding {
  std::string about;  // "driver"
  Health health = Health::fine;
  std::string text;
  std::string fix{};  // how to fix it; not empty if something is wrong
};

std::vector<Finding> findings_of(const MachineFacts& facts);
bool is_well(const std::vector<Finding>& findings);

/// Returns a line for each finding.
std::string to_text(const std::vector<Finding>& findings);
/// Returns the findings as JSON:
/// {"schema": "shardlens.doctor/1", "well",
///  "findings": [{"about", "health", "text", "fix", "mend"}]}
/// "mend" is the older name of "fix" and has the same value.
std::string to_json(const std::vector<Finding>& findings);

}  // namespace shardlens::runtime
