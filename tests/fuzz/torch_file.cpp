// Passes files saved by PyTorch to `checkpoint import`: a file of torch.save or, from several
// parts, a folder of torch.distributed.checkpoint.

#include <filesystem>

#include "runtime/checkpoint/interchange/import_checkpoint.h"
#include "tests/fuzz/checksums.h"
#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

namespace {

void import(const std::vector<Part>& parts) {
  const std::string& folder = empty_folder();
  const std::string source = folder + "/source";
  std::filesystem::create_directory(source);
  const std::string first = write_parts(parts, source);
  answers([&] {
    runtime::import_checkpoint({parts.size() > 1 ? source : first, "--out", folder + "/out"});
  });
}

}  // namespace

void torch_file(std::string_view input) {
  std::vector<Part> parts = parts_of(input, "model.pt");
  for (Part& part : parts) repair_archive(part.bytes);
  import(parts);
}

}  // namespace shardlens::fuzz
