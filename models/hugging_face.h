// Reads the config.json of a model of Hugging Face's transformers if it is a Llama or computes like
// one. Private to models/.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model_file.h"

namespace shardlens::models {

bool is_hugging_face(const nlohmann::json& object);

/// Reads the sizes of the model. `path` names it if the file does not. Throws
/// std::invalid_argument: a key and what could be done about it.
NamedSizes read_hugging_face(const nlohmann::json& object, const std::string& path);

/// Lists every known key, for tests.
std::vector<std::string> hugging_face_keys();

}  // namespace shardlens::models
