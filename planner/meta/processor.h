// What of a processor decides which code multiplies matrices in reduced precision on it, and so
// what memory that code takes.
#pragma once

namespace shardlens::planner::meta {

/// Of an x86 processor. Others have none of it.
struct Processor {
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
  bool amx_fp16 = false;
};

/// This machine's.
Processor this_processor();

}  // namespace shardlens::planner::meta
