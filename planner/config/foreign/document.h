// Reads a configuration in JSON, YAML or TOML as one kind of tree. Private to
// planner/config/foreign/.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace shardlens::planner {

enum class Notation { json, yaml, toml };

/// Parses a document and returns its object. Throws std::invalid_argument if the text is not an
/// object, or larger or deeper than any configuration.
nlohmann::json parse_document(std::string_view text, Notation notation);

}  // namespace shardlens::planner
