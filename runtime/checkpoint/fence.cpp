#include "runtime/checkpoint/fence.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/durable_files.h"
#include "base/fault.h"
#include "base/input_file.h"
#include "base/limits.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFile = ".generation";

/// Returns the number in the file, or 0 if the file is missing or cannot be read.
int64_t read_generation(const fs::path& file) {
  std::istringstream in(read_file(file, kDescription.bytes).text);
  int64_t generation = 0;
  in >> generation;
  return std::max<int64_t>(generation, 0);
}

}  // namespace

Fence Fence::begin(const fs::path& run) {
  const fs::path file = run / kFile;
  const int64_t generation = read_generation(file) + 1;
  write_file(file, fmt::format("{}\n", generation));
  return {file, generation};
}

Fence Fence::adopt(const fs::path& run, int64_t generation) { return {run / kFile, generation}; }

std::string Fence::suffix() const {
  return generation_ == 0 ? std::string() : fmt::format("-g{}", generation_);
}

void Fence::check() const {
  if (generation_ == 0) return;
  const int64_t newest = read_generation(file_);
  if (newest == generation_) return;
  throw Failure(
      Fault::overtaken,
      fmt::format("{}: this rank belongs to attempt {} of the run, but the newest is {}: it "
                  "writes nothing more",
                  file_.parent_path().string(), generation_, newest));
}

}  // namespace shardlens::runtime
