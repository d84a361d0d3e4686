// Reads our own checkpoints, from which train resumes and infer loads. An input of several parts is
// a folder with a manifest; one of a single part is any of the small files in it.

#include "runtime/checkpoint/checkpoint.h"

#include "runtime/checkpoint/checkpoint_reader.h"
#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

namespace {

void read_folder(const std::vector<Part>& parts) {
  const std::string& folder = empty_folder();
  write_parts(parts, folder);
  answers([&] {
    runtime::CheckpointReader reader(folder);
    for (const models::SafetensorsFile& file : reader.files()) {
      for (const models::SafetensorsTensor& tensor : file.tensors()) {
        std::vector<std::byte> bytes(tensor.data.size());
        reader.read(tensor.name, 0, bytes);
      }
    }
  });
}

}  // namespace

void checkpoint(std::string_view input) {
  const std::vector<Part> parts = parts_of(input, "state.json");
  if (parts.size() > 1) return read_folder(parts);
  answers([&] { runtime::to_json(runtime::parse_manifest(input)); });
  answers([&] { runtime::to_json(runtime::parse_rank_progress(input)); });
  answers([&] {
    const std::string text = runtime::to_json(runtime::parse_state(input));
    expect(runtime::to_json(runtime::parse_state(text)) == text,
           "a state is another when it was written and read");
  });
}

}  // namespace shardlens::fuzz
