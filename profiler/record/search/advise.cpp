#include "profiler/record/search/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace shardlens::profiler {

namespace {

using Levers = std::vector<Lever>;

/// The memory of a simulated GPU on which the peak of a program that does not fit is seen.
constexpr int64_t kRoom = int64_t{1} << 40;

LeverCost cost_of_one(const Lever& lever) {
  const bool is_other_optimizer = lever.value == "8bit" || lever.value == "adafactor";
  return is_other_optimizer ? LeverCost::numbers : lever_info(lever.name).cost;
}

/// Orders sets: what costs less first, then fewer levers.
auto order_of(const Levers& levers) { return std::tuple(cost_of(levers), levers.size()); }

bool agree(const Levers& levers, const Lever& more) {
  return std::ranges::none_of(levers, [&](const Lever& one) { return contradict(one, more); });
}

/// Returns the levers that are tried unless the user names some.
Levers levers_to_try() {
  Levers all;
  for (const LeverInfo& info : levers()) {
    if (info.tries == "yes") all.push_back({.name = std::string(info.name)});
    if (info.tries.empty() || info.tries == "yes") continue;
    std::string_view rest = info.tries;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('|'), rest.size());
      all.push_back({.name = std::string(info.name), .value = std::string(rest.substr(0, end))});
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return all;
}

class Search {
 public:
  Search(const AdviseOptions& options, VariantRunner& runner)
      : options_(options), runner_(runner), record_(options.record) {
    advice_.fit_bytes = options.fit_bytes;
    advice_.most_levers = options.most_levers;
  }

  Findings run() {
    run_base();
    if (advice_.base.outcome != VariantOutcome::measured) return finish();
    run_singles();
    const bool has_goal = !advice_.base.fits(options_.fit_bytes);
    if (has_goal && !runner_.was_interrupted()) run_sets();
    if (has_goal && is_roomy_ && !runner_.was_interrupted()) confirm();
    return finish();
  }

 private:
  /// Runs the program as it is; if it runs out of memory again with room for all, to see its peak.
  void run_base() {
    record_.device.capacity_bytes = options_.fit_bytes;
    record_.looks = true;
    run_as_it_is();
    if (advice_.base.outcome == VariantOutcome::out_of_memory && !runner_.was_interrupted()) {
      is_roomy_ = true;
      record_.device.capacity_bytes = kRoom;
      run_as_it_is();
    }
    record_.looks = false;
  }

  void run_as_it_is() {
    auto results = runner_.run({in_folder(record_, "as_it_is")}, {"as it is"});
    if (!results.empty()) advice_.base = std::move(results.front());
  }

  void run_singles() {
    std::vector<Levers> sets;
    for (const Lever& lever : options_.wanted.empty() ? levers_to_try() : options_.wanted) {
      const Problem why = why_not(lever, advice_.base.accounts);
      if (why)
        advice_.not_applicable.push_back({.lever = lever, .why = *why});
      else if (agree(record_.levers, lever))
        sets.push_back({lever});
    }
    run_all(sets);
  }

  /// Runs sets of levers that helped, the cheapest first, until one fits.
  void run_sets() {
    const Levers helped = levers_that_helped();
    const Levers together = all_together(helped);
    // If all together fits, no set that costs more need be run.
    if (best_cost() == kNone && together.size() > 1) run_all({together});
    std::vector<Levers> sets;
    collect_sets(helped, 0, {}, sets);
    std::erase_if(sets, [&](const Levers& set) { return is_known(set); });
    std::ranges::stable_sort(sets, {}, order_of);
    run_until_one_fits(sets);
  }

  void run_until_one_fits(const std::vector<Levers>& sets) {
    size_t next = 0;
    const auto is_cheaper = [&] { return cost_of(sets[next]) < best_cost(); };
    while (next < sets.size() && is_cheaper() && !runner_.was_interrupted()) {
      std::vector<Levers> batch;
      while (next < sets.size() && is_cheaper() && batch.size() < size_t(runner_.jobs())) {
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

  Levers levers_that_helped() const {
    Levers helped;
    for (const VariantResult& result : advice_.tried) {
      const bool has_helped = result.outcome == VariantOutcome::measured &&
                              (result.reserved_bytes < advice_.base.reserved_bytes ||
                               result.allocated_bytes < advice_.base.allocated_bytes);
      if (has_helped) helped.push_back(added_levers(result).front());
    }
    return helped;
  }

  /// Returns one set of all that helped; of those that contradict each other what helped most.
  Levers all_together(Levers helped) const {
    std::ranges::stable_sort(
        helped, {}, [&](const Lever& lever) { return find_result({lever})->device_bytes(); });
    Levers together;
    for (const Lever& lever : helped) {
      if (agree(together, lever)) together.push_back(lever);
    }
    return together;
  }

  /// Runs the best set again on the GPU that it is to fit: a program may ask how large the GPU is.
  void confirm() {
    const VariantResult* const best = advice_.best();
    if (best == nullptr) return;
    RecordOptions options = best->options;
    options.device.capacity_bytes = options_.fit_bytes;
    auto results = runner_.run({options}, {levers_text(options.levers) + ", confirmed"});
    if (results.empty()) return;
    *std::ranges::find(advice_.tried, options.out, [](const VariantResult& result) {
      return result.options.out;
    }) = std::move(results.front());
  }

  void run_all(const std::vector<Levers>& sets) {
    std::vector<RecordOptions> all;
    std::vector<std::string> names;
    for (const Levers& set : sets) {
      RecordOptions options = in_folder(record_, levers_text(set));
      options.levers.insert(options.levers.end(), set.begin(), set.end());
      all.push_back(options);
      names.push_back(levers_text(set));
    }
    std::vector<VariantResult> results = runner_.run(all, names);
    advice_.left_out += all.size() - results.size();
    for (VariantResult& result : results) {
      if (result.outcome == VariantOutcome::idle && added_levers(result).size() == 1) {
        advice_.not_applicable.push_back(
            {.lever = added_levers(result).front(), .why = result.why});
        continue;
      }
      advice_.tried.push_back(std::move(result));
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
    int cost = kNone;
    for (const VariantResult& result : advice_.tried) {
      if (result.fits(options_.fit_bytes)) cost = std::min(cost, cost_of(added_levers(result)));
    }
    return cost;
  }

  /// Sorts what was tried: what fits first, the cheapest of these first; then what takes least.
  Findings finish() {
    std::ranges::stable_sort(advice_.tried, {}, [&](const VariantResult& result) {
      const bool fits = result.fits(options_.fit_bytes);
      const bool is_measured = result.outcome == VariantOutcome::measured;
      const Levers added = added_levers(result);
      return std::tuple(!is_measured, !fits, fits ? cost_of(added) : 0, result.device_bytes(),
                        added.size());
    });
    advice_.was_interrupted = runner_.was_interrupted();
    return std::move(advice_);
  }

  const AdviseOptions& options_;
  VariantRunner& runner_;
  RecordOptions record_;
  Findings advice_;
  bool is_roomy_ = false;
};

}  // namespace

int cost_of(const Levers& levers) {
  int cost = 0;
  for (const Lever& lever : levers) cost += 1 << static_cast<int>(cost_of_one(lever));
  return cost;
}

const VariantResult* Findings::best() const {
  const VariantResult* best = nullptr;
  for (const VariantResult& result : tried) {
    if (!result.fits(fit_bytes)) continue;
    if (best == nullptr || cost_of(result.options.levers) < cost_of(best->options.levers)) {
      best = &result;
    }
  }
  return best;
}

Findings advise(const AdviseOptions& options, VariantRunner& runner) {
  return Search(options, runner).run();
}

}  // namespace shardlens::profiler
