// Facts about PyTorch's operators, by their names: the bytes that they read and write, and the
// operations of attention and convolutions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "profiler/recording/work.h"

namespace shardlens::planner {

/// Returns the bytes of a number; 0 for no number.
double bytes_of(profiler::NumberType type);

/// The bytes that a call of an operator reads and writes.
double operator_bytes(std::string_view name, const profiler::OperatorCall& call);

/// The numbers that PyTorch's kernel for an operator takes one by one, since its arguments have
/// unlike shapes, or half of the width of the result; 0 if it takes several at once.
double single_numbers(std::string_view name, const profiler::OperatorCall& call);

/// The launches among which PyTorch divides an elementwise operator, so that each has offsets of
/// 31 bits.
double launches_of(const profiler::OperatorCall& call);

/// True if an operator's kernels share its work, since it takes lists of tensors.
bool is_over_lists(const profiler::OperatorCall& call);

/// Fused attention: the sizes of one call.
struct Attention {
  double batch = 0;
  double heads = 0;
  double queries = 0;
  double keys = 0;
  double width = 0;  // of a head
  bool is_causal = false;
  bool is_backward = false;
  profiler::NumberType type{};

  double flops() const {
    const double products = is_backward ? 10 : 4;
    return products * batch * heads * queries * keys * width / (is_causal ? 2 : 1);
  }
};
std::optional<Attention> attention_of(std::string_view name, const profiler::OperatorCall& call);

/// A convolution as the product of matrices that it is.
struct Convolution {
  double rows = 0;     // of all images
  double columns = 0;  // channels of the result, of one group
  double depth = 0;
  double groups = 1;
  double bytes = 0;  // read and written
  profiler::NumberType type{};
};
std::optional<Convolution> convolution_of(std::string_view name,
                                          const profiler::OperatorCall& call);

}  // namespace shardlens::planner
