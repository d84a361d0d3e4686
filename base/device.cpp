#include "base/device.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/gpus.h"
#include "base/shown.h"

namespace shardlens {

namespace {

[[noreturn]] void refuse_device(std::string_view word) {
  throw std::invalid_argument(fmt::format(
      "--device {}: not a device; give cpu, cuda, or null:GPU such as null:h200", word));
}

}  // namespace

int64_t memory_bytes_of(const Device& device) {
  return device.capacity_bytes > 0 ? device.capacity_bytes : find_gpu(device.gpu).memory_bytes;
}

std::string text_of(const DeviceChoice& choice) {
  if (!choice.kind) return "auto";
  if (*choice.kind == DeviceKind::null) return fmt::format("{}{}", kNullDevice, choice.gpu);
  return *choice.kind == DeviceKind::cpu ? "cpu" : "cuda";
}

DeviceChoice device_named(std::string_view word) {
  if (word == "auto") return {};
  if (word == "cpu") return {.kind = DeviceKind::cpu};
  if (word == "cuda") return {.kind = DeviceKind::cuda};
  if (!word.starts_with(kNullDevice)) refuse_device(shown(word));
  const Gpu& gpu = find_gpu(word.substr(kNullDevice.size()));
  return {.kind = DeviceKind::null, .gpu = std::string(gpu.name)};
}

Device device_of(const DeviceChoice& choice) {
  if (!choice.kind) refuse_device(text_of(choice));
  return {.kind = *choice.kind, .gpu = choice.gpu, .capacity_bytes = 0};
}

}  // namespace shardlens
