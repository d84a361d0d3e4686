// Classifies an allocation of a Python program by the Python functions in which it was made, the
// innermost first, and if no rule names any of them, by the part of the step in which it was made.
// All rules are in one table; an allocation that no rule covers is `other`, and reports print the
// share of `other`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// The name of what torch.load and safetensors read.
constexpr std::string_view kLoadedCheckpoint = "loaded checkpoint";

struct PythonRule {
  std::string_view file;      // the end of its path, or a part that ends in '/'
  std::string_view function;  // empty: any
  Category category{};
  std::string_view name = "";  // of what is allocated, if the function tells more
  bool is_of_part = false;     // the part of the step decides, whatever the functions inside say
};

/// Returns all rules. The first one that matches applies.
std::span<const PythonRule> python_rules();

/// Returns the rule for this function, or null if there is none.
const PythonRule* find_python_rule(std::string_view file, std::string_view function);

/// True for files of the hooks that record a program (profiler/record/python).
bool is_of_hooks(std::string_view file);

/// True if a file belongs neither to PyTorch, nor to Python's own library, nor to the hooks.
bool is_of_program(std::string_view file);

/// A part of a training step, as far as allocations show it.
enum class StepPart : uint8_t {
  starting,        // until the first optimizer is made
  before_forward,  // the beginning of a step: its data
  forward,         // from the first allocation of a module's forward
  backward,        // while autograd runs a node
};

/// Returns the category of an allocation that functions without a rule made in this part of the
/// step.
Category category_of_part(StepPart part);

/// True if allocations of a function show that the forward pass has begun.
bool is_forward(std::string_view function);

}  // namespace shardlens::profiler
