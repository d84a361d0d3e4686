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
  Sizes sizes;
  int64_t most_seq = 0;              // 0: no limit but the family's
  std::vector<std::string> notes{};  // of another program's file: how it was read
};

/// Every number is in its range; whether the sizes go together is for the family to say. Throws
/// std::invalid_argument with one line that names the file.
NamedSizes read_model_file(const std::string& path);

}  // namespace shardlens::models
