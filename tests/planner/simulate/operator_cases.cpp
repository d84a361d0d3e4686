#include "tests/planner/simulate/operator_cases.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "models/model.h"
#include "models/torch_rules.h"

namespace shardlens::tests {

namespace {

at::ScalarType real_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::fp16:
      return at::kHalf;
  }
  throw std::logic_error("dtype out of range");
}

const char* name_of(DType dtype) {
  return dtype == DType::fp32 ? "fp32" : dtype == DType::bf16 ? "bf16" : "fp16";
}

/// Logs what tensors without values take.
class LoggedMemory : public planner::meta::Memory {
 public:
  int64_t allocate(int64_t bytes) override {
    log.take(static_cast<uint64_t>(++last_), bytes);
    return last_;
  }
  void free(int64_t block) override { log.give_back(static_cast<uint64_t>(block)); }

  BlockLog log;

 private:
  int64_t last_ = 0;
};

}  // namespace

// ---- what both log ------------------------------------------------------------------------------

void BlockLog::take(uint64_t address, int64_t bytes) {
  if (is_closed_) return;
  numbers_[address] = next_;
  events_.push_back({.block = next_++, .bytes = bytes});
}

void BlockLog::give_back(uint64_t address) {
  const auto block = numbers_.find(address);
  if (block == numbers_.end() || is_closed_) return;
  events_.push_back({.block = block->second});
  numbers_.erase(block);
}

std::vector<BlockEvent> without_scratch(const std::vector<BlockEvent>& libtorchs,
                                        const std::vector<BlockEvent>& planners) {
  std::vector<BlockEvent> kept;
  std::unordered_map<int64_t, int64_t> numbers;  // planner's numbers by LibTorch's
  std::unordered_set<int64_t> scratch;
  for (const BlockEvent& event : libtorchs) {
    if (event.bytes == 0 && scratch.erase(event.block) > 0) continue;
    const BlockEvent* const next = kept.size() < planners.size() ? &planners[kept.size()] : nullptr;
    const bool is_taken = event.bytes > 0;
    if (is_taken && (next == nullptr || next->bytes != event.bytes || !scratch.empty())) {
      scratch.insert(event.block);
      continue;
    }
    if (is_taken) numbers[event.block] = next->block;
    kept.push_back({.block = numbers[event.block], .bytes = event.bytes});
  }
  return scratch.empty() ? kept : libtorchs;
}

std::string difference(const std::vector<BlockEvent>& libtorchs,
                       const std::vector<BlockEvent>& planners) {
  if (libtorchs == planners) return "";
  const auto words_of = [](const std::vector<BlockEvent>& events) {
    std::string words;
    for (const auto& [block, bytes] : events) {
      words += bytes > 0 ? fmt::format(" +{}:{}", block, bytes) : fmt::format(" -{}", block);
    }
    return words;
  };
  return fmt::format("LibTorch{}; the planner{}", words_of(libtorchs), words_of(planners));
}

// ---- LibTorch -----------------------------------------------------------------------------------

at::Tensor RealApi::constant(std::initializer_list<int64_t> sizes, DType dtype) {
  leaves_.push_back(at::empty(sizes, at::dtype(real_type(dtype)).device(device_)));
  return leaves_.back();
}

at::Tensor RealApi::leaf(std::initializer_list<int64_t> sizes, DType dtype) {
  return constant(sizes, dtype).requires_grad_();
}

at::Tensor RealApi::ids(std::initializer_list<int64_t> sizes) {
  leaves_.push_back(at::empty(sizes, at::dtype(at::kLong).device(device_)));
  if (device_.is_cpu()) leaves_.back().zero_();
  return leaves_.back();
}

at::Tensor RealApi::sum(const at::Tensor& input, const std::vector<int64_t>& dims, DType type) {
  return at::sum(input, dims, /*keepdim=*/true, real_type(type));
}

at::Tensor RealApi::amax(const at::Tensor& input, const std::vector<int64_t>& dims) {
  return at::amax(input, dims, /*keepdim=*/true);
}

at::Tensor RealApi::vector_norm(const at::Tensor& input) {
  return at::linalg_vector_norm(input, 2, std::nullopt, false, at::kFloat);
}

at::Tensor RealApi::layer_norm(const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& bias) {
  return at::layer_norm(input, {input.size(-1)}, weight, bias, 1e-6);
}

at::Tensor RealApi::rms_norm(const at::Tensor& input, const at::Tensor& weight) {
  return at::rms_norm(input, {input.size(-1)}, weight, 1e-5);
}

at::Tensor RealApi::embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return at::embedding(weight, ids);
}

at::Tensor RealApi::attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, bool causal, bool grouped) {
  return at::scaled_dot_product_attention(query, key, value, {}, 0.0, causal, {}, grouped);
}

at::Tensor RealApi::repeat_interleave(const at::Tensor& input, int64_t repeats, int64_t dim) {
  return input.repeat_interleave(repeats, dim);
}

at::Tensor RealApi::linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, InputUse use) {
  return models::linear(input, weight, bias, use);
}

at::Tensor RealApi::project(const at::Tensor& input, const at::Tensor& weight, InputUse use) {
  return models::project(input, weight, use);
}

void RealApi::finish(at::Tensor output, OutputGradient kind) {
  at::Tensor gradient = kind == OutputGradient::one_number
                            ? at::empty({}, output.options()).expand(output.sizes())
                            : at::empty(output.sizes(), output.options());
  torch::autograd::Edge edge(output.grad_fn(), output.output_nr());
  output.reset();
  torch::autograd::Engine::get_default_engine().execute({std::move(edge)}, {gradient}, false, false,
                                                        true);
  gradient.reset();
  end();
}

// ---- tensors without values ---------------------------------------------------------------------

MetaApi::Tensor MetaApi::constant(std::initializer_list<int64_t> sizes, DType dtype) {
  leaves_.push_back(Tensor::empty(context_, sizes, planner::meta::type_of(dtype)));
  return leaves_.back();
}

MetaApi::Tensor MetaApi::leaf(std::initializer_list<int64_t> sizes, DType dtype) {
  constant(sizes, dtype);
  return leaves_.back().requires_grad_(true);
}

MetaApi::Tensor MetaApi::ids(std::initializer_list<int64_t> sizes) {
  leaves_.push_back(Tensor::empty(context_, sizes, planner::meta::Type::int64));
  return leaves_.back();
}

void MetaApi::finish(Tensor output, OutputGradient kind) {
  Tensor gradient = kind == OutputGradient::one_number
                        ? Tensor::empty(context_, {}, output.scalar_type()).expand(output.sizes())
                        : Tensor::empty(context_, output.sizes(), output.scalar_type());
  planner::meta::Edge edge = output.edge();
  output = {};
  planner::meta::run_backward(context_, edge, gradient);
  edge = {};
  gradient = {};
  end();
}

std::vector<BlockEvent> meta_events(const OperatorCase& operator_case,
                                    planner::meta::Context context) {
  LoggedMemory memory;
  context.memory = &memory;
  take_blas_workspace(context, planner::meta::BlasLibrary::cublas_lt);
  take_blas_workspace(context, planner::meta::BlasLibrary::cublas);
  memory.log = {};
  context.records_graph = true;
  MetaApi api(context, memory.log);
  operator_case.meta(api);
  context.workspaces = {};  // they are in the memory that ends here
  return memory.log.events();
}

// ---- cases --------------------------------------------------------------------------------------

namespace {

OperatorCase vit_attention(int64_t b, int64_t t, int64_t h, int64_t e, DType dtype) {
  return operator_case(
      fmt::format("vit attention B {} T {} H {} E {} {}", b, t, h, e, name_of(dtype)),
      [=](auto& api) {
        const auto qkv = api.add(api.leaf({b, t, 3 * h * e}, dtype), api.constant({1}, dtype));
        const auto parts = qkv.view({b, t, 3, h, e}).unbind(2);
        api.finish(api.attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                 parts[2].transpose(1, 2), false, false)
                       .transpose(1, 2)
                       .reshape({b, t, h * e}));
      });
}

/// An operator that reads `heads` [B, T, n, E] in a llama: newly made, as after a rotation.
template <class Api>
auto heads_of(Api& api, std::initializer_list<int64_t> sizes, DType dtype) {
  return api.add(api.leaf(sizes, dtype), api.constant({1}, dtype)).transpose(1, 2);
}

/// H heads, K key and value heads.
OperatorCase llama_attention(int64_t b, int64_t t, int64_t h, int64_t k, int64_t e, DType dtype,
                             bool cuda) {
  const bool takes_groups = !cuda || dtype != DType::fp32 ||
                            (models::own_torch_rules().efficient_takes_groups && e % 4 == 0);
  const int64_t repeats = takes_groups ? 1 : h / k;
  return operator_case(
      fmt::format("llama attention B {} T {} H {} K {} E {} {}", b, t, h, k, e, name_of(dtype)),
      [=](auto& api) {
        const auto repeated = [&](const auto& heads) {
          return repeats == 1 ? heads : api.repeat_interleave(heads, repeats, 1);
        };
        const auto mixed = [&] {
          const auto q = heads_of(api, {b, t, h, e}, dtype);
          const auto keys = heads_of(api, {b, t, k, e}, dtype);
          const auto values = heads_of(api, {b, t, k, e}, dtype);
          const auto key = repeated(keys), value = repeated(values);
          return api.attention(q, key, value, true, h != k && takes_groups);
        };
        api.finish(mixed().transpose(1, 2).reshape({b, t, h * e}));
      });
}

OperatorCase layer_norm_case(int64_t b, int64_t t, int64_t d, DType dtype, bool selects) {
  return operator_case(
      fmt::format("layer_norm B {} T {} D {} {}{}", b, t, d, name_of(dtype),
                  selects ? " of one token" : ""),
      [=](auto& api) {
        const auto x = api.add(api.leaf({b, t, d}, dtype), api.constant({1}, dtype));
        const auto weight = api.leaf({d}, dtype), bias = api.leaf({d}, dtype);
        api.finish(api.layer_norm(selects ? x.select(1, 0) : x, weight, bias));
      });
}

OperatorCase rms_norm_case(int64_t b, int64_t t, int64_t d, DType dtype) {
  return operator_case(
      fmt::format("rms_norm B {} T {} D {} {}", b, t, d, name_of(dtype)), [=](auto& api) {
        const auto x = api.add(api.leaf({b, t, d}, dtype), api.constant({1}, dtype));
        api.finish(api.rms_norm(x, api.leaf({d}, dtype)));
      });
}

OperatorCase embedding_case(int64_t b, int64_t t, int64_t vocab, int64_t d, DType dtype) {
  return operator_case(
      fmt::format("embedding B {} T {} V {} D {} {}", b, t, vocab, d, name_of(dtype)),
      [=](auto& api) {
        api.finish(api.embedding(api.leaf({vocab, d}, dtype), api.ids({b, t})));
      });
}

/// Reads input [B, T, in], which is laid out as [T, B, in] if it is `transposed`.
OperatorCase linear_case(int64_t b, int64_t t, int64_t in, int64_t out, DType dtype,
                         bool transposed, bool has_bias) {
  return operator_case(
      fmt::format("linear B {} T {} in {} out {} {}{}{}", b, t, in, out, name_of(dtype),
                  transposed ? " transposed" : "", has_bias ? " with bias" : ""),
      [=](auto& api) {
        const auto first = transposed ? t : b, second = transposed ? b : t;
        const auto made = api.add(api.leaf({first, second, in}, dtype), api.constant({1}, dtype));
        const auto x = transposed ? made.transpose(0, 1) : made;
        const auto weight = api.leaf({out, in}, dtype);
        api.finish(has_bias ? api.linear(x, weight, api.leaf({out}, dtype))
                            : api.project(x, weight));
      });
}

/// A linear of a norm's output, whose memory takes the gradient.
OperatorCase spending_case(int64_t rows, int64_t in, int64_t out, DType dtype, bool has_bias,
                           OutputGradient kind) {
  return operator_case(
      fmt::format("spending linear rows {} in {} out {} {}{}{}", rows, in, out, name_of(dtype),
                  has_bias ? " with bias" : "",
                  kind == OutputGradient::one_number ? " of a mean" : ""),
      [=](auto& api) {
        const auto normed = api.rms_norm(api.leaf({rows, in}, dtype), api.leaf({in}, dtype));
        const auto weight = api.leaf({out, in}, dtype);
        api.finish(has_bias ? api.linear(normed, weight, api.leaf({out}, dtype), InputUse::spent)
                            : api.project(normed, weight, InputUse::spent),
                   kind);
      });
}

/// Sums, maximum and norm of [a, b, c], read in the order `order`.
OperatorCase reduction_case(const std::array<int64_t, 3>& sizes, const std::array<int, 3>& order,
                            const std::vector<int64_t>& dims, DType dtype, DType result) {
  return operator_case(
      fmt::format("reduction of {} read as {} over {}, {} to {}", fmt::join(sizes, " "),
                  fmt::join(order, " "), fmt::join(dims, " "), name_of(dtype), name_of(result)),
      [=](auto& api) {
        const auto x = api.constant({sizes[0], sizes[1], sizes[2]}, dtype)
                           .permute({order[0], order[1], order[2]});
        api.sum(x, dims, result);
        api.amax(x, dims);
        api.vector_norm(x);
        api.end();
      });
}

constexpr std::array kTypes = {DType::fp32, DType::bf16, DType::fp16};

/// vit-tutorial, vit-b16, vit-l16, vit-h14, vit-22b: tokens, heads, head width.
constexpr std::array<std::array<int64_t, 3>, 5> kVits = {
    {{17, 4, 16}, {197, 12, 64}, {197, 16, 64}, {257, 16, 80}, {257, 48, 128}}};
/// llama-1b, llama-8b and small ones: heads, key heads, head width.
constexpr std::array<std::array<int64_t, 3>, 4> kLlamas = {
    {{32, 8, 64}, {32, 8, 128}, {4, 2, 16}, {32, 32, 64}}};

void add_vit_cases(std::vector<OperatorCase>& cases, int64_t most_elements, DType dtype) {
  for (const auto& [t, h, e] : kVits) {
    for (const int64_t b : {1, 2, 3, 8, 64}) {
      if (b * t * h * e > most_elements) continue;
      cases.push_back(vit_attention(b, t, h, e, dtype));
      cases.push_back(layer_norm_case(b, t, h * e, dtype, false));
      cases.push_back(layer_norm_case(b, t, h * e, dtype, true));
      cases.push_back(reduction_case({b, t, h * e}, {0, 1, 2}, {0, 1}, dtype, dtype));
      cases.push_back(reduction_case({b, t, h * e}, {0, 1, 2}, {0}, dtype, dtype));
    }
  }
}

/// Operators computed without a graph, as for validation.
OperatorCase forward_case(int64_t b, int64_t t, int64_t h, int64_t k, int64_t e, DType dtype,
                          bool causal) {
  return operator_case(
      fmt::format("forward B {} T {} H {} K {} E {} {} causal {}", b, t, h, k, e, name_of(dtype),
                  causal),
      [=](auto& api) {
        const auto q = api.constant({b, t, h, e}, dtype), keys = api.constant({b, t, k, e}, dtype);
        const auto values = api.constant({b, t, k, e}, dtype);
        const auto mixed = api.attention(q.transpose(1, 2), keys.transpose(1, 2),
                                         values.transpose(1, 2), causal, h != k);
        const auto weight = api.constant({e}, dtype), bias = api.constant({e}, dtype);
        const auto normed = api.layer_norm(mixed, weight, bias);
        const auto rms_normed = api.rms_norm(mixed, weight);
        api.end();
      });
}

void add_forward_cases(std::vector<OperatorCase>& cases, DType dtype) {
  for (const int64_t e : {16, 42, 64, 80, 128}) {
    for (const bool causal : {false, true}) {
      cases.push_back(forward_case(2, 33, 4, 4, e, dtype, causal));
      cases.push_back(forward_case(1, 200, 4, 2, e, dtype, causal));
      cases.push_back(forward_case(3, 1, 4, 2, e, dtype, causal));
    }
  }
}

/// Reductions too large for 32-bit indices.
void add_vast_cases(std::vector<OperatorCase>& cases) {
  constexpr std::array<std::array<int, 3>, 2> kOrders = {{{0, 1, 2}, {2, 1, 0}}};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const auto& order : kOrders) {
      for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0, 1, 2}, {0, 1}, {2}, {1}}) {
        cases.push_back(reduction_case({5, 70000, 4096}, order, dims, dtype, dtype));
      }
    }
    cases.push_back(reduction_case({1, 600000, 2048}, {0, 1, 2}, {0, 1}, dtype, DType::fp32));
  }
}

void add_llama_cases(std::vector<OperatorCase>& cases, int64_t most_elements, DType dtype,
                     bool cuda) {
  for (const auto& [h, k, e] : kLlamas) {
    for (const int64_t t : {1, 2, 64, 200, 1024, 2048}) {
      for (const int64_t b : {1, 2, 8}) {
        if (b * t * h * e > most_elements) continue;
        cases.push_back(llama_attention(b, t, h, k, e, dtype, cuda));
        cases.push_back(rms_norm_case(b, t, h * e, dtype));
        cases.push_back(embedding_case(b, t, 3000, 256, dtype));
        cases.push_back(embedding_case(b, t, 20, 32, dtype));
      }
    }
  }
}

void add_linear_cases(std::vector<OperatorCase>& cases, DType dtype) {
  for (const auto& [b, t, in, out] : std::vector<std::array<int64_t, 4>>{
           {2, 17, 64, 192}, {1, 1, 64, 10}, {3, 200, 48, 1}, {2, 5, 1, 7}, {1, 33, 31, 29}}) {
    for (const bool has_bias : {false, true}) {
      cases.push_back(linear_case(b, t, in, out, dtype, false, has_bias));
      cases.push_back(linear_case(b, t, in, out, dtype, true, has_bias));
      for (const auto kind : {OutputGradient::written_out, OutputGradient::one_number}) {
        cases.push_back(spending_case(b * t, in, out, dtype, has_bias, kind));
      }
    }
  }
}

/// Table sizes whose largest row number just needs one more digit.
void add_digit_cases(std::vector<OperatorCase>& cases) {
  for (const int64_t vocab : {255, 256, 257, 65535, 65536, 131072}) {
    cases.push_back(embedding_case(4, 1024, vocab, 8, DType::fp32));
  }
}

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}

  int64_t number_between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine_);
  }
  /// All orders of magnitude are equally likely.
  int64_t number_up_to(int64_t most) {
    const double power = std::uniform_real_distribution<>(0, std::log2(most + 1.0))(engine_);
    return static_cast<int64_t>(std::exp2(power));
  }
  template <class List>
  auto one_of(const List& list) {
    return list[static_cast<size_t>(number_between(0, static_cast<int64_t>(list.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

OperatorCase random_reduction(Dice& dice, int64_t most_elements) {
  const int64_t a = dice.number_up_to(300), b = dice.number_up_to(4000);
  const int64_t c = dice.number_up_to(std::max<int64_t>(most_elements / (a * b), 1));
  constexpr std::array<std::array<int, 3>, 4> kOrders = {
      {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}}};
  const std::vector<std::vector<int64_t>> dims = {{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}};
  const DType dtype = dice.one_of(kTypes);
  const DType result = dice.number_between(0, 1) == 0 ? DType::fp32 : dtype;
  return reduction_case({a, b, c}, dice.one_of(kOrders), dice.one_of(dims), dtype, result);
}

OperatorCase random_attention(Dice& dice, int64_t most_elements, bool cuda) {
  const DType dtype = dice.one_of(kTypes);
  const int64_t e =
      dice.number_between(0, 3) == 0 ? dice.number_between(1, 288) : 8 * dice.number_between(1, 32);
  const int64_t k = dice.number_up_to(8), h = k * dice.number_up_to(8), b = dice.number_up_to(64);
  const int64_t t = dice.number_up_to(std::clamp<int64_t>(most_elements / (b * h * e), 1, 2048));
  return dice.number_between(0, 1) == 0 ? vit_attention(b, t, h, e, dtype)
                                        : llama_attention(b, t, h, k, e, dtype, cuda);
}

/// On some CPUs attention and products in reduced precision take scratch memory of their own.
void note_scratch(std::vector<OperatorCase>& cases) {
  for (OperatorCase& operator_case : cases) {
    const std::string& name = operator_case.name;
    const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
    operator_case.takes_scratch = (has("attention") || has("linear")) && !has("fp32");
  }
}

}  // namespace

std::vector<OperatorCase> realistic_cases(c10::DeviceType device) {
  const bool cuda = device == c10::kCUDA;
  // The CPU really computes.
  const int64_t most_elements = cuda ? int64_t{1} << 40 : int64_t{1} << 20;
  std::vector<OperatorCase> cases;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    add_vit_cases(cases, most_elements, dtype);
    add_llama_cases(cases, most_elements, dtype, cuda);
    add_forward_cases(cases, dtype);
    add_linear_cases(cases, dtype);
  }
  if (cuda) {
    add_vast_cases(cases);
    add_digit_cases(cases);
  }
  if (!cuda) note_scratch(cases);
  return cases;
}

std::vector<OperatorCase> random_cases(c10::DeviceType device, uint32_t seed, int rounds) {
  const bool cuda = device == c10::kCUDA;
  const int64_t most_elements = cuda ? int64_t{1} << 28 : int64_t{1} << 18;
  Dice dice(seed);
  std::vector<OperatorCase> cases;
  for (int i = 0; i < rounds; ++i) {
    const DType dtype = dice.one_of(kTypes);
    const int64_t d = dice.number_up_to(4096), b = dice.number_up_to(64);
    const int64_t t = dice.number_up_to(std::clamp<int64_t>(most_elements / (b * d), 1, 100000));
    const int64_t vocab = dice.number_up_to(cuda ? 130000 : 1000);
    cases.push_back(random_attention(dice, most_elements, cuda));
    cases.push_back(random_reduction(dice, most_elements));
    cases.push_back(layer_norm_case(b, t, d, dtype, dice.number_between(0, 3) == 0));
    cases.push_back(rms_norm_case(b, t, d, dtype));
    cases.push_back(embedding_case(b, t, vocab, dice.number_up_to(512), dtype));
    for (size_t j = cases.size() - 5; j < cases.size(); ++j) {
      cases[j].name += fmt::format(", seed {} round {}", seed, i);
    }
  }
  if (!cuda) note_scratch(cases);
  return cases;
}

}  // namespace shardlens::tests
