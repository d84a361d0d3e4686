#include "profiler/record/search/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace shardlens::profiler {

namespace {

/// The number of successive values with equal memory after which the program counts as ignoring its
/// placeholder: the first few may be too small to change what the allocator gives.
constexpr size_t kAlike = 4;

class Bisection {
 public:
  Bisection(const SolveOptions& options, const RunWithValue& run) : options_(options), run_(run) {}

  Solution find() {
    int64_t value = options_.from;
    while (fits(value) && value < options_.most && !ignores()) {
      value = std::min(options_.most, 2 * value);
    }
    while (goes_on() && solution_.too_large && *solution_.too_large - *solution_.largest > 1) {
      fits(*solution_.largest + (*solution_.too_large - *solution_.largest) / 2);
    }
    std::ranges::sort(solution_.runs, {}, &SolvedRun::value);
    return std::move(solution_);
  }

 private:
  bool goes_on() const { return solution_.problem.empty() && solution_.largest.has_value(); }

  bool fits(int64_t value) {
    const auto result = run_(value);
    if (!result) {
      solution_.was_interrupted = true;
      solution_.problem = "interrupted";
      return false;
    }
    solution_.runs.push_back({.value = value, .result = *result});
    switch (result->outcome) {
      case VariantOutcome::measured:
        solution_.largest = value;
        return true;
      case VariantOutcome::out_of_memory:
        solution_.too_large = value;
        if (!solution_.largest) {
          solution_.problem =
              fmt::format("the program does not fit with {}={} either", options_.name, value);
        }
        return false;
      case VariantOutcome::failed:
      case VariantOutcome::idle:
        break;
    }
    solution_.problem = fmt::format("with {}={}: {}", options_.name, value, result->why);
    return false;
  }

  /// Notes a problem if the program takes the same memory whatever the value.
  bool ignores() {
    const size_t count = solution_.runs.size();
    if (count < kAlike) return false;
    const auto marks = [&](size_t i) { return solution_.runs[count - 1 - i].result.marks; };
    for (size_t i = 1; i < kAlike; ++i) {
      if (marks(i) != marks(0)) return false;
    }
    solution_.problem = fmt::format(
        "the program takes the same memory with {0}={1} as with {0}={2}: it may ignore {{{0}}}",
        options_.name, solution_.runs[count - kAlike].value, solution_.runs.back().value);
    return true;
  }

  const SolveOptions& options_;
  const RunWithValue& run_;
  Solution solution_;
};

}  // namespace

Solution solve(const SolveOptions& options, const RunWithValue& run) {
  return Bisection(options, run).find();
}

Solution solve(const SolveOptions& options, VariantRunner& runner) {
  return solve(options, [&](int64_t value) -> std::optional<VariantResult> {
    const std::vector<PlacedValue> values = {{options.name, value}};
    RecordOptions one = in_folder(options.record, values_text(values));
    one.command = with_values(one.command, values);
    auto results = runner.run({one}, {values_text(values)});
    if (results.empty() || runner.was_interrupted()) return std::nullopt;
    return std::move(results.front());
  });
}

std::vector<std::vector<PlacedValue>> combinations_in_part(const SweepOptions& options) {
  return runs_in(options.part, combinations_of(options.values));
}

std::vector<SweptRun> sweep(const SweepOptions& options, VariantRunner& runner) {
  const auto all = combinations_in_part(options);
  std::vector<RecordOptions> programs;
  std::vector<std::string> names;
  for (const auto& one : all) {
    RecordOptions program = in_folder(options.record, values_text(one));
    program.command = with_values(program.command, one);
    programs.push_back(program);
    names.push_back(values_text(one));
  }
  std::vector<SweptRun> runs;
  for (VariantResult& result : runner.run(programs, names)) {
    const auto at = std::ranges::find(programs, result.options.out, &RecordOptions::out);
    runs.push_back(
        {.values = all[static_cast<size_t>(at - programs.begin())], .result = std::move(result)});
  }
  return runs;
}

}  // namespace shardlens::profiler
