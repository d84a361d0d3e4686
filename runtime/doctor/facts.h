// Collects the facts of this machine for the doctor. Checks that might hang or crash the process
// run in a child with a deadline. No files or processes are left behind.
#pragma once

#include <string>

#include "runtime/doctor/doctor.h"

namespace shardlens::runtime {

struct DoctorOptions {
  std::string storage = "runs";
  std::string data = "fashion-mnist";
  int workers = 1;           // ranks of the trial collective; 1: none is run
  double collective_s = 10;  // longest time of the trial collective
  std::string trainer{};     // a program that trains a step; empty: none is tried
  std::string torch_version{};
  int expected_cuda = 0;  // as in MachineFacts
  int expected_nccl = 0;
};

/// Returns the facts. A fault that it finds is a fact, not an exception.
MachineFacts collect_facts(const DoctorOptions& options);

}  // namespace shardlens::runtime
