#include "planner/config/loss_scale.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <stdexcept>

namespace shardlens::planner {

LossScale loss_scale_of(const Config& config) {
  constexpr double kFirst = 65536;  // as PyTorch's GradScaler begins
  const bool is_needed = config.param_dtype == DType::fp16;
  if (config.loss_scale == "auto") {
    return is_needed ? LossScale{LossScale::Kind::dynamic, kFirst} : LossScale{};
  }
  if (config.loss_scale == "none") {
    if (!is_needed) return {};
    throw std::invalid_argument(
        "--loss-scale none: small gradients would be lost in fp16; give auto or a number, or "
        "--param-dtype bf16");
  }
  double value = 0;
  const char* const end = config.loss_scale.data() + config.loss_scale.size();
  const auto [stop, error] = std::from_chars(config.loss_scale.data(), end, value);
  if (error == std::errc() && stop == end && std::isfinite(value) && value > 0) {
    return {LossScale::Kind::constant, value};
  }
  throw std::invalid_argument(
      fmt::format("--loss-scale {}: not a valid value; give auto, none or a number above 0",
                  config.loss_scale));
}

}  // namespace shardlens::planner
