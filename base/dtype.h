// The dtypes in which a model is kept, computed and reduced.
#pragma once

#include <cstdint>

#include "base/choice.h"

namespace shardlens {

enum class DType { fp32, bf16, fp16 };
constexpr auto choice_words(DType) { return words("fp32", "bf16", "fp16"); }

/// Returns the bytes of one element.
constexpr int64_t bytes_of(DType dtype) { return dtype == DType::fp32 ? 4 : 2; }

}  // namespace shardlens
