// What an allocation of a Python program is for: from the Python functions that it was made in, the
// innermost first, and where none of them tells, from the part of the step that it was made in. All
// rules are one table; what no rule names is `other`, and reports print its share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "profiler/profile.h"

namespace shardlens::profiler {

struct PythonRule {
  std::string_view file;      // the end of its path, or a part of it that ends in '/'
  std::string_view function;  // empty: any
  Category category{};
};

/// Earlier ones win.
std::span<const PythonRule> python_rules();

/// Null where no rule is about this function.
const PythonRule* find_python_rule(std::string_view file, std::string_view function);

/// Whether a file is neither PyTorch's nor of what records it (runtime/record/python).
bool is_of_program(std::string_view file);

/// Of a step, as far as allocations show it.
enum class StepPart : uint8_t {
  starting,        // until the first optimizer is made
  before_forward,  // what a step begins with: its data
  forward,         // from the first allocation of a module's forward
  backward,        // in what autograd does for a node
};

/// Of what is allocated in a part of the step by functions that no rule is about.
Category category_of_part(StepPart part);

/// Whether a function's allocations show that the forward pass has begun.
bool is_forward(std::string_view function);

}  // namespace shardlens::profiler
