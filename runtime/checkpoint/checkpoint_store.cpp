#include "runtime/checkpoint/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <stdexcept>
#include <system_error>

#include "base/durable_files.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStep = "step-";
constexpr const char* kRead = ".read-";
constexpr const char* kLatest = "LATEST";

std::string name_of(int64_t step) { return fmt::format("{}{:08}", kStep, step); }

std::optional<int64_t> step_in(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStep.size(), end, step);
  const bool is_ours = error == std::errc() && stop == end && step >= 0 && name_of(step) == name;
  return is_ours ? std::optional(step) : std::nullopt;
}

/// Returns the name without the generation that Fence::suffix adds, if it ends with one.
std::string_view without_generation(std::string_view name) {
  const size_t suffix = name.rfind("-g");
  const bool is_number = suffix != std::string_view::npos && suffix + 2 < name.size() &&
                         name.find_first_not_of("0123456789", suffix + 2) == std::string_view::npos;
  return is_number ? name.substr(0, suffix) : name;
}

/// Returns what follows the prefix in the name of an unfinished folder, "step-00000938-g4" for
/// example; nothing for any other name.
std::optional<std::string> unfinished_name(std::string_view name) {
  for (const std::string_view prefix : {kTemporary, kRemoved, kRead}) {
    if (name.starts_with(prefix)) return std::string(name.substr(prefix.size()));
  }
  return std::nullopt;
}

/// True if the folder is one of our checkpoints, and holds no other files.
bool may_be_removed(const fs::path& folder) {
  std::set<std::string> own = {kManifest};
  try {
    for (const ManifestFile& file : read_manifest(folder).files) own.insert(file.name);
  } catch (const std::runtime_error&) {
    return false;
  }
  return std::all_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [&](const fs::directory_entry& entry) {
                       return own.contains(entry.path().filename().string());
                     });
}

/// Returns a checkpoint's score; a larger one is better.
double score_of(const StoredCheckpoint& checkpoint, planner::KeepRule by) {
  constexpr double kWorst = -std::numeric_limits<double>::infinity();
  if (by == planner::KeepRule::newest) return static_cast<double>(checkpoint.step);
  try {
    const CheckpointState state = parse_state(read_whole_file(checkpoint.path / "state.json"));
    if (by == planner::KeepRule::accuracy) return state.test_accuracy.value_or(kWorst);
    return state.train_loss ? -*state.train_loss : kWorst;
  } catch (const std::runtime_error&) {
    return kWorst;
  }
}

}  // namespace

std::optional<int64_t> step_of(const fs::path& folder) {
  return step_in(folder.filename().string());
}

bool remove_written(const fs::path& folder) {
  if (!fs::exists(folder)) return true;
  if (!may_be_removed(folder)) return false;
  fs::remove_all(folder);
  return true;
}

void remove_unfinished(const fs::path& parent,
                       const std::function<bool(std::string_view)>& is_ours) {
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, missing)) {
    const auto name = unfinished_name(entry.path().filename().string());
    if (!name || !is_ours(without_generation(*name))) continue;
    remove_aside(entry.path(), parent / (kRemoved + *name));
  }
}

std::vector<StoredCheckpoint> CheckpointStore::list() const {
  std::vector<StoredCheckpoint> all;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, missing)) {
    const std::optional<int64_t> step = step_of(entry.path());
    if (step && entry.is_directory()) all.push_back({entry.path(), *step});
  }
  std::ranges::sort(all, {}, &StoredCheckpoint::step);
  return all;
}

NewestCheckpoint CheckpointStore::newest_checkpoint(Look look) const {
  NewestCheckpoint newest;
  newest.is_verified = look == Look::every_byte;
  std::vector<StoredCheckpoint> all = list();
  for (auto checkpoint = all.rbegin(); checkpoint != all.rend(); ++checkpoint) {
    Problem fault = fault_of(checkpoint->path, look);
    if (!fault) {
      newest.found = *checkpoint;
      break;
    }
    newest.damaged.push_back({*checkpoint, std::move(*fault)});
  }
  return newest;
}

fs::path CheckpointStore::unfinished_folder(int64_t step) const {
  return folder_ / (kTemporary + name_of(step) + fence_.suffix());
}

fs::path CheckpointStore::being_read(int64_t step) const {
  return folder_ / (kRead + name_of(step) + fence_.suffix());
}

void CheckpointStore::publish(int64_t step) const {
  fence_.check();
  const fs::path path = folder_ / name_of(step);
  if (fs::exists(path)) set_aside({path, step});
  rename_durably(unfinished_folder(step), path);
  sync_folder(folder_.parent_path());  // the parent may have received this folder just now
  tell_latest(step);
}

void CheckpointStore::tell_latest(int64_t step) const {
  write_file(folder_ / kLatest, name_of(step) + "\n");
}

void CheckpointStore::prune(const planner::Checkpointing& wanted, int64_t latest) const {
  if (wanted.keep == 0) return;
  std::vector<std::pair<double, StoredCheckpoint>> others;
  for (StoredCheckpoint& checkpoint : list()) {
    if (checkpoint.step == latest || !may_be_removed(checkpoint.path)) continue;
    const double score = score_of(checkpoint, wanted.by);
    others.emplace_back(score, std::move(checkpoint));
  }
  // If scores are equal, the newer checkpoint wins.
  std::ranges::stable_sort(others, [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.step) > std::pair(b.first, b.second.step);
  });
  for (size_t i = static_cast<size_t>(wanted.keep - 1); i < others.size(); ++i) {
    remove(others[i].second);
  }
}

/// Renames the folder first, so that a half-removed checkpoint does not look like a damaged one.
void CheckpointStore::remove(const StoredCheckpoint& checkpoint) const {
  remove_aside(checkpoint.path, folder_ / (kRemoved + name_of(checkpoint.step)));
}

void CheckpointStore::take_over(const NewestCheckpoint& newest,
                                const planner::Checkpointing& wanted) const {
  clean_up();
  for (const DamagedCheckpoint& damaged : newest.damaged) set_aside(damaged.checkpoint);
  if (!newest.found) return;
  tell_latest(newest.found->step);
  if (newest.is_verified) prune(wanted, newest.found->step);
}

void CheckpointStore::clean_up() const {
  remove_unfinished(folder_, [](std::string_view name) { return step_in(name).has_value(); });
  std::error_code missing;
  fs::remove(folder_ / (std::string(kLatest) + ".tmp"), missing);
}

void CheckpointStore::set_aside(const StoredCheckpoint& checkpoint) const {
  const std::string name = "damaged-" + name_of(checkpoint.step);
  fs::path aside = folder_ / name;
  for (int i = 2; fs::exists(aside); ++i) aside = folder_ / fmt::format("{}-{}", name, i);
  rename_durably(checkpoint.path, aside);
}

void CheckpointStore::clear() const {
  clean_up();
  for (const StoredCheckpoint& checkpoint : list()) {
    if (may_be_removed(checkpoint.path)) remove(checkpoint);
  }
  std::error_code ignored;
  fs::remove(folder_ / kLatest, ignored);
  fs::remove(folder_, ignored);  // does nothing if files are left in it
}

}  // namespace shardlens::runtime
