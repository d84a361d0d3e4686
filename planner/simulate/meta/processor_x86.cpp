// Asks the processor: an old kernel does not list all features in /proc/cpuinfo.
#include <cpuid.h>

#include "planner/simulate/meta/processor.h"

namespace shardlens::planner::meta {

namespace {

/// Holds EAX to EDX of a leaf of CPUID, or zeros if the processor has no such leaf.
struct CpuidLeaf {
  unsigned a = 0, b = 0, c = 0, d = 0;

  explicit CpuidLeaf(unsigned number, unsigned part) {
    __get_cpuid_count(number, part, &a, &b, &c, &d);
  }
};

bool has(unsigned flags, int bit) { return (flags >> bit & 1U) != 0; }

}  // namespace

Processor this_processor() {
  // Intel's manual, volume 2, CPUID: extended features.
  const CpuidLeaf features(7, 0), more(7, 1);
  return {.avx512 = has(features.b, 16),
          .avx512_bf16 = has(more.a, 5),
          .avx512_fp16 = has(features.d, 23),
          .amx_bf16 = has(features.d, 22),
          .amx_fp16 = has(more.a, 21)};
}

}  // namespace shardlens::planner::meta
