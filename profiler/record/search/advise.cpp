#include "profiler/record/search/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace shardlens::profiler {

namespace {

using Levers = std::vector<Lever>;

/// The memory of a simulated GPU on which the peak of a program that does not fit is seen.
constexpr int64_t kRoom = int64_t{1} << 40;

/// The steps that must be saved by ending sets early: the best set is then run once more.
constexpr int64_t kLeastSaved = 4;

/// Sets are run for more steps where their time is predicted: from steps that are alike.
constexpr int64_t kStepsToTime = 3;

/// The faster one of two settings of a program was always named if their published times differ by
/// this part or more (docs/evidence.md); smaller differences were not compared.
constexpr double kLeastFaster = 0.05;

/// A lever that reserves no less has helped if it saves this much: the allocator's smallest
/// segment.
constexpr int64_t kLeastHelp = int64_t{2} << 20;

/// Most pairs that are run to be sure of the best set.
constexpr size_t kMostPairs = 12;

/// Returns what a lever of a class costs: seven of one class cost less than one of the next.
constexpr int cost_of_class(LeverCost cost) { return 2 << (3 * static_cast<int>(cost)); }

/// A lever that acts on a part of the model costs half of one that acts on all.
int cost_of_one(const Lever& lever) {
  const bool is_other_optimizer = lever.value == "8bit" || lever.value == "adafactor";
  const LeverCost cost = is_other_optimizer ? LeverCost::numbers : lever_info(lever.name).cost;
  const bool is_partial = lever.value == "selective" || lever.value.starts_with("every:");
  const int whole = cost_of_class(cost);
  return is_partial ? whole / 2 : whole;
}

/// Orders sets: what costs less first, then fewer levers.
auto order_of(const Levers& levers) { return std::tuple(cost_of(levers), levers.size()); }

bool agree(const Levers& levers, const Lever& more) {
  return std::ranges::none_of(levers, [&](const Lever& one) { return contradict(one, more); });
}

/// Returns what puts the fastest first if that is asked for; a program without a time is last.
double time_rank(const Findings& advice, const VariantResult& result) {
  if (!advice.by_time) return 0;
  return advice.comparable_seconds(result).value_or(std::numeric_limits<double>::infinity());
}

class Search {
 public:
  Search(const AdviseOptions& options, const RunVariants& run, const std::function<int()>& jobs)
      : options_(options), run_(run), jobs_(jobs), record_(options.record) {
    advice_.fit_bytes = options.fit_bytes;
    advice_.most_levers = options.most_levers;
    advice_.by_time = options.by_time;
  }

  Findings run() {
    run_base();
    if (advice_.base.outcome != VariantOutcome::measured) return finish();
    choose_singles();
    const bool has_goal = !advice_.base.fits(options_.fit_bytes);
    const bool stops_early = has_goal && options_.wanted.empty() && !advice_.by_time;
    while (!advice_.was_interrupted) {
      stops_early ? run_cheap_singles() : run_all(std::exchange(singles_, {}));
      if (has_goal) run_sets();
      if (advice_.by_time) run_faster();
      if (advice_.was_interrupted || confirm()) break;
    }
    if (advice_.best() != nullptr) name_singles_left();
    return finish();
  }

 private:
  /// Runs the program as it is; if it runs out of memory again with room for all, to see its peak.
  void run_base() {
    record_.device.capacity_bytes = options_.fit_bytes;
    record_.looks = true;
    run_as_it_is();
    if (advice_.base.outcome == VariantOutcome::out_of_memory && !advice_.was_interrupted) {
      is_roomy_ = true;
      record_.device.capacity_bytes = kRoom;
      run_as_it_is();
    }
    record_.looks = false;
    auto settled = advice_.base.settled_steps;
    if (settled && record_.traces_work) *settled += kStepsToTime;
    const bool saves_time = settled && *settled + kLeastSaved <= advice_.base.steps;
    if (saves_time && !record_.steps) advice_.steps_of_sets = settled;
  }

  std::vector<VariantResult> run_variants(const std::vector<RecordOptions>& all,
                                          const std::vector<std::string>& names) {
    std::vector<VariantResult> results = run_(all, names);
    advice_.was_interrupted = advice_.was_interrupted || results.size() < all.size();
    return results;
  }

  void run_as_it_is() {
    auto results = run_variants({in_folder(record_, "as_it_is")}, {"as it is"});
    if (!results.empty()) advice_.base = std::move(results.front());
  }

  /// Finds the levers to run by themselves.
  void choose_singles() {
    for (const Lever& lever : options_.wanted.empty() ? levers_to_try() : options_.wanted) {
      const Problem why = why_not(lever, advice_.base.accounts);
      if (why)
        advice_.not_applicable.push_back({.lever = lever, .why = *why});
      else if (agree(record_.levers, lever))
        singles_.push_back({lever});
    }
  }

  void name_singles_left() {
    for (const Levers& single : singles_) {
      advice_.not_applicable.push_back(
          {.lever = single.front(),
           .why =
               fmt::format("what fits costs no more; --levers {} runs it", levers_text(single))});
    }
  }

  /// Runs levers by themselves, those of the least cost first, until something fits that costs no
  /// more than the rest; the cheap ones together, too.
  void run_cheap_singles() {
    std::ranges::stable_sort(singles_, {}, order_of);
    while (!singles_.empty() && !advice_.was_interrupted) {
      const int cost = cost_of(singles_.front());
      if (best_cost() <= cost) return;
      const auto rest = std::ranges::find_if(
          singles_, [&](const Levers& lever) { return cost_of(lever) > cost; });
      run_all({singles_.begin(), rest});
      singles_.erase(singles_.begin(), rest);
      run_cheapest_together(levers_that_helped());
    }
  }

  /// Runs sets of levers that helped, the cheapest first, until one fits. A set is left out if it
  /// does not fit with more levers either.
  void run_sets() {
    const Levers helped = levers_that_helped();
    run_cheapest_together(helped);
    std::vector<Levers> sets;
    collect_sets(helped, 0, {}, sets);
    std::erase_if(sets, [&](const Levers& set) { return is_known(set); });
    std::ranges::stable_sort(sets, {}, order_of);
    const auto ruled_out =
        std::ranges::stable_partition(sets, [&](const Levers& set) { return !is_hopeless(set); });
    const std::vector<Levers> hopeless(ruled_out.begin(), ruled_out.end());
    sets.erase(ruled_out.begin(), ruled_out.end());
    run_until_one_fits(sets);
    if (advice_.best() != nullptr) run_pairs_of(hopeless);
  }

  /// Runs pairs that a larger set rules out, if they are few: near the limit, a program may take
  /// less with fewer levers.
  void run_pairs_of(std::vector<Levers> hopeless) {
    std::erase_if(hopeless, [&](const Levers& set) {
      return set.size() > 2 || is_known(set) || cost_of(set) >= best_cost();
    });
    if (hopeless.size() <= kMostPairs) run_until_one_fits(hopeless);
  }

  /// Runs all levers of the least cost together, then those of the next cost with them, until these
  /// fit.
  void run_cheapest_together(const Levers& helped) {
    std::set<int> costs;
    for (const Lever& lever : helped) costs.insert(cost_of({lever}));
    for (const int most : costs) {
      if (advice_.was_interrupted || best_cost() <= most) return;
      Levers cheap = helped;
      std::erase_if(cheap, [&](const Lever& lever) { return cost_of({lever}) > most; });
      const Levers together = all_together(cheap);
      if (together.size() > 1 && !is_known(together)) run_all({together});
    }
  }

  /// Adds levers to the best set that make the program faster by themselves, one at a time, as long
  /// as the best becomes faster.
  void run_faster() {
    const Levers faster = levers_that_are_faster();
    const VariantResult* best = advice_.best();
    while (best != nullptr && !advice_.was_interrupted) {
      const Levers before = added_levers(*best);
      std::vector<Levers> sets;
      for (const Lever& lever : faster) {
        const Levers more = with_lever(before, lever);
        if (more.size() <= options_.most_levers && !is_known(more)) sets.push_back(more);
      }
      if (sets.empty()) return;
      run_all(sets);
      best = advice_.best();
      if (added_levers(*best) == before) return;
    }
  }

  Levers levers_that_are_faster() const {
    Levers faster;
    const auto before = advice_.comparable_seconds(advice_.base);
    for (const VariantResult& result : advice_.tried) {
      const Levers added = added_levers(result);
      const auto after = advice_.comparable_seconds(result);
      const bool is_faster = before && after && *after < (1 - kLeastFaster) * *before;
      if (added.size() == 1 && is_faster) faster.push_back(added.front());
    }
    return faster;
  }

  /// Returns a set with one more lever, in the order in which single ones were tried; the set
  /// itself if it contradicts the lever or has it.
  Levers with_lever(const Levers& set, const Lever& lever) const {
    const bool has_it = std::ranges::find(set, lever) != set.end();
    if (has_it || !agree(set, lever)) return set;
    Levers more = set;
    more.push_back(lever);
    std::ranges::stable_sort(more, {}, [&](const Lever& one) { return find_result({one}); });
    return more;
  }

  /// True if a set that was run does not fit, and has each of these levers, or one instead that
  /// takes less.
  bool is_hopeless(const Levers& set) const {
    return std::ranges::any_of(advice_.tried, [&](const VariantResult& result) {
      if (result.outcome == VariantOutcome::failed || result.fits(options_.fit_bytes)) return false;
      const Levers more = added_levers(result);
      return std::ranges::all_of(set, [&](const Lever& lever) { return has_as_good(more, lever); });
    });
  }

  bool has_as_good(const Levers& levers, const Lever& wanted) const {
    const VariantResult* const alone = find_result({wanted});
    return std::ranges::any_of(levers, [&](const Lever& lever) {
      if (lever == wanted) return true;
      const VariantResult* const other = find_result({lever});
      return contradict(lever, wanted) && other != nullptr && alone != nullptr &&
             other->outcome == VariantOutcome::measured && excess_of(*other) <= excess_of(*alone);
    });
  }

  void run_until_one_fits(const std::vector<Levers>& sets) {
    size_t next = 0;
    const auto is_cheaper = [&] { return cost_of(sets[next]) < best_cost(); };
    while (next < sets.size() && is_cheaper() && !advice_.was_interrupted) {
      std::vector<Levers> batch;
      while (next < sets.size() && is_cheaper() && batch.size() < size_t(jobs_())) {
        batch.push_back(sets[next++]);
      }
      run_all(batch);
    }
    const auto is_left = [&](const Levers& set) {
      return cost_of(set) < best_cost() && !is_known(set);
    };
    advice_.left_out += static_cast<size_t>(
        std::ranges::count_if(sets.begin() + static_cast<ptrdiff_t>(next), sets.end(), is_left));
    advice_.is_complete = advice_.left_out == 0;
  }

  void collect_sets(const Levers& helped, size_t from, const Levers& set,
                    std::vector<Levers>& sets) const {
    if (set.size() >= 2) sets.push_back(set);
    if (set.size() == options_.most_levers) return;
    for (size_t i = from; i < helped.size(); ++i) {
      if (!agree(set, helped[i])) continue;
      Levers more = set;
      more.push_back(helped[i]);
      collect_sets(helped, i + 1, more, sets);
    }
  }

  /// Returns by how much a program does not fit; less than 0 if it fits.
  int64_t excess_of(const VariantResult& result) const {
    return result.device_bytes() - result.limit_bytes(options_.fit_bytes);
  }

  Levers levers_that_helped() const {
    Levers helped;
    for (const VariantResult& result : advice_.tried) {
      const Levers added = added_levers(result);
      const bool has_helped =
          result.outcome == VariantOutcome::measured &&
          (result.reserved_bytes < advice_.base.reserved_bytes ||
           result.allocated_bytes + kLeastHelp <= advice_.base.allocated_bytes ||
           excess_of(result) < excess_of(advice_.base));
      if (added.size() == 1 && has_helped) helped.push_back(added.front());
    }
    return helped;
  }

  /// Returns one set of all that helped; of those that contradict each other what helped most.
  Levers all_together(const Levers& helped) const {
    Levers best_first = helped;
    std::ranges::stable_sort(best_first, {},
                             [&](const Lever& lever) { return excess_of(*find_result({lever})); });
    Levers chosen;
    for (const Lever& lever : best_first) {
      if (agree(chosen, lever)) chosen.push_back(lever);
    }
    Levers together = helped;
    std::erase_if(together, [&](const Lever& lever) {
      return std::ranges::find(chosen, lever) == chosen.end();
    });
    return together;
  }

  /// Runs the best set again, as a process of its own, on the GPU that it is to fit: a program may
  /// ask how large the GPU is. Returns false if it does not fit there: another set may.
  bool confirm() {
    const VariantResult* const best = advice_.advised();
    if (best == nullptr) return true;
    RecordOptions options = best->options;
    options.steps = record_.steps;
    if (is_roomy_) options.device.capacity_bytes = best->limit_bytes(options_.fit_bytes);
    const bool is_final = options.steps == best->options.steps &&
                          options.device.capacity_bytes == best->options.device.capacity_bytes;
    if (is_final && !best->was_forked) return true;
    options.is_alone = true;
    auto results = run_variants({options}, {levers_text(options.levers) + ", confirmed"});
    if (results.empty()) return true;
    const bool still_fits = results.front().fits(options_.fit_bytes);
    *std::ranges::find(advice_.tried, options.out, [](const VariantResult& result) {
      return result.options.out;
    }) = std::move(results.front());
    return still_fits;
  }

  void run_all(const std::vector<Levers>& sets) {
    std::vector<RecordOptions> all;
    std::vector<std::string> names;
    for (const Levers& set : sets) {
      names.push_back(levers_text(set));
      RecordOptions options = in_folder(record_, levers_text(set));
      options.levers.insert(options.levers.end(), set.begin(), set.end());
      pull_machine_levers(options);
      if (is_roomy_) options.device.capacity_bytes = kRoom;
      if (advice_.steps_of_sets) options.steps = advice_.steps_of_sets;
      all.push_back(options);
    }
    std::vector<VariantResult> results = run_variants(all, names);
    advice_.left_out += all.size() - results.size();
    run_unsettled_again(results);
    run_tight_again(results);
    for (VariantResult& result : results) {
      if (result.outcome == VariantOutcome::idle && added_levers(result).size() == 1) {
        advice_.not_applicable.push_back(
            {.lever = added_levers(result).front(), .why = result.why});
        continue;
      }
      advice_.tried.push_back(std::move(result));
    }
  }

  /// Runs variants to the end whose steps are not alike after the few that they were given.
  void run_unsettled_again(std::vector<VariantResult>& results) {
    if (!advice_.steps_of_sets) return;
    for (VariantResult& result : results) {
      const bool is_measured = result.outcome == VariantOutcome::measured;
      const bool is_unclear = is_measured ? !result.settled_steps.has_value()
                                          : result.outcome == VariantOutcome::failed;
      if (!is_unclear || advice_.was_interrupted) continue;
      RecordOptions options = result.options;
      options.steps = record_.steps;
      auto whole = run_variants({options}, {levers_text(added_levers(result)) + ", all steps"});
      if (!whole.empty()) result = std::move(whole.front());
    }
  }

  /// Runs sets on the GPU that they are to fit if all tensors fit there: with retries, the
  /// allocator may do with less than it reserves where there is room.
  void run_tight_again(std::vector<VariantResult>& results) {
    if (!is_roomy_ || advice_.was_interrupted) return;
    std::vector<RecordOptions> all;
    std::vector<std::string> names;
    std::vector<VariantResult*> tight;
    for (VariantResult& result : results) {
      const int64_t limit = result.limit_bytes(options_.fit_bytes);
      const bool may_fit = result.outcome == VariantOutcome::measured &&
                           !result.fits(options_.fit_bytes) &&
                           result.allocated_bytes + result.outside_bytes <= limit;
      if (!may_fit) continue;
      const std::string set = levers_text(added_levers(result));
      RecordOptions options = result.options;
      options.out = in_folder(record_, set + "-tight").out;
      options.log = in_folder(record_, set + "-tight").log;
      options.device.capacity_bytes = limit;
      all.push_back(options);
      names.push_back(set + ", with as much memory as it is to fit");
      tight.push_back(&result);
    }
    std::vector<VariantResult> again = run_variants(all, names);
    if (again.size() < all.size()) return;
    for (size_t i = 0; i < again.size(); ++i) {
      if (again[i].fits(options_.fit_bytes)) *tight[i] = std::move(again[i]);
    }
  }

  /// Returns the levers of a result beside those of --with.
  Levers added_levers(const VariantResult& result) const {
    return {result.options.levers.begin() + static_cast<ptrdiff_t>(record_.levers.size()),
            result.options.levers.end()};
  }

  const VariantResult* find_result(const Levers& set) const {
    const auto is_it = [&](const VariantResult& result) { return added_levers(result) == set; };
    const auto found = std::ranges::find_if(advice_.tried, is_it);
    return found == advice_.tried.end() ? nullptr : &*found;
  }

  bool is_known(const Levers& set) const { return find_result(set) != nullptr; }

  static constexpr int kNone = 1 << 30;

  int best_cost() const {
    const int given = cost_of(record_.levers);
    int cost = kNone;
    for (const VariantResult& result : advice_.tried) {
      if (result.fits(options_.fit_bytes)) cost = std::min(cost, cost_of(result) - given);
    }
    return cost;
  }

  /// Sorts what was tried: what fits first, the best of these first; then what takes least.
  Findings finish() {
    std::ranges::stable_sort(advice_.tried, {}, [&](const VariantResult& result) {
      const bool fits = result.fits(options_.fit_bytes);
      const bool is_measured = result.outcome == VariantOutcome::measured;
      const Levers added = added_levers(result);
      return std::tuple(!is_measured, !fits, fits ? time_rank(advice_, result) : 0,
                        fits ? cost_of(result) : 0, result.device_bytes(), added.size());
    });
    return std::move(advice_);
  }

  const AdviseOptions& options_;
  const RunVariants& run_;
  const std::function<int()>& jobs_;
  RecordOptions record_;
  Findings advice_;
  std::vector<Levers> singles_;  // that were not run
  bool is_roomy_ = false;
};

}  // namespace

int cost_of(const Levers& levers) {
  int cost = 0;
  for (const Lever& lever : levers) cost += cost_of_one(lever);
  return cost;
}

int cost_of(const VariantResult& result) {
  return cost_of(result.options.levers) +
         (result.has_retries ? cost_of_class(LeverCost::little) : 0);
}

const VariantResult* Findings::best() const {
  const auto rank_of = [this](const VariantResult& result) {
    return std::tuple(time_rank(*this, result), cost_of(result), result.device_bytes());
  };
  const VariantResult* best = nullptr;
  for (const VariantResult& result : tried) {
    if (!result.fits(fit_bytes)) continue;
    if (best == nullptr || rank_of(result) < rank_of(*best)) best = &result;
  }
  return best;
}

const VariantResult* Findings::advised() const {
  const VariantResult* const set = best();
  if (set == nullptr || !base.fits(fit_bytes)) return set;
  const auto before = comparable_seconds(base), after = comparable_seconds(*set);
  const bool is_faster = by_time && before && after && *after < (1 - kLeastFaster) * *before;
  return is_faster ? set : nullptr;
}

std::optional<double> Findings::comparable_seconds(const VariantResult& result) const {
  if (!result.time || !result.time->is_known()) return std::nullopt;
  if (!base.time || !base.time->is_known()) return result.time->seconds;
  const auto scaled = [&](double PredictedTime::*rate) -> std::optional<double> {
    const double own = *result.time.*rate, batch = *base.time.*rate * base.time->seconds;
    return own > 0 && batch > 0 ? std::optional(batch / own) : std::nullopt;
  };
  if (const auto seconds = scaled(&PredictedTime::tokens_a_second)) return seconds;
  return scaled(&PredictedTime::samples_a_second).value_or(result.time->seconds);
}

Findings advise(const AdviseOptions& options, const RunVariants& run,
                const std::function<int()>& jobs) {
  return Search(options, run, jobs).run();
}

Findings advise(const AdviseOptions& options, VariantRunner& runner) {
  const RunVariants run = [&](const auto& all, const auto& names) {
    return runner.run(all, names);
  };
  return advise(options, run, [&] { return runner.jobs(); });
}

}  // namespace shardlens::profiler
