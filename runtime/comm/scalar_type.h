// Translates the planner's dtypes to LibTorch's.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/check.h"
#include "base/dtype.h"

namespace shardlens::runtime {

inline c10::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return c10::ScalarType::Float;
    case DType::bf16:
      return c10::ScalarType::BFloat16;
    case DType::fp16:
      return c10::ScalarType::Half;
  }
  unreachable("dtype out of range");
}

}  // namespace shardlens::runtime
