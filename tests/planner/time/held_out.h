// Measured times that gave no constant, and what a test says of the errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace shardlens::tests {

/// The lines of a file of tests/fixtures/time, as words.
inline std::vector<std::vector<std::string>> held_out(const std::string& name) {
  std::ifstream file(SHARDLENS_SOURCE_DIR "/tests/fixtures/time/" + name);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(file, line);  // names of columns
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; std::getline(words, word, ',');) row.push_back(word);
    rows.push_back(row);
  }
  return rows;
}

/// Relative errors of predictions, and the ones that half and nine of ten stay within.
class ErrorsOf {
 public:
  void add(double predicted, double measured) {
    errors_.push_back(std::abs(predicted / measured - 1));
  }
  size_t size() const { return errors_.size(); }
  double within(double part) {
    std::ranges::sort(errors_);
    return errors_.at(static_cast<size_t>(part * static_cast<double>(errors_.size() - 1)));
  }
  double median() { return within(0.5); }
  void print(const std::string& what) {
    std::printf("%-44s %4zu cases, median %4.1f %%, nine of ten within %4.1f %%\n", what.c_str(),
                size(), 100 * median(), 100 * within(0.9));
  }

 private:
  std::vector<double> errors_;
};

}  // namespace shardlens::tests
