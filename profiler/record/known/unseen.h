// Calls operators on the CPU beside the program: on one thread, and unseen by whoever watches them.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

// OpenMP's, of whichever library LibTorch is linked with, for the calling thread alone.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int threads);
}

namespace shardlens::profiler {

/// Keeps OpenMP from starting threads, who would wait busily for the next operator.
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

/// Calls the operator on the CPU, unseen by whoever watches operators.
class UnobservedSection {
  OneThread one_thread_;
  at::DisableRecordFunctionGuard no_callbacks_;
  at::AutoDispatchBelowADInplaceOrView no_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

}  // namespace shardlens::profiler
