#include "profiler/record/rank_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "profiler/record/recorded_run.h"

namespace shardlens::profiler {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t reserved_bytes(const JudgedRank& rank) {
  return rank.report.reserved_peak_bytes().value_or(0);
}

RankUsage taken_by(const JudgedRank& rank) {
  return {.allocated_bytes = rank.report.peak_bytes(),
          .reserved_bytes = reserved_bytes(rank),
          .outside_bytes = rank.outside.bytes};
}

/// Orders ranks by what they take of the GPU.
bool takes_more(const JudgedRank& one, const JudgedRank& other) {
  const auto key = [](const JudgedRank& rank) {
    const RankUsage taken = taken_by(rank);
    return std::tuple(rank.verdict.is_out_of_memory, taken.device_bytes(), taken.allocated_bytes);
  };
  return key(one) > key(other);
}

class Session {
 public:
  Session(const RecordOptions& options, const PythonProgram& program, const RecordFiles& files,
          const ReplayRun& replay)
      : options_(options), replay_(replay), commands_(options, program, files) {}

  RankRuns run() {
    const bool is_listed = options_.ranks->kind == WantedRanks::Kind::listed;
    const int first = is_listed ? options_.ranks->listed.front() : 0;
    run_each({first});
    if (runs_.ranks.empty() || runs_.was_interrupted) return finish();
    runs_.world_size = runs_.ranks.front().report.header.world_size;
    switch (options_.ranks->kind) {
      case WantedRanks::Kind::roles:
        run_roles();
        break;
      case WantedRanks::Kind::all:
        run_others(first, runs_.world_size);
        break;
      case WantedRanks::Kind::listed:
        run_each({options_.ranks->listed.begin() + 1, options_.ranks->listed.end()});
        break;
    }
    return finish();
  }

 private:
  void run_others(int first, int world_size) {
    std::vector<int> ranks(static_cast<size_t>(world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::erase(ranks, first);
    run_each(ranks);
  }

  void run_roles() {
    RoleSearch search(runs_.world_size,
                      axes_of(runs_.world_size, runs_.ranks.front().facts.groups));
    const auto tell_all = [&] {
      for (const JudgedRank& rank : runs_.ranks) {
        search.tell(rank.report.header.rank, taken_by(rank));
      }
    };
    tell_all();
    std::vector<int> ranks = search.next();
    while (!ranks.empty() && !runs_.was_interrupted) {
      run_each(ranks);
      for (const int rank : ranks) search.tell(rank, {});  // it may have left no recording
      tell_all();
      ranks = search.next();
    }
    runs_.roles = search.roles();
    runs_.has_all_roles = search.is_complete();
  }

  void run_each(const std::vector<int>& ranks) {
    if (ranks.empty()) return;
    wanted_ += ranks.size();
    const auto start = Clock::now();
    const size_t before = runs_.exit_codes.size();
    const bool went_on = commands_.run_as(ranks, jobs_, [&](int rank, const RecordedRun& run) {
      keep(rank, run);
      const size_t done = runs_.exit_codes.size();
      say_progress(rank, seconds_since(start) / static_cast<double>(done - before));
      jobs_ = jobs_for(run.host_bytes, options_.traces_work);
    });
    runs_.was_interrupted = runs_.was_interrupted || !went_on;
  }

  void keep(int rank, const RecordedRun& run) {
    std::vector<JudgedRank> judged = judge(options_, run, replay_);
    std::vector<RecordVerdict> verdicts;
    for (JudgedRank& one : judged) {
      verdicts.push_back(one.verdict);
      runs_.ranks.push_back(std::move(one));
    }
    const bool is_out = run.accounts.first_entry("out_of_memory") != nullptr;
    runs_.exit_codes.push_back(exit_code_of(run.end, verdicts, is_out, options_.may_grow));
    last_ = verdicts.empty() ? "nothing was recorded: " +
                                   why_nothing(run.accounts, run.end, options_.command, false)
                             : runs_.ranks.back().verdict.line;
    if (verdicts.empty()) last_ += fmt::format(" (see {}/logs/rank{}.log)", options_.out, rank);
  }

  void say_progress(int rank, double seconds_each) const {
    const size_t done = runs_.exit_codes.size(), left = wanted_ - done;
    const std::string time =
        left == 0 ? "" : fmt::format(", about {:.0f} s left", std::ceil(seconds_each * left));
    fmt::print(stderr, "shardlens record: rank {}: {}; {} of {} ranks done{}\n", rank, last_, done,
               wanted_, time);
  }

  RankRuns finish() {
    runs_.left_out = static_cast<int>(wanted_ - runs_.exit_codes.size());
    std::ranges::sort(runs_.ranks, {},
                      [](const JudgedRank& rank) { return rank.report.header.rank; });
    return std::move(runs_);
  }

  const RecordOptions& options_;
  const ReplayRun& replay_;
  RecordedRuns commands_;
  RankRuns runs_;
  size_t wanted_ = 0;
  int jobs_ = 1;
  std::string last_;
};

const Role* role_of(const RankRuns& runs, int rank) {
  const auto role = std::ranges::find(runs.roles, rank, &Role::rank);
  return role == runs.roles.end() ? nullptr : &*role;
}

}  // namespace

int RankRuns::exit_code() const {
  const auto has = [&](int code) {
    return std::ranges::find(exit_codes, code) != exit_codes.end();
  };
  if (has(kDoesNotFit)) return kDoesNotFit;
  for (const int code : exit_codes) {
    if (code != 0 && code != kNotRecorded && code != kFitsWithRetries) return code;
  }
  for (const int code : {kNotRecorded, kFitsWithRetries}) {
    if (has(code)) return code;
  }
  return left_out > 0 ? kNotRecorded : 0;
}

const JudgedRank* RankRuns::fullest() const {
  const auto found = std::ranges::min_element(ranks, takes_more);
  return found == ranks.end() ? nullptr : &*found;
}

RankRuns run_ranks(const RecordOptions& options, const PythonProgram& program,
                   const RecordFiles& files, const ReplayRun& replay) {
  return Session(options, program, files, replay).run();
}

std::string ranks_text(const RankRuns& runs) {
  std::vector<const JudgedRank*> ranks;
  for (const JudgedRank& rank : runs.ranks) ranks.push_back(&rank);
  std::ranges::stable_sort(ranks, [](auto* one, auto* other) { return takes_more(*one, *other); });
  std::string text =
      fmt::format("{} of {} ranks were run, largest first\n", ranks.size(), runs.world_size);
  for (const JudgedRank* one : ranks) {
    const int rank = one->report.header.rank;
    const Role* const role = role_of(runs, rank);
    const bool stands_for_others = role != nullptr && role->ranks.size() > 1;
    text += fmt::format("  rank {:<6} {:>12} allocated {:>12} reserved{}\n", rank,
                        bytes_text(one->report.peak_bytes()), bytes_text(reserved_bytes(*one)),
                        stands_for_others ? ", stands for " + ranges_text(role->ranks) : "");
  }
  if (runs.left_out > 0) {
    text +=
        fmt::format("  in doubt: {} more were wanted but not run: the recording was interrupted\n",
                    runs.left_out);
  }
  if (runs.roles.empty() || ranks.size() == static_cast<size_t>(runs.world_size)) return text;
  text +=
      "  in doubt: a rank that was not run is assumed to match the one that stands for it, by the\n"
      "    program's process groups: in each, ranks between two that match are assumed to match\n";
  if (!runs.has_all_roles) {
    text += fmt::format("  in doubt: more than {} ranks may differ: not all of these were run\n",
                        kMostRoles);
  }
  return text;
}

}  // namespace shardlens::profiler
