// The Python program that a plan assumes: reads the words of --pytorch, which say how it is
// written, and describes the program in words for readers of the plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/pytorch/simulation.h"

namespace shardlens::planner {

/// Reads the value WORD,... of --pytorch. Throws std::invalid_argument for an unknown word.
PytorchOptions read_pytorch_words(std::string_view words);
/// Returns all words, for the help text.
std::string pytorch_words();

/// One thing that programs do in different ways, and how this program does it.
struct PytorchHabit {
  std::string what;  // "zero_grad"
  std::string how;   // "set_to_none, behind the optimizer's step"
};

/// Lists what memory depends on besides the flags, in the words of a Python programmer.
std::vector<PytorchHabit> habits_of(const models::ModelSpec& spec, const Config& config,
                                    const PytorchOptions& options);

/// The words with which ordinary programs of a model take the least and the most memory.
struct PytorchRange {
  std::string least;
  std::string most;
};
PytorchRange pytorch_range(const models::ModelSpec& spec);

}  // namespace shardlens::planner
