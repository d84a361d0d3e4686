#include "planner/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/units.h"

namespace shardlens::planner {

Device device_of(const Config& config) {
  Device device = device_of(config.device);
  if (config.capacity.empty()) return device;
  if (device.kind != DeviceKind::null) {
    throw std::invalid_argument(fmt::format(
        "--capacity {}: only a null device's memory can be chosen; give --device null:GPU",
        config.capacity));
  }
  device.capacity_bytes = *capacity_of(config);
  return device;
}

std::optional<int64_t> capacity_of(const Config& config) {
  if (config.capacity.empty()) return std::nullopt;
  try {
    return parse_bytes(config.capacity);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--capacity {}", error.what()));
  }
}

std::optional<DType> output_dtype_of(const Config& config) {
  return choice_named<DType>(to_string(config.output_dtype));
}

int64_t world_size_of(const Config& config) {
  return config.world > 0 ? config.world : config.workers;
}

Config with_absolute_inputs(Config config, const std::filesystem::path& base) {
  const auto make_absolute = [&](std::string& path) {
    path = std::filesystem::absolute(base / path).lexically_normal().string();
  };
  constexpr auto kWordsOfData = words("auto", "fashion-mnist", "synthetic", "own");
  if (config.model.ends_with(".json")) make_absolute(config.model);
  if (std::ranges::find(kWordsOfData, config.data) == kWordsOfData.end()) {
    make_absolute(config.data);
  }
  if (!config.init.empty()) make_absolute(config.init);
  return config;
}

}  // namespace shardlens::planner
