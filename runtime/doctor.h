// What a machine has for training, and what is wrong with it: facts, which somebody collects
// (doctor_facts.h), and what follows from them, one line each with its mend. A machine without a
// GPU has nothing wrong with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardlens::runtime {

/// A library that is loaded when a rank opens a GPU.
struct LibraryFact {
  std::optional<int> version{};  // as it numbers it itself; nothing: it cannot be loaded
  std::string fault{};           // why not
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

/// What was tried, and what came of it.
struct TrialFact {
  bool is_done = false;  // else nothing is said of it
  std::string fault{};   // empty: it went well
};

/// Sums of all ranks' buffers.
struct CollectiveFact {
  int ranks = 0;  // 0: not asked for
  std::string fault{};
  int64_t count = 0;  // operations
  int64_t bytes = 0;  // of one
  double seconds = 0;
};

struct Facts {
  LibraryFact driver;          // version: of CUDA that it serves, 13000 for 13.0
  std::string driver_fault{};  // it is there and finds no GPU
  std::vector<GpuFact> gpus;
  LibraryFact cuda;             // the runtime
  LibraryFact nccl;             // 22809 for 2.28.9
  LibraryFact cupti;            // 130000 or 28: numbers of its own
  int expected_cuda = 0;        // what LibTorch was built for
  int expected_nccl = 0;        // what LibTorch asks for
  std::string torch_version{};  // that this program was built for; empty: it was built without
  TrialFact cpu_step;           // LibTorch loads and trains a step
  TrialFact null_step;          // ... on a null device

  std::vector<InterfaceFact> interfaces;  // that are up
  std::string asked_interface{};          // GLOO_SOCKET_IFNAME
  std::string host{};
  std::optional<std::string> host_address;  // what its name stands for; nothing: it is not known

  std::string storage{};
  std::string storage_fault{};  // empty: files can be written, renamed, locked
  std::string storage_kind{};   // "ext4", "nfs"
  int64_t storage_free_bytes = 0;

  int64_t shm_total_bytes = 0;
  int64_t shm_free_bytes = 0;
  std::optional<int64_t> memlock_bytes;  // nothing: no limit
  std::optional<int64_t> host_bytes;     // that can still be taken, below a container's limit too

  std::string data{};
  TrialFact data_found;
  CollectiveFact collective;
};

enum class Health { fine, note, wrong };

struct Finding {
  std::string about;  // "driver"
  Health health = Health::fine;
  std::string text;
  std::string mend{};  // not empty where something is wrong
};

std::vector<Finding> findings_of(const Facts& facts);
bool is_well(const std::vector<Finding>& findings);

/// A line each.
std::string to_text(const std::vector<Finding>& findings);
/// {"schema": "shardlens.doctor/1", "well", "findings": [{"about", "health", "text", "mend"}]}
std::string to_json(const std::vector<Finding>& findings);

}  // namespace shardlens::runtime
