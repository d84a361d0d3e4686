// The device on which tensors lie, and the word that names it: cpu, cuda or null:GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardlens {

/// The kind of a device. `null`: LibTorch's CUDA code on stub libraries that stand in for the GPU
/// (null_device).
enum class DeviceKind { cpu, cuda, null };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::string gpu;             // of null: a name in base/gpus.h
  int64_t capacity_bytes = 0;  // of null: its memory; 0: that GPU's own

  bool is_cpu() const { return kind == DeviceKind::cpu; }
  bool operator==(const Device&) const = default;
};

/// The device that --device names.
struct DeviceChoice {
  std::optional<DeviceKind> kind{};  // nothing: auto, which the runtime resolves
  std::string gpu{};                 // of null: a name in base/gpus.h

  bool operator==(const DeviceChoice&) const = default;
};

/// The start of a word that names a simulated GPU: null:h200.
inline constexpr std::string_view kNullDevice = "null:";

/// Returns the memory of a simulated GPU.
int64_t memory_bytes_of(const Device& device);

/// Returns the word, such as "auto" or "null:h200".
std::string text_of(const DeviceChoice& choice);

/// Reads the word. Throws std::invalid_argument for an unknown device or GPU.
DeviceChoice device_named(std::string_view word);

/// Returns the chosen device. Throws std::invalid_argument for `auto`, which the runtime must have
/// resolved.
Device device_of(const DeviceChoice& choice);

}  // namespace shardlens
