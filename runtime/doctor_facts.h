// The facts of this machine, as the doctor wants to know them. Whatever might hang or take the
// process down with it runs in a child, for so long at most. Nothing is left behind.
#pragma once

#include <string>

#include "runtime/doctor.h"

namespace shardlens::runtime {

struct DoctorOptions {
  std::string storage = "runs";
  std::string data = "fashion-mnist";
  int workers = 1;           // of the collective; 1: none is run
  double collective_s = 10;  // at most
  std::string trainer{};     // a program that trains a step; empty: none is tried
  std::string torch_version{};
  int expected_cuda = 0;  // as Facts has them
  int expected_nccl = 0;
};

/// Never throws for what it finds.
Facts collect_facts(const DoctorOptions& options);

}  // namespace shardlens::runtime
