// The features of a processor that decide which code multiplies matrices in reduced precision, and
// so how much memory that code takes.
#pragma once

namespace shardlens::planner::meta {

/// Features of an x86 processor. Other processors have none of them.
struct Processor {
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
  bool amx_fp16 = false;
};

/// Returns the features of this machine's processor.
Processor this_processor();

}  // namespace shardlens::planner::meta
