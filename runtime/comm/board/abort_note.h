// A flag with a reason that any rank can raise and every rank sees. The first reason stays, with
// its kind and the rank that is to blame.
//
// The note is in memory shared between processes or threads; zero-filled memory is a note that is
// not raised. The first rank that gives up writes it, and every wait of the local communicator
// reads it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/fault.h"

namespace shardlens::runtime {

struct alignas(64) AbortNote {
  static constexpr size_t kTextBytes = 1012;

  /// Raises the note with this reason, cut at kTextBytes. The first reason stays; later ones are
  /// dropped. Safe from any thread.
  void raise(std::string_view reason, Fault fault = Fault::failed, int rank = -1) noexcept;
  /// True if a reason was raised. Takes a few ns: one load.
  bool is_raised() const noexcept;
  /// Returns "" unless the note is raised.
  std::string reason() const;
  /// These two are valid once the note is raised.
  Fault fault() const { return kind; }
  int rank() const { return blamed; }

  uint32_t state = 0;  // 0 silent, 1 being written, 2 written; through std::atomic_ref only
  Fault kind{};
  int32_t blamed = 0;
  std::array<char, kTextBytes> text{};
};
static_assert(sizeof(AbortNote) == 1024 && std::is_trivially_copyable_v<AbortNote>,
              "it is in memory that processes share");

}  // namespace shardlens::runtime
