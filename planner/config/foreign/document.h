// Reads a file that a person writes, in JSON, YAML or TOML, as one kind of tree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace shardlens::planner {

enum class Notation { json, yaml, toml };

/// Returns the notation by the end of a file's name; JSON unless it says otherwise.
Notation notation_of(const std::string& file);

/// Parses a document and returns its object. Throws std::invalid_argument if the text is not an
/// object, or larger or deeper than any configuration.
nlohmann::json parse_document(std::string_view text, Notation notation);

}  // namespace shardlens::planner
