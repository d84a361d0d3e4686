#include "viewer/model/browse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <tuple>

#include "profiler/compare/origin.h"
#include "viewer/model/run.h"
#include "viewer/model/search.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBrowsed = 500;  // entries per folder

/// Returns what kind of file it is, by its extension; empty if it cannot be opened.
std::string file_words(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".slp") return "recording";
  if (path.string().ends_with(".json.gz")) return "trace of torch.profiler";
  if (ending == ".json") return "plan, configuration or trace";
  if (ending == ".pickle" || ending == ".pkl") return "PyTorch snapshot";
  return "";
}

std::optional<BrowsedPath> browsed_path(const fs::path& path, const std::string& folder) {
  const std::string name = path.filename().string();
  if (name.starts_with(".")) return std::nullopt;
  std::error_code unreadable;
  BrowsedPath entry{.path = folder + name, .name = name, .what = {}};
  if (!fs::is_directory(path, unreadable)) {
    entry.what = file_words(path);
    return entry.what.empty() ? std::nullopt : std::optional(entry);
  }
  const size_t ranks = ranks_in(path.string());
  entry.is_run = ranks > 0;
  entry.is_entered = !entry.is_run;
  entry.what =
      entry.is_run ? fmt::format("run of {} rank{}", ranks, ranks == 1 ? "" : "s") : "folder";
  if (entry.is_entered) {
    entry.name += "/";
    entry.path += "/";
  }
  return entry;
}

/// Returns the content of a folder, which ends in a slash, or is empty for the current one.
std::vector<BrowsedPath> content_of(const std::string& folder) {
  std::vector<BrowsedPath> all;
  std::error_code unreadable;
  const fs::path path = folder.empty() ? "." : folder;
  for (fs::directory_iterator at(path, unreadable), end; !unreadable && at != end;
       at.increment(unreadable)) {
    if (auto entry = browsed_path(at->path(), folder)) all.push_back(std::move(*entry));
    if (all.size() == kMostBrowsed) break;
  }
  std::ranges::sort(all, [](const BrowsedPath& a, const BrowsedPath& b) {
    if (a.is_entered != b.is_entered) return b.is_entered;
    return profiler::is_naturally_less(a.name, b.name);
  });
  return all;
}

/// Puts the folder itself first if it has several runs: they open together.
void add_all_runs(std::vector<BrowsedPath>& content, const std::string& folder) {
  const auto runs = std::ranges::count_if(content, &BrowsedPath::is_run);
  if (runs < 2) return;
  content.insert(content.begin(), {.path = folder.empty() ? "." : folder,
                                   .name = "all runs in this folder",
                                   .what = fmt::format("{} runs", runs)});
}

}  // namespace

std::vector<BrowsedPath> browse(const std::string& typed, const std::vector<std::string>& recent) {
  const std::string folder = typed.substr(0, typed.rfind('/') + 1);
  const std::string part = in_lower_case(typed.substr(folder.size()));
  std::vector<BrowsedPath> found = content_of(folder);
  if (part.empty()) add_all_runs(found, folder);
  std::erase_if(found, [&](const BrowsedPath& one) {
    return in_lower_case(one.name).find(part) == std::string::npos;
  });
  if (!typed.empty()) return found;
  std::vector<BrowsedPath> before;
  std::error_code unreadable;
  for (const std::string& path : recent) {
    if (fs::exists(path, unreadable)) before.push_back({.path = path, .name = path, .what = ""});
  }
  found.insert(found.begin(), before.begin(), before.end());
  return found;
}

}  // namespace shardlens::viewer
