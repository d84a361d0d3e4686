// A temporary folder in memory, if the machine has one: tests that sync a file some thousand times
// do not wait for a disk.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/support/temporary_folder.h"

namespace shardlens::tests {

/// Temporary folders are made in memory during this object's lifetime.
class TemporariesInMemory {
 public:
  TemporariesInMemory() {
    constexpr const char* kMemory = "/dev/shm";
    if (const char* const before = std::getenv("TMPDIR")) before_ = before;
    if (::access(kMemory, W_OK) == 0) ::setenv("TMPDIR", kMemory, 1);
  }
  ~TemporariesInMemory() {
    before_ ? ::setenv("TMPDIR", before_->c_str(), 1) : ::unsetenv("TMPDIR");
  }
  TemporariesInMemory(const TemporariesInMemory&) = delete;
  TemporariesInMemory& operator=(const TemporariesInMemory&) = delete;

 private:
  std::optional<std::string> before_;
};

class MemoryFolder : private TemporariesInMemory, public TemporaryFolder {};

}  // namespace shardlens::tests
