// Which Python program a plan stands for: the words of --pytorch, which say how it is written, and
// the program in words for who reads the plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/spec.h"
#include "planner/pytorch_simulation.h"
#include "planner/strategy.h"

namespace shardlens::planner {

/// Reads --pytorch WORD,... Throws std::invalid_argument for a word that is not known.
PytorchOptions read_pytorch_words(std::string_view words);
/// All words, for help.
std::string pytorch_words();

/// One thing that a program may do otherwise, and how this one does it.
struct PytorchHabit {
  std::string what;  // "zero_grad"
  std::string how;   // "set_to_none, behind the optimizer's step"
};

/// Lists what memory depends on beside the flags, in the words of a Python programmer.
std::vector<PytorchHabit> habits_of(const models::ModelSpec& spec, const Config& config,
                                    const PytorchOptions& options);

/// The words with which ordinary programs of this model take the least and the most.
struct PytorchRange {
  std::string least;
  std::string most;
};
PytorchRange pytorch_range(const models::ModelSpec& spec);

}  // namespace shardlens::planner
