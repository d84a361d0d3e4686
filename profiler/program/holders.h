// Names the variables that hold what a program keeps from step to step, as `shardlens record
// --holders` finds them in the program's process
// (profiler/record/python/shardlens_record/holders.py).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace shardlens::profiler {

struct HoldingVariable {
  std::string variable;      // as Python writes it: "meter.values"
  std::string where;         // the function or file that has the variable: "main of train.py"
  std::string container;     // the class of what holds the tensors: "list"
  int64_t tensors = 0;       // at the last look
  int64_t tensor_bytes = 0;  // of one of them
  std::optional<double> tensors_per_step;  // nothing: the program has no steps
  bool has_graph = false;                  // they keep what computed them
};

/// Reads what a recording's notes list; what has another form is left out.
std::vector<HoldingVariable> read_holders(const nlohmann::json& list);

nlohmann::json holders_json(const std::vector<HoldingVariable>& holders);

/// Returns "meter.values, a list in main of train.py: 1 tensor of 2.00 MiB a step, with the graph
/// that made it".
std::string holder_text(const HoldingVariable& holder);

}  // namespace shardlens::profiler
