#include "profiler/record/search/recorded_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "profiler/compare/origin.h"
#include "profiler/file/reader.h"
#include "profiler/record/levers/lever_sites.h"
#include "profiler/record/python_program.h"
#include "profiler/record/search/variants.h"
#include "profiler/report/recording_report.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kAsItIs = "as_it_is";
constexpr const char* kWith = "with";

Words words_in(const nlohmann::json& json, const char* key) {
  Words words;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return words;
  for (const auto& word : *found) {
    if (word.is_string()) words.push_back(word.get<std::string>());
  }
  return words;
}

/// Returns the levers of a recording's configuration that this version knows.
std::vector<Lever> levers_in(const nlohmann::json& config) {
  std::vector<Lever> found;
  const auto json = config.find("levers");
  if (json == config.end() || !json->is_object()) return found;
  for (const auto& [name, value] : json->items()) {
    const bool is_known = std::ranges::find(levers(), name, &LeverInfo::name) != levers().end();
    if (is_known && value.is_string()) found.push_back({.name = name, .value = value});
  }
  return found;
}

/// Returns where levers act in the program, if it was watched for that.
std::optional<Accounts> sites_beside(const fs::path& recording) {
  const auto file = fs::path(recording).replace_extension(".json");
  const auto facts = find_json(read_file(file, kDescription.bytes).text, kDescription);
  if (!facts || !facts->is_object() || !facts->contains("lever_sites")) return std::nullopt;
  return read_lever_accounts((*facts)["lever_sites"]);
}

fs::path run_folder_of(const fs::path& recording) {
  const fs::path folder = recording.parent_path();
  return folder.filename() == "profiles" ? folder.parent_path() : folder;
}

/// Returns the recording of the same rank in a run's folder.
fs::path recording_in(const fs::path& run_folder, const RecordedProgram& program) {
  return run_folder / "profiles" / fs::path(program.recording).filename();
}

/// Returns the script in the command: its last word that names one, as in "torchrun train.py".
std::string script_of(const Words& command) {
  const auto script = std::find_if(command.rbegin(), command.rend(), [](const std::string& word) {
    return word.ends_with(".py") && !word.starts_with("-");
  });
  return script == command.rend() ? "" : *script;
}

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

/// Returns why the files that the command names cannot be used.
Problem missing_file(const RecordedProgram& program) {
  const fs::path directory = program.directory;
  const auto missing = [](const std::string& what) {
    return fmt::format("this machine has no {}, with which it was recorded", shown(what));
  };
  if (!is_there(directory)) return missing("folder " + program.directory);
  const fs::path python = directory / program.python;
  if (!program.python.empty() && !is_there(python)) return missing(python.string());
  const std::string& first = program.command.front();
  const bool is_path = first.find('/') != std::string::npos;
  const bool is_found = is_path ? is_there(directory / first)
                                : is_there(python.parent_path() / first) || find_program(first);
  if (!is_found) return missing(is_path ? (directory / first).string() : first);
  const std::string script = script_of(program.command);
  if (script.empty() || is_there(directory / script)) return std::nullopt;
  return missing((directory / script).string());
}

/// Returns the flags on which the memory of a program depends, beside those that levers set: how
/// much memory the GPU has decides only whether it fits, and later steps are like the first.
Words compared_flags(const RecordedProgram& program, const std::vector<Lever>& added) {
  std::set<std::string> ignored = {"--capacity", "--steps"};
  for (const Lever& lever : added) {
    if (lever.name == "gpu") ignored.insert("--device");
    if (lever.name == "world") ignored.insert("--world");
  }
  Words compared;
  for (size_t i = 0; i + 1 < program.flags.size(); i += 2) {
    if (ignored.contains(program.flags[i])) continue;
    compared.insert(compared.end(), {program.flags[i], program.flags[i + 1]});
  }
  return compared;
}

std::vector<Lever> levers_beside(const RecordedProgram& program, std::vector<Lever> levers) {
  std::erase_if(levers, [&](const Lever& lever) {
    return std::ranges::find(program.levers, lever) != program.levers.end();
  });
  return levers;
}

/// Returns the name of a file of the program that the two recordings have in different versions.
std::string edited_file(const RecordedProgram& program, const RecordedProgram& other) {
  const auto before = notes_beside(program.recording).fingerprints;
  const auto after = notes_beside(other.recording).fingerprints;
  for (const auto& [name, fingerprint] : before) {
    const auto found = after.find(name);
    if (found != after.end() && found->second != fingerprint) return name;
  }
  return "";
}

std::optional<RecordedVariant> variant_in(const fs::path& folder, const RecordedProgram& program) {
  const fs::path recording = recording_in(folder, program);
  const auto verdict = read_verdict(recording.string());
  if (!verdict) return std::nullopt;
  try {
    const RecordedProgram other = read_recorded_program(recording.string());
    if (why_no_variant(program, other)) return std::nullopt;
    return RecordedVariant{.added = levers_beside(program, other.levers),
                           .folder = folder.string(),
                           .verdict = *verdict};
  } catch (const std::exception&) {
    return std::nullopt;  // it is damaged, or being written
  }
}

}  // namespace

RecordedProgram read_recorded_program(const std::string& recording) {
  const Reader reader(recording);
  RecordedProgram program{.recording = recording};
  const auto config = find_json(reader.header().config, kDescription).value_or(nullptr);
  if (config.is_object()) {
    program.command = words_in(config, "command");
    program.flags = words_in(config, "flags");
    program.directory = text_in(config, "directory").value_or("");
    program.python = text_in(config, "python").value_or("");
    program.levers = levers_in(config);
  }
  const fs::path folder = run_folder_of(recording);
  const bool is_of_search = folder.filename() == kAsItIs;
  program.variants = (is_of_search ? folder.parent_path() : folder / kWith).string();
  program.sites = sites_beside(recording);
  if (!program.sites) program.sites = sites_beside(recording_in(folder_with(program, {}), program));
  return program;
}

Problem why_not_again(const RecordedProgram& program) {
  if (program.command.empty()) {
    return "the recording does not say which command made it, as those of `shardlens record` do";
  }
  if (program.flags.empty() || program.directory.empty()) {
    return "an older version of Shardlens has recorded it, which did not keep how; record it again";
  }
  const auto& flags = program.flags;
  if (std::ranges::search(flags, std::array{"--device", "cuda"}).begin() != flags.end()) {
    return "it ran on a real GPU, but levers need a simulated one; record it with --device, such "
           "as null:h100";
  }
  return missing_file(program);
}

Words arguments_with(const RecordedProgram& program, const std::vector<Lever>& more,
                     const std::string& out) {
  Words words = program.flags;
  std::vector<Lever> levers = program.levers;
  levers.insert(levers.end(), more.begin(), more.end());
  if (more.empty()) words.push_back("--find-levers");
  if (!levers.empty()) words.insert(words.end(), {"--with", levers_text(levers)});
  words.insert(words.end(), {"--out", out, "--"});
  words.insert(words.end(), program.command.begin(), program.command.end());
  return words;
}

std::string folder_with(const RecordedProgram& program, const std::vector<Lever>& added) {
  const std::string name = added.empty() ? kAsItIs : folder_of(levers_text(added));
  return (fs::path(program.variants) / name).string();
}

Problem why_no_variant(const RecordedProgram& program, const RecordedProgram& other) {
  const std::vector<Lever> added = levers_beside(program, other.levers);
  const bool has_all = added.size() + program.levers.size() == other.levers.size();
  const bool is_alike = has_all && program.command == other.command &&
                        compared_flags(program, added) == compared_flags(other, added);
  if (!is_alike) return "it was recorded from another command, or with other flags";
  const std::string edited = edited_file(program, other);
  if (edited.empty()) return std::nullopt;
  return fmt::format("{} has changed since this recording was made; record it again",
                     shown(edited));
}

std::vector<RecordedVariant> variants_of(const RecordedProgram& program) {
  std::vector<std::string> folders;
  std::error_code unreadable;
  for (fs::directory_iterator at(program.variants, unreadable), end; !unreadable && at != end;
       at.increment(unreadable)) {
    if (at->is_directory(unreadable)) folders.push_back(at->path().string());
  }
  std::ranges::sort(folders, is_naturally_less);
  std::vector<RecordedVariant> variants;
  for (const std::string& folder : folders) {
    if (auto variant = variant_in(folder, program)) variants.push_back(std::move(*variant));
  }
  return variants;
}

}  // namespace shardlens::profiler
