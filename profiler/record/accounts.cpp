#include "profiler/record/accounts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <sstream>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/strict_json.h"
#include "profiler/record/python_program.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;

std::optional<AccountEntry> told_in(const std::string& line, int process) {
  const auto json = find_json(line);
  if (!json || !json->is_object()) return std::nullopt;
  const auto time = json->find("time");
  if (time == json->end() || !time->is_number()) return std::nullopt;
  return AccountEntry{.process = process,
                      .time_s = time->get<double>(),
                      .what = text_in(*json, "what").value_or(""),
                      .text = text_in(*json, "text").value_or("")};
}

bool is_error(const AccountEntry& told) {
  return told.what == "import_error" || told.what == "raised";
}

/// Returns the entry of a program that could not be found, or null. A launcher imports PyTorch as
/// the program does, and a process may try another script after one that it did not find. So only a
/// process that did nothing else afterwards counts.
const AccountEntry* missing_program(const Accounts& accounts, std::string_view what) {
  const AccountEntry* const found = accounts.first_entry(what);
  if (found == nullptr) return nullptr;
  const bool has_run = std::ranges::any_of(accounts.told, [&](const AccountEntry& told) {
    return told.process == found->process && told.time_s > found->time_s &&
           (told.what == "torch" || is_error(told));
  });
  return has_run ? nullptr : found;
}

std::string why_not_loaded(const std::vector<std::string>& command) {
  const std::string flag = isolating_flag(command);
  if (!flag.empty()) {
    return fmt::format(
        "the recorder was not loaded: {} is started with {}, which ignores PYTHONPATH; start it "
        "without that flag",
        command.front(), flag);
  }
  return fmt::format(
      "the recorder was not loaded: {} has started no Python, or one with -I, -E or -S, or without "
      "the environment that it was given; start the program with python",
      command.front());
}

std::string why_no_gpu(const Accounts& accounts, const CommandEnd& end, bool is_attached) {
  const std::string_view hint =
      is_attached ? " (without a GPU, give --device, such as null:h100)" : "";
  const AccountEntry* const error = accounts.first_error();
  if (error != nullptr && end.is_failure()) {
    const bool is_import = error->what == "import_error";
    return fmt::format("the program failed {} it used a GPU{}: {}",
                       is_import ? "at an import, before" : "before", is_import ? "" : hint,
                       error->text);
  }
  if (end.is_failure()) return "the program ended before it used a GPU; its own output may say why";
  if (accounts.first_entry("torch") == nullptr) return "the program has not imported PyTorch";
  return fmt::format("the program has imported PyTorch and used no GPU{}", hint);
}

}  // namespace

const AccountEntry* Accounts::first_entry(std::string_view what) const {
  const auto found = std::ranges::find(told, what, &AccountEntry::what);
  return found == told.end() ? nullptr : &*found;
}

const AccountEntry* Accounts::first_error() const {
  std::set<int> on_gpu;
  for (const AccountEntry& line : told) {
    if (line.what == "gpu") on_gpu.insert(line.process);
  }
  const auto found = std::ranges::find_if(told, [&](const AccountEntry& line) {
    return is_error(line) && (on_gpu.empty() || on_gpu.contains(line.process));
  });
  return found == told.end() ? nullptr : &*found;
}

Accounts read_accounts(const fs::path& folder) {
  Accounts accounts;
  if (!fs::is_directory(folder)) return accounts;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    int process = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    std::istringstream file(read_file(entry.path(), kRecord.bytes).text);
    for (std::string line; std::getline(file, line);) {
      if (auto told = told_in(line, process)) accounts.told.push_back(std::move(*told));
    }
  }
  std::ranges::stable_sort(accounts.told, {}, &AccountEntry::time_s);
  return accounts;
}

std::string why_nothing(const Accounts& accounts, const CommandEnd& end,
                        const std::vector<std::string>& command, bool is_attached) {
  if (const AccountEntry* const refused = accounts.first_entry("refused")) return refused->text;
  if (const AccountEntry* const script = missing_program(accounts, "no_script")) {
    return fmt::format("there is no script {}; check its path", script->text);
  }
  if (const AccountEntry* const module = missing_program(accounts, "no_module")) {
    return fmt::format(
        "there is no module {} for python -m; check its name, or start it in its folder",
        module->text);
  }
  if (!end.how.empty()) {
    const bool has_gpu = accounts.first_entry("gpu") != nullptr;
    return end.how + (has_gpu ? ", before its recording was written" : ", before it used a GPU");
  }
  if (accounts.first_entry("started") == nullptr) return why_not_loaded(command);
  if (accounts.first_entry("gpu") != nullptr)
    return "the program used a GPU and allocated nothing on it";
  return why_no_gpu(accounts, end, is_attached);
}

Problem failure_text(const Accounts& accounts, const CommandEnd& end) {
  if (!end.is_failure()) return std::nullopt;
  if (!end.how.empty()) return end.how;
  const AccountEntry* const error = accounts.first_error();
  if (error == nullptr) return fmt::format("the program ended with exit code {}", end.exit_code);
  return fmt::format("the program failed with exit code {}, {}", end.exit_code, error->text);
}

}  // namespace shardlens::profiler
