// The version of PyTorch by whose rules a plan is made, and why that version was chosen.
#pragma once

#include <string>

#include "base/fault.h"
#include "models/torch_rules.h"

namespace shardlens::planner {

struct PlanTorch {
  const models::TorchRules* rules = &models::own_torch_rules();
  std::string source = "this build";  // who said which: "--torch", "PyTorch 2.15.0 of /venv/python"
  Problem doubt;                      // nothing if that version's rules are known
};

/// Chooses the version. `asked` is the value of --torch, empty if it was not given: then our own
/// program is planned with the LibTorch of this build, and a Python program with the PyTorch that
/// the python on PATH imports, if there is one. Throws std::invalid_argument if the version that is
/// asked for is not known.
PlanTorch plan_torch(const std::string& asked, bool is_python_program);

}  // namespace shardlens::planner
