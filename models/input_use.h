// Says what becomes of the input of a product.
#pragma once

#include <cstdint>

namespace shardlens::models {

/// Backward writes the input's gradient over an input that is spent, once the weight's is computed,
/// so that a product never holds both. No other node of the graph may have saved that input: a
/// GELU's output is fit for it, a ReLU's or an attention's is not.
enum class InputUse : uint8_t { kept, spent };

}  // namespace shardlens::models
