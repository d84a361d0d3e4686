#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "planner/config/training_data.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "runtime/runtime.h"

namespace {

using namespace shardlens;

/// Returns a forecast, or nothing for a GPU whose name is unknown.
std::optional<runtime::Forecast> forecast(const planner::Config& config,
                                          const planner::TrainingData& data) {
  try {
    const char* const conf = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
    const planner::Plan plan = planner::make_plan(
        config, {.allocator = planner::parse_allocator_settings(conf == nullptr ? "" : conf)},
        data);
    return runtime::Forecast{.verdict = planner::verdict_line(plan),
                             .fits = plan.verdict != planner::Verdict::does_not_fit,
                             .allocated_bytes = plan.peak.allocated_bytes,
                             .reserved_bytes = plan.peak.reserved_bytes};
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

}  // namespace

int main(int argc, char** argv) { return runtime::train({argv + 1, argv + argc}, forecast); }
