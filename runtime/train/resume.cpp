#include "runtime/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "base/durable_files.h"
#include "base/units.h"
#include "planner/config/options.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/train/checkpointer.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_to_resume(const fs::path& checkpoint, const std::string& why) {
  throw std::invalid_argument(fmt::format("{}: {}; give another --name, or --fresh to start over",
                                          checkpoint.string(), why));
}

/// Lists flags whose change from one attempt of a run to the next is reported to the user.
constexpr std::array kTold = {"strategy", "replicas", "param-dtype", "reduce-dtype", "offload",
                              "device",   "workers",  "batch",       "accumulate",   "loss-scale"};

std::vector<std::string> changes(const planner::Config& before, const planner::Config& now) {
  std::vector<std::string> changed;
  for (const planner::Option& option : planner::options()) {
    if (std::ranges::find(kTold, option.name) == kTold.end()) continue;
    const std::string was = text_of(before, option), is = text_of(now, option);
    if (was != is) changed.push_back(fmt::format("--{} {} (was {})", option.name, is, was));
  }
  return changed;
}

void expect_same_run(const Job& job, const CheckpointReader& reader) {
  if (!reader.state()) refuse_to_resume(reader.folder(), "a checkpoint without a state");
  const CheckpointState& state = *reader.state();
  if (!planner::is_identity_of(job.config, state.configuration)) {
    refuse_to_resume(reader.folder(), "a checkpoint of another configuration");
  }
  if (state.epoch != state.step / job.steps_per_epoch || state.step > job.steps) {
    refuse_to_resume(
        reader.folder(),
        fmt::format("step {} is in epoch {}, but not with {} steps each: the data have changed",
                    state.step, state.epoch + 1, job.steps_per_epoch));
  }
}

void expect_fits(const Job& job, const fs::path& checkpoint) {
  const CheckpointReader reader(checkpoint);
  expect_same_run(job, reader);
  reader.expect(layout_of(job));
}

/// Returns the newest checkpoint, checking only sizes. Returns nothing if the files have to be read
/// to find out what is wrong.
std::optional<NewestCheckpoint> newest_at_a_glance(const Job& job, const CheckpointStore& store) {
  const bool all_ranks_read = static_cast<int>(job.ranks.size()) == job.strategy.world_size;
  if (!all_ranks_read || !job.checkpointing.wanted) return std::nullopt;
  NewestCheckpoint newest = store.newest_checkpoint(Look::sizes);
  if (!newest.found || !newest.damaged.empty()) return std::nullopt;
  try {
    expect_fits(job, newest.found->path);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return newest;
}

NewestCheckpoint choose(const Job& job, const CheckpointStore& store, VerificationTime verified) {
  if (verified == VerificationTime::while_read) {
    if (auto newest = newest_at_a_glance(job, store)) return *newest;
  }
  return store.newest_checkpoint();
}

}  // namespace

void expect_room_for_checkpoints(const Job& job) {
  if (!job.checkpointing.wanted) return;
  std::error_code error;
  const fs::space_info space = fs::space(nearest_folder(job.config.storage), error);
  if (error) return;  // storage that cannot be queried will report its own error
  const int64_t needed = layout_of(job).bytes() + model_layout(job.spec).bytes();
  const auto free = static_cast<int64_t>(space.available);
  if (needed <= free) return;
  throw std::invalid_argument(fmt::format(
      "--storage {}: a checkpoint and the model take {}, but {} are free; free some space, or "
      "give --checkpoint-every none",
      job.config.storage, bytes_text(needed), bytes_text(free)));
}

Resumption resume(Job& job, const RunDirectory& directory, VerificationTime verified) {
  const CheckpointStore store(directory.path() / kCheckpointsFolder);
  const NewestCheckpoint newest = choose(job, store, verified);
  Resumption resumption;
  std::vector<std::string>& lines = resumption.lines;
  for (const auto& [checkpoint, fault] : newest.damaged) {
    resumption.damaged.push_back(
        fmt::format("{} is damaged and passed over: {}", checkpoint.path.string(), fault));
    lines.push_back("warning: " + resumption.damaged.back());
  }
  job.resume.reset();
  job.attempt.verifies = !newest.is_verified;
  if (newest.found && job.checkpointing.wanted) {
    if (newest.is_verified) expect_fits(job, newest.found->path);  // else choose() has done this
    resumption.step = newest.found->step;
    job.resume = newest.found->path;
    lines.push_back(fmt::format("resumes from step {} of {}: {}", resumption.step, job.steps,
                                newest.found->path.string()));
  } else if (newest.found) {
    refuse_to_resume(newest.found->path, "--checkpoint-every none does not resume from it");
  } else if (!newest.damaged.empty()) {
    refuse_to_resume(store.folder(),
                     fmt::format("none of {} checkpoints is whole; {}: {}", newest.damaged.size(),
                                 newest.damaged.front().checkpoint.path.filename().string(),
                                 newest.damaged.front().fault));
  } else {
    lines.push_back("the run has no checkpoint yet: it starts from the beginning");
  }
  const std::vector<std::string> changed = changes(directory.config(), job.config);
  if (!changed.empty()) lines.push_back(fmt::format("with {}", fmt::join(changed, ", ")));
  store.take_over(newest, job.checkpointing);
  directory.go_on(job.config, resumption.step);
  return resumption;
}

}  // namespace shardlens::runtime
