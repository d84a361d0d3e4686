#include "planner/config/foreign/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "planner/config/foreign/document.h"
#include "planner/config/foreign/formats.h"
#include "planner/config/foreign/reading.h"
#include "planner/config/options.h"

namespace shardlens::planner {

namespace {

bool is_option(std::string_view key) {
  return std::ranges::any_of(options(), [&](const Option& option) {
    std::string name(option.name);
    std::ranges::replace(name, '-', '_');
    return name == key;
  });
}

/// True if the document has a top-level key that the format knows and we do not. "optimizer" is a
/// key of ours, too.
bool is_of(const nlohmann::json& document, ForeignFormat format) {
  for (const auto& [key, value] : document.items()) {
    const auto begins = [&key = key](const ForeignKey& known) {
      return known.name.substr(0, known.name.find('.')) == key;
    };
    const bool is_ours = is_option(key) && !value.is_object();
    if (!is_ours && std::ranges::any_of(foreign_keys(format), begins)) return true;
  }
  return false;
}

}  // namespace

std::span<const ForeignKey> foreign_keys(ForeignFormat format) {
  switch (format) {
    case ForeignFormat::deepspeed:
      return deepspeed_keys();
    case ForeignFormat::accelerate:
      return accelerate_keys();
    case ForeignFormat::torchtitan:
      return torchtitan_keys();
  }
  unreachable("foreign format out of range");
}

std::optional<ForeignFormat> foreign_format(std::string_view text, const std::string& file) {
  const Notation notation = notation_of(file);
  if (notation == Notation::toml) return ForeignFormat::torchtitan;
  if (notation == Notation::yaml) return ForeignFormat::accelerate;
  const auto document = find_json(text, kWritten);
  if (!document || !document->is_object()) return std::nullopt;
  for (const ForeignFormat format : {ForeignFormat::deepspeed, ForeignFormat::accelerate}) {
    if (is_of(*document, format)) return format;
  }
  return std::nullopt;
}

std::vector<std::string> read_foreign(Config& config, ForeignFormat format, std::string_view text,
                                      const std::string& file, const ForeignContext& context) {
  try {
    Config read = config;
    ForeignReader reading(read, parse_document(text, notation_of(file)), context);
    std::vector<std::string> lines = reading.read(foreign_keys(format));
    std::ranges::transform(lines, lines.begin(), shown);
    lines.insert(lines.begin(),
                 fmt::format("{}, {} configuration:", shown(file), to_string(format)));
    config = std::move(read);
    return lines;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(
        shown(fmt::format("{} ({}): {}", file, to_string(format), error.what())));
  }
}

}  // namespace shardlens::planner
