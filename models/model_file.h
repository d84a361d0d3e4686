// Reads a model from a JSON file: {"family": "llama", "layers": 2, ...}, or a config.json of
// Hugging Face's (hugging_face.h). Private to models/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/families.h"

namespace shardlens::models {

struct NamedSizes {
  std::string name;
  ModelSizes sizes;
  int64_t most_seq = 0;              // 0: no limit but the family's
  std::vector<std::string> notes{};  // of another program's file: how it was read
};

/// Reads the sizes of a model; every number is in its range. The maker of the family's spec checks
/// if the sizes go together. Throws std::invalid_argument with one line that names the file.
NamedSizes read_model_file(const std::string& path);

}  // namespace shardlens::models
