// A flag with a reason that any rank raises once and every rank sees: the first reason stays, with
// its kind and the rank that is to blame.
//
// Lies in memory shared between processes or threads; zero-filled memory is a note nobody has
// written. Written by whoever gives up first, read by every wait of the local communicator.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/comm/fault.h"

namespace shardlens::runtime {

struct alignas(64) AbortNote {
  static constexpr size_t kTextBytes = 1012;

  /// Keeps the first reason; later ones are dropped. Cut at kTextBytes. Safe from any thread.
  void raise(std::string_view reason, Fault fault = Fault::failed, int rank = -1) noexcept;
  /// A few ns: one load.
  bool raised() const noexcept;
  /// Empty unless raised.
  std::string reason() const;
  /// Once the reason is there.
  Fault fault() const { return kind; }
  int rank() const { return blamed; }

  uint32_t state = 0;  // 0 silent, 1 being written, 2 written; through std::atomic_ref only
  Fault kind{};
  int32_t blamed = 0;
  std::array<char, kTextBytes> text{};
};

}  // namespace shardlens::runtime
