// A Python that has PyTorch; tests/support/pytorch says which.
#pragma once

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace shardlens::tests {

inline constexpr int kNoPyTorch = 77;  // its exit code if there is none
inline constexpr const char* kWithoutPyTorch =
    "there is no PyTorch for Python; .setup/python makes it";

inline std::vector<std::string> python_with_pytorch(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {SHARDLENS_SOURCE_DIR "/tests/support/pytorch",
                                    SHARDLENS_BUILD_DIR};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace shardlens::tests
