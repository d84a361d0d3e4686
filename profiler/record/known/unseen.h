// Calls operators on the CPU beside the program: on one thread, and hidden from code that observes
// operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

// These are OpenMP's, from the library that LibTorch is linked with, and only affect this thread.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int threads);
}

namespace shardlens::profiler {

/// Keeps OpenMP from starting threads, which would wait busily for the next operator.
class OneThread {
 public:
  OneThread() { set(1); }
  ~OneThread() { set(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static void set(int threads) {
    if (omp_set_num_threads != nullptr && threads > 0) omp_set_num_threads(threads);
  }

  int before_ = omp_get_max_threads == nullptr ? 0 : omp_get_max_threads();
};

/// Lets operators run on the CPU while it lives, hidden from code that observes operators.
class UnobservedSection {
  OneThread one_thread_;
  at::DisableRecordFunctionGuard no_callbacks_;
  at::AutoDispatchBelowADInplaceOrView no_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

}  // namespace shardlens::profiler
