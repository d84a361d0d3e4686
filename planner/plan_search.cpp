#include "planner/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include "base/check.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "planner/config/options.h"
#include "planner/parallel.h"
#include "planner/prepared_run.h"
#include "planner/time/time_report.h"

namespace shardlens::planner {

namespace {

// ---- candidates ---------------------------------------------------------------------------------

using Alteration = std::function<void(Config&)>;

/// The part of a configuration that the user has left open: which flags a search may change.
class Space {
 public:
  Space(const Config& base, const std::vector<std::string>& given) : base_(base), given_(given) {}

  template <class Value>
  bool is_open(Value Config::*field, std::string_view name) const {
    return base_.*field == Config{}.*field && std::ranges::find(given_, name) == given_.end();
  }

  template <class Value>
  std::vector<Alteration> values(Value Config::*field, std::string_view name,
                                 std::initializer_list<std::type_identity_t<Value>> all) const {
    if (!is_open(field, name)) return {[](Config&) {}};
    std::vector<Alteration> alterations;
    for (const Value& value : all) {
      alterations.emplace_back([field, value](Config& c) { c.*field = value; });
    }
    return alterations;
  }

  std::vector<Alteration> layouts() const;
  std::vector<Alteration> prefetches() const;
  std::vector<Alteration> parts() const;

 private:
  const Config& base_;
  const std::vector<std::string>& given_;
};

std::vector<Alteration> Space::layouts() const {
  const int64_t world = world_size_of(base_);
  if (!is_open(&Config::strategy, "strategy")) return {[](Config&) {}};
  if (world == 1) return {[](Config& c) { c.strategy = StrategyKind::single; }};
  std::vector<Alteration> layouts = {[](Config& c) { c.strategy = StrategyKind::ddp; },
                                     [](Config& c) { c.strategy = StrategyKind::fsdp; }};
  for (int64_t replicas = 2; replicas < world; replicas *= 2) {
    if (world % replicas != 0) continue;
    layouts.emplace_back([replicas](Config& c) {
      c.strategy = StrategyKind::hsdp;
      c.replicas = replicas;
    });
  }
  return layouts;
}

std::vector<Alteration> Space::prefetches() const {
  const bool are_open = is_open(&Config::forward_prefetch, "forward-prefetch") &&
                        is_open(&Config::backward_prefetch, "backward-prefetch");
  if (!are_open) return {[](Config&) {}};
  return {[](Config&) {}, [](Config& c) { c.forward_prefetch = c.backward_prefetch = 0; }};
}

/// Returns alterations that cut the batch into parts; a step still sees as many samples.
std::vector<Alteration> Space::parts() const {
  std::vector<Alteration> parts = {[](Config&) {}};
  if (!is_open(&Config::accumulate, "accumulate")) return parts;
  for (const int64_t count : {2, 4}) {
    if (base_.batch % count != 0) continue;
    parts.emplace_back([count](Config& c) {
      c.accumulate = count;
      c.batch /= count;
    });
  }
  return parts;
}

/// True if the configuration would be the same as another candidate, or would reduce in a narrower
/// dtype than it computes in.
bool is_redundant(const Config& config, const Config& base) {
  const bool shards = is_sharded(config.strategy);
  const auto is_changed = [&](auto field) { return config.*field != base.*field; };
  if (!shards && is_changed(&Config::forward_prefetch)) return true;
  if (!shards && is_changed(&Config::reshard_after_forward)) return true;
  if (!is_changed(&Config::reduce_dtype)) return false;
  return config.strategy == StrategyKind::single || config.param_dtype == DType::fp32;
}

// ---- judging a candidate ------------------------------------------------------------------------

/// Lists the flags in which a configuration differs from the given one.
std::string changed_flags(const Config& config, const Config& base) {
  std::string text;
  for (const Option& option : options()) {
    const std::string value = text_of(config, option);
    const bool is_ranks =
        option.name == "workers" || option.name == "world" || option.name == "solo-rank";
    if (is_ranks || value == text_of(base, option)) continue;
    text += fmt::format("{}--{} {}", text.empty() ? "" : " ", option.name, value);
  }
  return text.empty() ? "as given" : text;
}

Config launchable(Config config) {
  config.workers = world_size_of(config);
  config.world = 0;
  config.solo_rank = -1;
  return config;
}

std::string why_full(const PreparedRun& run, const Simulation& simulation) {
  const Timeline& timeline = simulation.timeline();
  // Search backwards: frees follow the failed request, since the run ended there.
  const auto event = std::find_if(
      timeline.events().rbegin(), timeline.events().rend(),
      [](const profiler::Event& one) { return one.kind == profiler::EventKind::out_of_memory; });
  check(event != timeline.events().rend(), "a device that is full unnoticed");
  const auto phase = std::find_if(event, timeline.events().rend(), [](const profiler::Event& one) {
    return one.kind == profiler::EventKind::phase;
  });
  const bool has_begun = phase != timeline.events().rend();
  const Schedule& schedule =
      run.schedule_of(has_begun ? static_cast<profiler::Phase>(phase->value) : profiler::Phase{});
  const std::string where =
      event->action < 0 ? "outside a pass" : action_words(schedule, event->action);
  return fmt::format("does not fit: no {} for {} {} ({})", bytes_text(event->value),
                     to_string(event->category), timeline.strings()[event->label], where);
}

/// Judges the candidates and finds the front.
///
/// [Note: the bound]
/// Candidates are judged from the fastest to the slowest. One that takes more memory than a faster
/// one cannot be on the front, however much more it takes, so its simulation ends as soon as it is
/// that large: most end in the first forward.
class Search {
 public:
  Search(const models::ModelSpec& spec, const PlanTarget& target, const PlanOptions& options,
         SearchResult& result)
      : spec_(spec),
        target_(target),
        options_(options),
        result_(result),
        order_(result.candidates.size()),
        taken_(result.candidates.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    for (auto& bytes : taken_) bytes = std::numeric_limits<int64_t>::max();
  }

  void run(const std::vector<Config>& configs) {
    for_all(configs.size(), [&](size_t i) { time(result_.candidates[i], configs[i]); });
    std::ranges::stable_sort(order_, {},
                             [&](size_t i) { return result_.candidates[i].step_seconds; });
    for_all(order_.size(), [&](size_t place) {
      Candidate& candidate = result_.candidates[order_[place]];
      if (!candidate.rejected) judge(candidate, configs[order_[place]], place);
    });
    find_front();
  }

 private:
  PreparedRun prepared(const Config& config) const {
    return prepare(spec_, config, target_, options_.outside);
  }

  void time(Candidate& candidate, const Config& config) const {
    try {
      const PreparedRun run = prepared(config);
      const StepCost cost = cost_of(run);
      candidate.step_time = time_of(run, cost);
      candidate.step_seconds = cost.seconds;
    } catch (const std::invalid_argument& error) {
      candidate.rejected = error.what();
    }
  }

  /// Returns the bytes that the budget and all faster candidates judged so far leave.
  int64_t bound_of(size_t place) const {
    int64_t bytes = result_.budget_bytes;
    for (size_t i = 0; i < place; ++i) bytes = std::min<int64_t>(bytes, taken_[i]);
    return bytes;
  }

  void judge(Candidate& candidate, const Config& config, size_t place) {
    const PreparedRun run = prepared(config);
    const int64_t left = bound_of(place) - run.outside.total_bytes();
    if (left <= 0) {
      candidate.rejected = "does not fit: the budget is less than what is outside the allocator";
      return;
    }
    const RunResult result = simulate(run, options_.allocator, left);
    candidate.device_bytes = device_bytes(run, result.simulation->peak());
    if (result.is_full) {
      candidate.rejected = why_full(run, *result.simulation);
    } else if (result.retries > 0) {
      candidate.rejected = fmt::format("fits only with retries: {}", result.retries);
    } else if (candidate.device_bytes > result_.budget_bytes) {
      candidate.rejected =
          fmt::format("does not fit: takes {}", bytes_text(candidate.device_bytes));
    } else {
      taken_[place] = candidate.device_bytes;
    }
  }

  /// Finds the front. A candidate that is slower and no smaller than one that fits gets that as its
  /// reason, even if its simulation ended at its bound: so reasons do not depend on which thread
  /// was faster.
  void find_front() {
    std::vector<size_t>& front = result_.front;
    const auto reject = [&](size_t i, size_t better) {
      result_.candidates[i].rejected =
          fmt::format("no faster and no smaller than: {}", result_.candidates[better].flags);
    };
    for (const size_t i : order_) {
      const Candidate& candidate = result_.candidates[i];
      if (candidate.step_seconds == 0) continue;  // cannot be run
      const bool is_smaller =
          front.empty() || candidate.device_bytes < result_.candidates[front.back()].device_bytes;
      if (candidate.rejected || !is_smaller) {
        if (!front.empty()) reject(i, front.back());
        continue;
      }
      const bool is_as_fast =
          !front.empty() && result_.candidates[front.back()].step_seconds == candidate.step_seconds;
      if (is_as_fast) {
        reject(front.back(), i);
        front.pop_back();
      }
      front.push_back(i);
    }
  }

  const models::ModelSpec& spec_;
  const PlanTarget& target_;
  const PlanOptions& options_;
  SearchResult& result_;
  std::vector<size_t> order_;                // of candidates, the fastest first
  std::vector<std::atomic<int64_t>> taken_;  // device bytes of those that fit, in this order
};

}  // namespace

std::vector<Config> candidates_of(const Config& config, const std::vector<std::string>& given) {
  const Space space(config, given);
  const std::vector<std::vector<Alteration>> dimensions = {
      space.layouts(),
      space.values(&Config::reshard_after_forward, "reshard-after-forward",
                   {{Reshard::automatic}, {Reshard::yes}, {Reshard::no}}),
      space.values(&Config::param_dtype, "param-dtype", {DType::fp32, DType::bf16}),
      space.values(&Config::reduce_dtype, "reduce-dtype", {DType::fp32, DType::bf16}),
      space.values(&Config::offload, "offload",
                   {Offload::none, Offload::params, Offload::optimizer, Offload::all}),
      space.values(&Config::recompute, "recompute", {{.every = 0}, {.every = 2}, {.every = 1}}),
      space.prefetches(),
      space.parts()};
  std::vector<Config> candidates = {config};
  for (const std::vector<Alteration>& changes : dimensions) {
    std::vector<Config> more;
    for (const Config& candidate : candidates) {
      for (const Alteration& change : changes) change(more.emplace_back(candidate));
    }
    candidates = std::move(more);
  }
  std::erase_if(candidates,
                [&](const Config& candidate) { return is_redundant(candidate, config); });
  return candidates;
}

SearchResult search_strategies(const Config& config, const std::vector<std::string>& given,
                               const PlanOptions& options, std::optional<int64_t> budget_bytes) {
  PlanTarget target = target_of(config, options);
  const models::ModelSpec spec = spec_of(config);
  target.data = find_data(spec, config);
  SearchResult result;
  result.gpu = target.gpu;
  result.budget_bytes = budget_bytes.value_or(*target.capacity_bytes);
  const std::vector<Config> configs = candidates_of(config, given);
  result.candidates.resize(configs.size());
  for (size_t i = 0; i < configs.size(); ++i) {
    result.candidates[i].config = launchable(configs[i]);
    result.candidates[i].flags = changed_flags(configs[i], config);
  }
  Search(spec, target, options, result).run(configs);
  return result;
}

std::string search_json(const SearchResult& result) {
  using Json = nlohmann::ordered_json;
  Json front = Json::array(), rejected = Json::array();
  for (size_t i = 0; i < result.front.size(); ++i) {
    const Candidate& candidate = result.front_candidate(i);
    front.push_back(
        {{"flags", candidate.flags},
         {"device_bytes", candidate.device_bytes},
         {"step_time_basis", planned_basis(result.gpu != nullptr)},
         {"step_time",
          candidate.step_time ? step_time_json(*candidate.step_time, *result.gpu) : Json(nullptr)},
         {"relative_step_time", candidate.step_seconds / result.front_candidate(0).step_seconds},
         {"config", Json::parse(to_json(candidate.config))}});
  }
  for (const Candidate& candidate : result.candidates) {
    if (!candidate.rejected) continue;
    rejected.push_back({{"flags", candidate.flags}, {"reason", *candidate.rejected}});
  }
  const Json json = {{"schema", "shardlens.search/1"},
                     {"budget_bytes", result.budget_bytes},
                     {"candidates", result.candidates.size()},
                     {"front", std::move(front)},
                     {"rejected", std::move(rejected)}};
  return json_text(json);
}

std::string search_text(const SearchResult& result) {
  std::string text =
      fmt::format("{} of {} strategies are worth considering within {}\n\n", result.front.size(),
                  result.candidates.size(), bytes_text(result.budget_bytes));
  if (!result.front.empty())
    text += fmt::format("  {:>12}  {:>16}  flags\n", "memory", "step time");
  for (size_t i = 0; i < result.front.size(); ++i) {
    const Candidate& candidate = result.front_candidate(i);
    const double ratio = candidate.step_seconds / result.front_candidate(0).step_seconds;
    text += fmt::format(
        "  {:>12}  {:>16}  {}\n", bytes_text(candidate.device_bytes),
        candidate.step_time ? time_with_band(*candidate.step_time) : fmt::format("{:.2f}x", ratio),
        candidate.flags);
  }
  if (!result.front.empty()) text += planned_basis_text(result.gpu != nullptr);
  text += "\nthe others (--json has each)\n";
  std::map<std::string, int> kinds;
  for (const Candidate& candidate : result.candidates) {
    if (!candidate.rejected) continue;
    ++kinds[candidate.rejected->substr(0, candidate.rejected->find(':'))];
  }
  for (const auto& [kind, count] : kinds) text += fmt::format("  {:>6}  {}\n", count, kind);
  return text;
}

}  // namespace shardlens::planner
