// A flag with a reason that any rank raises once and every rank sees: the first reason stays.
//
// Lies in memory shared between processes or threads; zero-filled memory is a note nobody has
// written. Written by whoever gives up first, read by every wait of the local communicator.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardlens::runtime {

struct alignas(64) AbortNote {
  static constexpr size_t kTextBytes = 1020;

  /// Keeps the first reason; later ones are dropped. Cut at kTextBytes. Safe from any thread.
  void raise(std::string_view reason) noexcept;
  /// A few ns: one load.
  bool raised() const noexcept;
  /// Empty unless raised.
  std::string reason() const;

  uint32_t state = 0;  // 0 silent, 1 being written, 2 written; through std::atomic_ref only
  std::array<char, kTextBytes> text{};
};

}  // namespace shardlens::runtime
