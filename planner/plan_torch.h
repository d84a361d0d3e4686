// By which version of PyTorch a plan is made, and why by that one.
#pragma once

#include <string>

#include "models/torch_rules.h"

namespace shardlens::planner {

struct PlanTorch {
  const models::TorchRules* rules = &models::own_torch_rules();
  std::string source = "this build";  // who said which: "--torch", "PyTorch 2.15.0 of /venv/python"
  std::string doubt;                  // empty where that version's rules are known
};

/// `asked`: what --torch says, empty where it was not given. Then our own program runs with the
/// LibTorch of this build, and a Python program with the PyTorch that the python on PATH imports,
/// where there is one. Throws std::invalid_argument for a version that is asked for and not known.
PlanTorch plan_torch(const std::string& asked, bool is_python_program);

}  // namespace shardlens::planner
