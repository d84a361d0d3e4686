// Reads what tests/support/programs/fault_at.cpp writes about a program's operations on files.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace shardlens::tests {

struct FileOperation {
  int rank = -1;     // -1: the program's first process
  std::string name;  // "write", "rename", ...
  std::string path;  // below the folder; for a rename: the new one
  int count = 1;     // the number of this operation among those of its rank, name and path

  bool writes() const { return name == "write" || name == "append"; }
  std::string text() const {
    return std::to_string(rank) + " " + name + " " + path + " " + std::to_string(count);
  }
  /// `kind`: kill, torn, full, stop.
  std::string fault(const std::string& kind) const {
    return std::to_string(rank) + " " + std::to_string(count) + " " + kind + " " + name + " " +
           path;
  }
};

/// `when`: "begin", or "end" for those that were done.
inline std::vector<FileOperation> read_fault_log(const std::string& log, const std::string& when) {
  std::vector<FileOperation> operations;
  std::map<std::string, int> counts;
  std::ifstream lines(log);
  FileOperation one;
  for (std::string word; lines >> word >> one.rank >> one.name >> one.path;) {
    if (word != when) continue;
    one.count = 0;
    one.count = ++counts[one.text()];
    operations.push_back(one);
  }
  return operations;
}

/// A command line watched by fault_at: operations below `folder` are logged, and the one that
/// `fault` (FileOperation::fault) names is struck.
inline std::vector<std::string> watched(const std::vector<std::string>& command,
                                        const std::string& folder, const std::string& log,
                                        const std::string& fault = "",
                                        const std::string& preload = "") {
  std::vector<std::string> all = {"/usr/bin/env", "SHARDLENS_FAULT_UNDER=" + folder,
                                  "SHARDLENS_FAULT_LOG=" + log};
  if (!fault.empty()) all.push_back("SHARDLENS_FAULT_AT=" + fault);
  if (!preload.empty()) all.push_back("LD_PRELOAD=" + preload);
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

}  // namespace shardlens::tests
