// Reads a model from a JSON file: {"family": "llama", "layers": 2, ...}. Private to models/.
#pragma once

#include <string>

#include "models/families.h"

namespace shardlens::models {

struct NamedSizes {
  std::string name;
  Sizes sizes;
};

/// Every number is in its range; whether the sizes go together is for the family to say. Throws
/// std::invalid_argument with one line that names the file.
NamedSizes read_model_file(const std::string& path);

}  // namespace shardlens::models
