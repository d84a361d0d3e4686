#include "planner/config/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/nearest.h"
#include "models/spec.h"
#include "planner/config/foreign/foreign.h"
#include "planner/config/options.h"

namespace shardlens::planner {

namespace {

std::string read_config_file(const std::string& path) {
  FileText read = read_file(path, kWritten.bytes);
  if (!read.problem) return std::move(read.text);
  throw std::invalid_argument(
      fmt::format("--config {}: cannot be opened ({}); give a file such as a run's config.json",
                  path, *read.problem));
}

std::string unknown_flag(const std::string& argument) {
  if (argument.rfind("--", 0) != 0) {
    return fmt::format("{}: not a flag; flags begin with --, see --help", argument);
  }
  const std::string name = argument.substr(2, argument.find('=') - 2);
  const Option& nearest = nearest_named(options(), name);
  const bool mistyped = name_distance(name, nearest.name) <= kMistypedEdits;
  return fmt::format("--{}: unknown flag; {}", name,
                     mistyped ? fmt::format("did you mean --{}?", nearest.name) : "see --help");
}

/// The flags that CLI11 found, in the table's order, before any value is checked.
struct GivenFlags {
  std::vector<std::vector<std::string>> values;
  std::string config_file;
  bool help = false;
};

void declare(CLI::App& app, GivenFlags& given) {
  app.set_help_flag();
  app.allow_extras();
  app.add_flag("--help,-h", given.help);
  app.add_option("--config", given.config_file);
  given.values.resize(options().size());
  for (size_t i = 0; i < options().size(); ++i) {
    CLI::Option* option = app.add_option(fmt::format("--{}", options()[i].name), given.values[i]);
    option->expected(1)->allow_extra_args(false)->take_last();
    if (std::holds_alternative<bool Config::*>(options()[i].field)) {
      option->expected(0, 1)->default_str("true");
    }
  }
}

GivenFlags parse(const std::vector<std::string>& arguments) {
  GivenFlags given;
  CLI::App app;
  declare(app, given);
  try {
    // CLI11 takes the arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ArgumentMismatch& error) {
    throw std::invalid_argument(fmt::format("{}; see --help", error.what()));
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(fmt::format("{}; see --help", error.what()));
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    throw std::invalid_argument(unknown_flag(extras.front()));
  }
  return given;
}

void set_flags(Config& config, const GivenFlags& given) {
  for (size_t i = 0; i < options().size(); ++i) {
    if (!given.values[i].empty()) set_option(config, options()[i], given.values[i].back());
  }
}

/// Returns the context of another program's file, since the file's meaning may depend on the flags
/// and ranks beside it.
ForeignContext context_of(const GivenFlags& given, int64_t launched) {
  Config flags;
  set_flags(flags, given);
  ForeignContext context{.world_size = launched > 0 ? launched : world_size_of(flags),
                         .is_launched = launched > 0,
                         .flags = {}};
  for (size_t i = 0; i < options().size(); ++i) {
    if (!given.values[i].empty()) context.flags.emplace_back(options()[i].name);
  }
  return context;
}

void read_config(Arguments& result, const GivenFlags& given, int64_t launched) {
  const std::string& file = given.config_file;
  const std::string text = read_config_file(file);
  const std::optional<ForeignFormat> format = foreign_format(text, file);
  if (!format) return read_json(result.config, text, file);
  result.notes = read_foreign(result.config, *format, text, file, context_of(given, launched));
}

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& arguments, int64_t launched) {
  const GivenFlags given = parse(arguments);
  Arguments result{.config = {}, .notes = {}, .help = given.help};
  if (!given.config_file.empty()) read_config(result, given, launched);
  set_flags(result.config, given);
  if (result.help) return result;
  std::ranges::copy(models::notes_on(result.config.model), std::back_inserter(result.notes));
  return result;
}

std::string help_text(std::string_view command) {
  std::string text = fmt::format("usage: shardlens {} [flags]\n\n", command);
  const Config defaults;
  for (const Option& option : options()) {
    const std::string shown = text_of(defaults, option);
    const std::string flag = fmt::format("--{} {}", option.name, option.value);
    text += fmt::format("  {:<42} {}{}\n", flag, option.help,
                        shown.empty() ? "" : fmt::format(" (default {})", shown));
  }
  text += fmt::format("  {:<42} {}\n", "--config FILE",
                      "flags from a file: a run's config.json, or one of DeepSpeed (JSON), "
                      "accelerate (YAML) or torchtitan (TOML)");
  return text;
}

}  // namespace shardlens::planner
