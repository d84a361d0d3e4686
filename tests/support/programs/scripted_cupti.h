// A libcupti.so.13 that a test controls, so that callbacks come from calls, and in orders, that no
// driver gives on demand.
#pragma once

#include <cupti.h>

#include <functional>
#include <set>
#include <string>

namespace shardlens::tests {

struct ScriptedCupti {
  // Its answers.
  uint32_t version = 130001;
  CUptiResult subscribing = CUPTI_SUCCESS;
  std::string other_subscriber;
  std::function<bool(CUpti_CallbackId)> refuses = [](CUpti_CallbackId) { return false; };
  // What it was asked.
  CUpti_CallbackFunc callback = nullptr;
  void* data = nullptr;
  std::string subscriber;
  std::set<CUpti_CallbackId> enabled;
};

ScriptedCupti& scripted_cupti();

/// One call of the driver: the callback at its entry, `during`, the callback at its exit.
/// Called whether or not it is enabled, and for any subscriber.
void driver_call(CUpti_CallbackFunc callback, void* data, CUpti_CallbackId id,
                 const void* parameters, int result, const std::function<void()>& during);

}  // namespace shardlens::tests
