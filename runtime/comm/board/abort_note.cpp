#include "runtime/comm/board/abort_note.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace shardlens::runtime {
namespace {

constexpr uint32_t kSilent = 0;
constexpr uint32_t kWriting = 1;
constexpr uint32_t kWritten = 2;

// Returns an atomic reference to the state. C++20 has no std::atomic_ref of a const object.
std::atomic_ref<uint32_t> state_of(const AbortNote& note) {
  return std::atomic_ref<uint32_t>(const_cast<AbortNote&>(note).state);
}

}  // namespace

void AbortNote::raise(std::string_view reason, Fault fault, int rank) noexcept {
  uint32_t expected = kSilent;
  if (!state_of(*this).compare_exchange_strong(expected, kWriting, std::memory_order_acquire)) {
    return;
  }
  kind = fault;
  blamed = rank;
  const size_t length = std::min(reason.size(), kTextBytes - 1);
  std::copy_n(reason.begin(), length, text.begin());
  text[length] = '\0';
  state_of(*this).store(kWritten, std::memory_order_release);
}

bool AbortNote::is_raised() const noexcept {
  return state_of(*this).load(std::memory_order_acquire) != kSilent;
}

std::string AbortNote::reason() const {
  if (!is_raised()) return {};
  // The writer may have been killed between its two stores, so this does not wait forever.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (state_of(*this).load(std::memory_order_acquire) == kWritten) return text.data();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "the reason was not written";
}

}  // namespace shardlens::runtime
