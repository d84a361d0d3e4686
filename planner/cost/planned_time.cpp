#include "planner/cost/planned_time.h"

#include <algorithm>
#include <cmath>

#include "planner/time/collectives.h"
#include "planner/time/products.h"
#include "planner/time/rates.h"

namespace shardlens::planner {

namespace {

bool are_links_measured(const Schedule& schedule, const Gpu& gpu) {
  return std::ranges::all_of(schedule.channels(), [&](Channel channel) {
    const RankSet ranks = schedule.ranks_of(channel);
    return ranks.size < 2 || has_measured_collectives(gpu, layout_of(ranks));
  });
}

Throughput batch_of(const models::ModelSpec& spec, const Config& config, const Schedule& schedule) {
  Throughput batch;
  batch.samples = static_cast<double>(config.batch) * schedule.microbatches;
  if (spec.sample.input != models::InputKind::tokens) return batch;
  batch.tokens = batch.samples * static_cast<double>(spec.sample.shape[0]);
  return batch;
}

double peak_flops_of(DType dtype, const Gpu& gpu) {
  const Rates rates = rates_of(&gpu, 1);
  const bool is_half = dtype == DType::fp16 || (dtype == DType::bf16 && rates.has_bf16);
  return (is_half ? rates.half_tflops : rates.fp32_tflops) * 1e12;
}

}  // namespace

StepTime planned_time(const StepCost& cost, const models::ModelSpec& spec, const Config& config,
                      const Schedule& schedule, const Gpu& gpu) {
  StepTime time;
  time.seconds = cost.seconds;
  time.by_class = cost.by_class;
  time.waiting_for_host = cost.waiting_for_host;
  time.work_by_class = cost.work.by_class;
  time.host_seconds = cost.work.host_seconds();
  time.flops = cost.work.flops;
  time.peak_flops = peak_flops_of(strategy_of(config).param_dtype, gpu);
  time.kernels = std::llround(cost.work.launches);
  time.batch = batch_of(spec, config, schedule);
  time.rounds = 1;
  time.are_steps = true;
  time.is_measured = has_measured_products(gpu);
  time.error = error_of(time, gpu, are_links_measured(schedule, gpu));
  add_doubts_of(gpu, time);
  return time;
}

std::string planned_basis_text(bool is_on_gpu) {
  return is_on_gpu ? "  step times: predicted, cold; nine of ten are expected within the band; the "
                     "host's are those of another machine\n"
                   : "  in doubt: step times are ratios, by assumed rates of a CPU\n";
}

}  // namespace shardlens::planner
