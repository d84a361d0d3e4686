#include "planner/time/operators.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

namespace shardlens::planner {

namespace {

using profiler::NumberType;
using profiler::OperatorCall;
using profiler::OperatorInput;

/// The ways in which operators differ from reading everything and writing a broadcast result.
enum class Traffic : uint8_t {
  usual,
  reduces,      // writes next to nothing
  only_writes,  // its first argument
  copies,       // the second argument to the first
  looks_up,     // reads and writes rows that indices choose
  scatters,     // adds rows to chosen ones
  compares,     // writes a byte for each number
  reads_twice,  // its first argument
  touches_few,  // numbers
  steps,        // an optimizer's step: writes all but the gradients
};

struct OperatorTraffic {
  std::string_view name;  // without "aten::" and without a last "_"
  Traffic traffic;
};

constexpr std::array kTraffic = {
    OperatorTraffic{"sum", Traffic::reduces},
    OperatorTraffic{"mean", Traffic::reduces},
    OperatorTraffic{"max", Traffic::reduces},
    OperatorTraffic{"min", Traffic::reduces},
    OperatorTraffic{"amax", Traffic::reduces},
    OperatorTraffic{"amin", Traffic::reduces},
    OperatorTraffic{"argmax", Traffic::reduces},
    OperatorTraffic{"argmin", Traffic::reduces},
    OperatorTraffic{"all", Traffic::reduces},
    OperatorTraffic{"any", Traffic::reduces},
    OperatorTraffic{"var", Traffic::reduces},
    OperatorTraffic{"std", Traffic::reduces},
    OperatorTraffic{"var_mean", Traffic::reduces},
    OperatorTraffic{"norm", Traffic::reduces},
    OperatorTraffic{"linalg_vector_norm", Traffic::reduces},
    OperatorTraffic{"logsumexp", Traffic::reduces},
    OperatorTraffic{"mse_loss", Traffic::reduces},
    OperatorTraffic{"_foreach_norm", Traffic::reduces},
    OperatorTraffic{"_local_scalar_dense", Traffic::touches_few},
    OperatorTraffic{"nll_loss_forward", Traffic::touches_few},
    OperatorTraffic{"nll_loss_backward", Traffic::touches_few},
    OperatorTraffic{"nll_loss2d_forward", Traffic::touches_few},
    OperatorTraffic{"nll_loss2d_backward", Traffic::touches_few},
    OperatorTraffic{"fill", Traffic::only_writes},
    OperatorTraffic{"zero", Traffic::only_writes},
    OperatorTraffic{"normal", Traffic::only_writes},
    OperatorTraffic{"uniform", Traffic::only_writes},
    OperatorTraffic{"random", Traffic::only_writes},
    OperatorTraffic{"bernoulli", Traffic::only_writes},
    OperatorTraffic{"copy", Traffic::copies},
    OperatorTraffic{"_foreach_copy", Traffic::copies},
    OperatorTraffic{"embedding", Traffic::looks_up},
    OperatorTraffic{"index_select", Traffic::looks_up},
    OperatorTraffic{"index", Traffic::looks_up},
    OperatorTraffic{"gather", Traffic::looks_up},
    OperatorTraffic{"index_put", Traffic::scatters},
    OperatorTraffic{"_index_put_impl", Traffic::scatters},
    OperatorTraffic{"index_add", Traffic::scatters},
    OperatorTraffic{"scatter", Traffic::scatters},
    OperatorTraffic{"scatter_add", Traffic::scatters},
    OperatorTraffic{"eq", Traffic::compares},
    OperatorTraffic{"ne", Traffic::compares},
    OperatorTraffic{"lt", Traffic::compares},
    OperatorTraffic{"le", Traffic::compares},
    OperatorTraffic{"gt", Traffic::compares},
    OperatorTraffic{"ge", Traffic::compares},
    OperatorTraffic{"isfinite", Traffic::compares},
    OperatorTraffic{"isnan", Traffic::compares},
    OperatorTraffic{"logical_not", Traffic::compares},
    OperatorTraffic{"bitwise_not", Traffic::compares},
    OperatorTraffic{"native_batch_norm", Traffic::reads_twice},
    OperatorTraffic{"cudnn_batch_norm", Traffic::reads_twice},
    OperatorTraffic{"native_batch_norm_backward", Traffic::reads_twice},
    OperatorTraffic{"cudnn_batch_norm_backward", Traffic::reads_twice},
    OperatorTraffic{"_fused_adam", Traffic::steps},
    OperatorTraffic{"_fused_adamw", Traffic::steps},
    OperatorTraffic{"_fused_sgd", Traffic::steps},
    OperatorTraffic{"_fused_adagrad", Traffic::steps},
};

/// Operators of PyTorch's elementwise kernels that take arguments of unlike shapes or types.
constexpr std::array<std::string_view, 14> kElementwise = {
    "add",         "sub", "rsub",    "mul",     "div",     "copy",    "where",
    "masked_fill", "pow", "maximum", "minimum", "addcmul", "addcdiv", "lerp"};

bool is_in_place(std::string_view name) { return name.ends_with('_'); }

std::string_view plain_name(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  if (is_in_place(name)) name.remove_suffix(1);
  return name;
}

Traffic traffic_of(std::string_view name) {
  const auto found = std::ranges::find(kTraffic, plain_name(name), &OperatorTraffic::name);
  return found == kTraffic.end() ? Traffic::usual : found->traffic;
}

double numbers_in(const OperatorInput& input) {
  if (input.tensors == 0) return 0;
  return std::accumulate(input.sizes.begin(), input.sizes.end(), 1.0, std::multiplies<>());
}

double bytes_in(const OperatorInput& input) { return numbers_in(input) * bytes_of(input.type); }

std::vector<const OperatorInput*> tensors_of(const OperatorCall& call) {
  std::vector<const OperatorInput*> tensors;
  for (const OperatorInput& input : call.inputs) {
    if (input.tensors > 0) tensors.push_back(&input);
  }
  return tensors;
}

/// The numbers that tensors have when they are broadcast to each other.
double broadcast_numbers(std::span<const OperatorInput* const> tensors) {
  std::vector<int64_t> sizes;  // from the last dimension
  double most = 0;
  for (const OperatorInput* tensor : tensors) {
    most = std::max(most, numbers_in(*tensor));
    if (tensor->tensors > 1) continue;
    const size_t dimensions = tensor->sizes.size();
    if (sizes.size() < dimensions) sizes.resize(dimensions, 1);
    for (size_t i = 0; i < dimensions; ++i) {
      sizes[i] = std::max(sizes[i], tensor->sizes[dimensions - 1 - i]);
    }
  }
  const double all = std::accumulate(sizes.begin(), sizes.end(), 1.0, std::multiplies<>());
  // Tensors of other shapes than each other's (a weight, a saved mean) do not widen the result.
  const bool is_plain = tensors.size() == 2 || tensors.size() == 3;
  return is_plain && all <= 4096 * most ? std::max(all, most) : most;
}

/// The bytes of a result that has the type of the largest argument.
double result_bytes(std::span<const OperatorInput* const> tensors) {
  const auto largest = std::ranges::max_element(tensors, {}, [](const OperatorInput* tensor) {
    return std::pair(numbers_in(*tensor), bytes_of(tensor->type));
  });
  return broadcast_numbers(tensors) * bytes_of((*largest)->type);
}

/// The bytes of an operator that looks up rows of its first argument.
double looked_up_bytes(std::string_view name, std::span<const OperatorInput* const> tensors) {
  const OperatorInput& source = *tensors[0];
  const double indices = tensors.size() > 1 ? numbers_in(*tensors.back()) : 0;
  const double index_bytes = tensors.size() > 1 ? bytes_in(*tensors.back()) : 0;
  const bool takes_rows = !name.ends_with("gather") && !source.sizes.empty();
  const double width = takes_rows ? static_cast<double>(source.sizes.back()) : 1;
  return index_bytes + 2 * std::max(1.0, indices) * width * bytes_of(source.type);
}

const OperatorInput* input_at(const OperatorCall& call, size_t index) {
  return index < call.inputs.size() ? &call.inputs[index] : nullptr;
}

bool is_true(const OperatorCall& call, size_t index) {
  const OperatorInput* input = input_at(call, index);
  return input != nullptr && input->tensors == 0 && !input->sizes.empty() && input->sizes[0] != 0;
}

/// An operator of fused attention.
struct AttentionOperator {
  std::string_view name;
  size_t query;          // the argument; key and value follow
  size_t causal;         // the argument
  bool has_heads_first;  // [batch, heads, tokens, width], else [batch, tokens, heads, width]
  bool is_backward;
};
constexpr std::array kAttention = {
    AttentionOperator{"aten::_flash_attention_forward", 0, 8, false, false},
    AttentionOperator{"aten::_flash_attention_backward", 1, 11, false, true},
    AttentionOperator{"aten::_efficient_attention_forward", 0, 9, false, false},
    AttentionOperator{"aten::_efficient_attention_backward", 1, 14, false, true},
    AttentionOperator{"aten::_scaled_dot_product_flash_attention", 0, 4, true, false},
    AttentionOperator{"aten::_scaled_dot_product_flash_attention_backward", 1, 11, true, true},
    AttentionOperator{"aten::_scaled_dot_product_efficient_attention", 0, 6, true, false},
    AttentionOperator{"aten::_scaled_dot_product_efficient_attention_backward", 1, 10, true, true},
    AttentionOperator{"aten::_scaled_dot_product_cudnn_attention", 0, 6, true, false},
    AttentionOperator{"aten::_scaled_dot_product_cudnn_attention_backward", 1, 14, true, true},
    AttentionOperator{"aten::_cudnn_attention_forward", 0, 9, true, false},
    AttentionOperator{"aten::_cudnn_attention_backward", 1, 14, true, true},
    AttentionOperator{"flash_attn::_flash_attn_forward", 0, 5, false, false},
    AttentionOperator{"flash_attn::_flash_attn_backward", 1, 11, false, true},
};

/// Arguments of an operator of convolutions; those of a backward begin with the gradient.
struct ConvolutionOperator {
  std::string_view name;
  size_t input, weight, padding, stride, dilation, groups;
  bool is_backward;
};
constexpr std::array kConvolutions = {
    ConvolutionOperator{"aten::cudnn_convolution", 0, 1, 2, 3, 4, 5, false},
    ConvolutionOperator{"aten::_convolution", 0, 1, 4, 3, 5, 8, false},
    ConvolutionOperator{"aten::convolution", 0, 1, 4, 3, 5, 8, false},
    ConvolutionOperator{"aten::_conv_depthwise2d", 0, 1, 5, 4, 6, 99, false},
    ConvolutionOperator{"aten::convolution_backward", 1, 2, 5, 4, 6, 9, true},
};

int64_t number_in(const OperatorCall& call, size_t argument, size_t index, int64_t otherwise) {
  const OperatorInput* input = input_at(call, argument);
  if (input == nullptr || input->tensors != 0 || input->sizes.empty()) return otherwise;
  return input->sizes[std::min(index, input->sizes.size() - 1)];
}

/// The number of places that a filter is applied at along one side of an image.
double places(const OperatorCall& call, const ConvolutionOperator& rule, size_t side,
              int64_t length, int64_t filter) {
  const int64_t padding = number_in(call, rule.padding, side, 0);
  const int64_t stride = std::max<int64_t>(1, number_in(call, rule.stride, side, 1));
  const int64_t dilation = std::max<int64_t>(1, number_in(call, rule.dilation, side, 1));
  const int64_t last = length + 2 * padding - dilation * (filter - 1) - 1;
  return last < 0 ? 0 : static_cast<double>(last / stride + 1);
}

Convolution sizes_of_convolution(const OperatorCall& call, const ConvolutionOperator& rule,
                                 const OperatorInput& image, const OperatorInput& weight) {
  Convolution sizes{.rows = static_cast<double>(image.sizes[0]),
                    .columns = static_cast<double>(weight.sizes[0]),
                    .depth = static_cast<double>(weight.sizes[1]),
                    .type = image.type};
  const size_t dimensions = weight.sizes.size();
  for (size_t side = 0; side + 2 < dimensions; ++side) {
    sizes.depth *= static_cast<double>(weight.sizes[side + 2]);
    sizes.rows *= places(call, rule, side, image.sizes[side + 2], weight.sizes[side + 2]);
  }
  const auto inputs = static_cast<double>(image.sizes[1]);
  sizes.groups = std::max(1.0, inputs / static_cast<double>(weight.sizes[1]));
  sizes.bytes =
      bytes_in(image) + bytes_in(weight) + sizes.rows * sizes.columns * bytes_of(image.type);
  sizes.columns /= sizes.groups;
  return sizes;
}

}  // namespace

double bytes_of(NumberType type) {
  switch (type) {
    case NumberType::fp64:
    case NumberType::int64:
    case NumberType::complex64:
      return 8;
    case NumberType::complex128:
      return 16;
    case NumberType::fp32:
    case NumberType::tf32:
    case NumberType::int32:
      return 4;
    case NumberType::fp16:
    case NumberType::bf16:
    case NumberType::int16:
      return 2;
    case NumberType::fp8_e4m3:
    case NumberType::fp8_e5m2:
    case NumberType::int8:
    case NumberType::uint8:
    case NumberType::boolean:
      return 1;
    case NumberType::fp4:
      return 0.5;
    case NumberType::unknown:
    case NumberType::text:
      return 0;
  }
  return 0;
}

double single_numbers(std::string_view name, const OperatorCall& call) {
  if (std::ranges::find(kElementwise, plain_name(name)) == kElementwise.end()) return 0;
  const std::vector<const OperatorInput*> tensors = tensors_of(call);
  if (tensors.size() < 2) return 0;
  const auto is_unlike = [&first = *tensors[0]](const OperatorInput* tensor) {
    const bool is_wider = bytes_of(first.type) > bytes_of(tensor->type);
    return tensor->tensors == 1 && first.tensors == 1 && numbers_in(*tensor) > 1 &&
           (tensor->sizes != first.sizes || is_wider);
  };
  return std::ranges::any_of(tensors, is_unlike) ? broadcast_numbers(tensors) : 0;
}

double launches_of(const OperatorCall& call) {
  constexpr double kLargest = 2147483647;  // bytes
  double largest = 0;
  for (const OperatorInput* tensor : tensors_of(call)) {
    if (tensor->tensors == 1) largest = std::max(largest, bytes_in(*tensor));
  }
  double launches = 1;
  while (largest / launches > kLargest) launches *= 2;
  return launches;
}

bool is_over_lists(const OperatorCall& call) {
  return std::ranges::any_of(call.inputs,
                             [](const OperatorInput& input) { return input.tensors > 1; });
}

double operator_bytes(std::string_view name, const OperatorCall& call) {
  const std::vector<const OperatorInput*> tensors = tensors_of(call);
  if (tensors.empty()) return 0;
  double read = 0;
  for (const OperatorInput* tensor : tensors) read += bytes_in(*tensor);
  const double first = bytes_in(*tensors[0]);
  switch (traffic_of(name)) {
    case Traffic::reduces:
      return read;
    case Traffic::only_writes:
      return first;
    case Traffic::copies:
      return first + (tensors.size() > 1 ? bytes_in(*tensors[1]) : first);
    case Traffic::looks_up:
      return looked_up_bytes(name, tensors);
    case Traffic::scatters:
      return 3 * bytes_in(*tensors.back());
    case Traffic::compares:
      return read + broadcast_numbers(tensors);
    case Traffic::reads_twice:
      return read + 2 * first;
    case Traffic::touches_few:
      return 0;
    case Traffic::steps:
      return read + read - (tensors.size() > 1 ? bytes_in(*tensors[1]) : 0);
    case Traffic::usual:
      break;
  }
  return read + (is_in_place(name) ? first : result_bytes(tensors));
}

std::optional<Attention> attention_of(std::string_view name, const OperatorCall& call) {
  const auto rule = std::ranges::find(kAttention, name, &AttentionOperator::name);
  if (rule == kAttention.end()) return std::nullopt;
  const OperatorInput* query = input_at(call, rule->query);
  const OperatorInput* key = input_at(call, rule->query + 1);
  if (query == nullptr || key == nullptr) return std::nullopt;
  if (query->sizes.size() < 3 || key->sizes.size() != query->sizes.size()) return std::nullopt;
  const size_t skipped = query->sizes.size() == 4 ? 0 : 1;  // documents packed into one row
  const auto size = [skipped](const OperatorInput& input, size_t dimension) {
    return static_cast<double>(input.sizes[dimension - skipped]);
  };
  const size_t heads = rule->has_heads_first ? 1 : 2, tokens = rule->has_heads_first ? 2 : 1;
  return Attention{.batch = skipped == 0 ? size(*query, 0) : 1,
                   .heads = size(*query, heads),
                   .queries = size(*query, tokens),
                   .keys = size(*key, tokens),
                   .width = size(*query, 3),
                   .is_causal = is_true(call, rule->causal),
                   .is_backward = rule->is_backward,
                   .type = query->type};
}

std::optional<Convolution> convolution_of(std::string_view name, const OperatorCall& call) {
  const auto rule = std::ranges::find(kConvolutions, name, &ConvolutionOperator::name);
  if (rule == kConvolutions.end()) return std::nullopt;
  const OperatorInput* image = input_at(call, rule->input);
  const OperatorInput* weight = input_at(call, rule->weight);
  if (image == nullptr || weight == nullptr) return std::nullopt;
  const size_t dimensions = weight->sizes.size();
  if (dimensions < 3 || image->sizes.size() != dimensions) return std::nullopt;
  return sizes_of_convolution(call, *rule, *image, *weight);
}

}  // namespace shardlens::planner
