#include "planner/pytorch/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "models/families.h"
#include "planner/simulate/meta/attention.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner {

using models::LlamaSizes;
using models::TransformerSizes;
using models::VitSizes;

using meta::Sizes;
using meta::Tensor;
using meta::Type;

namespace {

using Parameters = std::vector<PytorchParameter>;

/// Builds the list of a model's parameters, module by module.
class Table {
 public:
  void add(std::string name, const Sizes& shape, int unit) {
    parameters_.push_back({std::move(name), shape, unit});
  }
  void linear(const std::string& name, int64_t out, int64_t in, int unit) {
    add(name + ".weight", {out, in}, unit);
    add(name + ".bias", {out}, unit);
  }
  void norm(const std::string& name, int64_t width, int unit) {
    add(name + ".weight", {width}, unit);
    add(name + ".bias", {width}, unit);
  }
  Parameters take() { return std::move(parameters_); }

 private:
  Parameters parameters_;
};

// The weights of a block by their place among its parameters.
enum VitBlock : size_t {
  kNorm1,
  kInProjection = 2,
  kOutProjection = 4,
  kNorm2 = 6,
  kUp = 8,
  kDown = 10,
  kVitBlockSize = 12
};

Parameters vit_parameters(const VitSizes& sizes) {
  Table table;
  const int64_t width = sizes.width, patch = sizes.patch_px;
  table.add("class_token", {1, 1, width}, kRootUnit);
  table.add("conv_proj.weight", {width, sizes.channels, patch, patch}, kFirstUnit);
  table.add("conv_proj.bias", {width}, kFirstUnit);
  table.add("encoder.pos_embedding", {1, sizes.tokens(), width}, kRootUnit);
  for (int layer = 0; layer < sizes.layers; ++layer) {
    const std::string block = fmt::format("encoder.layers.encoder_layer_{}.", layer);
    table.norm(block + "ln_1", width, layer);
    table.add(block + "self_attention.in_proj_weight", {3 * width, width}, layer);
    table.add(block + "self_attention.in_proj_bias", {3 * width}, layer);
    table.linear(block + "self_attention.out_proj", width, width, layer);
    table.norm(block + "ln_2", width, layer);
    table.linear(block + "mlp.0", sizes.mlp_width, width, layer);
    table.linear(block + "mlp.3", width, sizes.mlp_width, layer);
  }
  table.norm("encoder.ln", width, kLastUnit);
  table.linear("heads.head", sizes.classes, width, kLastUnit);
  return table.take();
}

enum LlamaBlock : size_t {
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kMlpNorm,
  kGate,
  kUpward,
  kDownward,
  kLlamaBlockSize
};

Parameters llama_parameters(const LlamaSizes& sizes) {
  Table table;
  const int64_t width = sizes.width, kv_width = sizes.kv_heads * sizes.head_width();
  // A tied matrix is in one group with the head.
  table.add("tok_embeddings.weight", {sizes.vocab, width}, sizes.tied ? kLastUnit : kFirstUnit);
  for (int layer = 0; layer < sizes.layers; ++layer) {
    const std::string block = fmt::format("layers.{}.", layer);
    table.add(block + "attention_norm.weight", {width}, layer);
    table.add(block + "attention.wq.weight", {width, width}, layer);
    table.add(block + "attention.wk.weight", {kv_width, width}, layer);
    table.add(block + "attention.wv.weight", {kv_width, width}, layer);
    table.add(block + "attention.wo.weight", {width, width}, layer);
    table.add(block + "mlp_norm.weight", {width}, layer);
    table.add(block + "gate.weight", {sizes.mlp_width, width}, layer);
    table.add(block + "up.weight", {sizes.mlp_width, width}, layer);
    table.add(block + "down.weight", {width, sizes.mlp_width}, layer);
  }
  table.add("norm.weight", {width}, kLastUnit);
  if (!sizes.tied) table.add("output.weight", {sizes.vocab, width}, kLastUnit);
  return table.take();
}

enum TransformerBlock : size_t {
  kMap = 0,
  kWide = 2,
  kNarrow = 4,
  kFirstNorm = 6,
  kSecondNorm = 8
};
constexpr size_t kTransformerBlockSize = 10;

Parameters transformer_parameters(const TransformerSizes& sizes) {
  Table table;
  const int64_t width = sizes.width;
  table.add("tok_embeddings.weight", {sizes.vocab, width}, kFirstUnit);
  for (int layer = 0; layer < sizes.layers; ++layer) {
    const std::string block = fmt::format("layers.{}.", layer);
    table.linear(block + "attention", width, width, layer);
    table.linear(block + "mlp.0", sizes.mlp_width(), width, layer);
    table.linear(block + "mlp.2", width, sizes.mlp_width(), layer);
    table.norm(block + "norm1", width, layer);
    table.norm(block + "norm2", width, layer);
  }
  table.linear("output", sizes.vocab, width, kLastUnit);
  return table.take();
}

/// The base of all models: hooks, weights, operators and the loss.
class Model : public PytorchModel {
 public:
  Model(const models::ModelSpec& spec, PytorchOps& ops, const std::vector<Tensor>& weights,
        ModuleHooks& hooks, const PytorchVariant& writing)
      : spec_(spec), ops_(ops), weights_(weights), hooks_(hooks), writing_(writing) {}

  Tensor loss(const Tensor& logits) override {
    if (spec_.loss == models::LossKind::sum) return ops_.sum(logits);
    return ops_.cross_entropy(logits, writing_.own_loss_type ? logits.scalar_type() : Type::fp32);
  }

 protected:
  /// Returns the logits as the model's forward does.
  Tensor returned(Tensor logits) {
    if (writing_.fp32_logits) logits = logits.to(Type::fp32);
    return hooks_.leave(kRootUnit, logits);
  }
  const Tensor& weight(size_t index) const { return weights_[index]; }
  Tensor linear(const Tensor& input, size_t index) {
    return ops_.linear(input, weight(index), weight(index + 1));
  }
  Tensor layer_norm(const Tensor& input, size_t index) const {
    return meta::layer_norm(input, weight(index), weight(index + 1));
  }
  size_t last_weight() const { return weights_.size() - 1; }

  const models::ModelSpec& spec_;
  PytorchOps& ops_;
  const std::vector<Tensor>& weights_;
  ModuleHooks& hooks_;
  PytorchVariant writing_;
};

class Vit final : public Model {
 public:
  using Model::Model;

  Tensor forward(const Tensor& images) override {
    const Tensor input = hooks_.enter(kRootUnit, images);
    Tensor x = embed(input);
    x = encode(x);
    x = x.select(1, 0);
    x = linear(x, last_weight() - 1);
    x = hooks_.leave(kLastUnit, x);
    return returned(std::move(x));
  }

 private:
  static constexpr size_t kClassToken = 0, kConvolution = 1, kPosition = 3, kBlocks = 4;

  Tensor embed(const Tensor& images) {
    const int64_t width = spec_.as<VitSizes>().width;
    Tensor x = [&] {
      const Tensor input = hooks_.enter(kFirstUnit, images);
      return hooks_.leave(kFirstUnit,
                          ops_.conv2d(input, weight(kConvolution), weight(kConvolution + 1)));
    }();
    x = x.reshape({x.size(0), width, -1});
    x = x.permute({0, 2, 1});
    const Tensor token = weight(kClassToken).expand({x.size(0), -1, -1});
    x = meta::cat({token, x}, 1);
    return x;
  }

  Tensor encode(const Tensor& given) {
    Tensor x = ops_.add(given, weight(kPosition));
    for (int layer = 0; layer < spec_.as<VitSizes>().layers; ++layer) x = block(layer, x);
    const Tensor input = hooks_.enter(kLastUnit, x);
    return layer_norm(input, last_weight() - 3);
  }

  Tensor block(int layer, const Tensor& given) {
    const size_t first = kBlocks + static_cast<size_t>(layer) * kVitBlockSize;
    const Tensor input = hooks_.enter(layer, given);
    return hooks_.leave(layer, [&] {
      Tensor x = layer_norm(input, first + kNorm1);
      x = attention(first, x);
      x = ops_.add(x, input);
      Tensor y = layer_norm(x, first + kNorm2);
      y = mlp(first, y);
      return ops_.add(x, y);
    }());
  }

  Tensor attention(size_t first, const Tensor& input) {
    const size_t in = first + kInProjection, out = first + kOutProjection;
    return ops_.multi_head_attention(input,
                                     {weight(in), weight(in + 1), weight(out), weight(out + 1)},
                                     spec_.as<VitSizes>().heads);
  }

  Tensor mlp(size_t first, const Tensor& input) {
    Tensor x = linear(input, first + kUp);
    x = meta::gelu(x);
    x = linear(x, first + kDown);
    return x;
  }
};

class Llama final : public Model {
 public:
  using Model::Model;

  Tensor forward(const Tensor& tokens) override {
    const bool is_tied = spec_.as<LlamaSizes>().tied;
    const Tensor input = hooks_.enter(kRootUnit, tokens);
    const int unit = is_tied ? kLastUnit : kFirstUnit;
    const Tensor ids = hooks_.enter(unit, input);
    Tensor x = meta::embedding(weight(0), ids);
    if (!is_tied) x = hooks_.leave(unit, x);
    for (int layer = 0; layer < spec_.as<LlamaSizes>().layers; ++layer) x = block(layer, x);
    return returned(head(x));
  }

 private:
  static constexpr size_t kBlocks = 1;

  Tensor head(const Tensor& given) {
    const bool is_tied = spec_.as<LlamaSizes>().tied;
    const Tensor input = is_tied ? given : hooks_.enter(kLastUnit, given);
    const Tensor normed = norm(input, is_tied ? last_weight() : last_weight() - 1);
    return hooks_.leave(kLastUnit,
                        ops_.linear(normed, weight(is_tied ? 0 : last_weight()), Tensor()));
  }

  Tensor block(int layer, const Tensor& given) {
    const size_t first = kBlocks + static_cast<size_t>(layer) * kLlamaBlockSize;
    const Tensor input = hooks_.enter(layer, given);
    return hooks_.leave(layer, [&] {
      Tensor x = input;
      x = ops_.add(x, attention(first, norm(x, first + kAttentionNorm)));
      const Tensor normed = norm(x, first + kMlpNorm);
      return ops_.add(x, mlp(first, normed));
    }());
  }

  Tensor norm(const Tensor& input, size_t index) {
    return writing_.norms_by_hand ? ops_.rms_norm_by_hand(input, weight(index))
                                  : meta::rms_norm(input, weight(index));
  }

  Tensor project(const Tensor& input, size_t index) {
    return ops_.linear(input, weight(index), Tensor());
  }

  Tensor mlp(size_t first, const Tensor& input) {
    const Tensor gated = ops_.silu(project(input, first + kGate));
    return project(ops_.multiply(gated, project(input, first + kUpward)), first + kDownward);
  }

  Tensor attention(size_t first, const Tensor& x) {
    const int64_t batch = x.size(0), tokens = x.size(1),
                  width = spec_.as<LlamaSizes>().head_width();
    const auto map = [&](size_t index) {
      return project(x, first + index).view({batch, tokens, -1, width});
    };
    Tensor q = map(kQuery), k = map(kKey), v = map(kValue);
    {
      Tensor turned_q = rotate(q), turned_k = rotate(k);
      q = std::move(turned_q);
      k = std::move(turned_k);
    }
    const int64_t groups = spec_.as<LlamaSizes>().heads / spec_.as<LlamaSizes>().kv_heads;
    if (writing_.repeats_kv || q.scalar_type() == Type::fp32) {
      Tensor repeated_k = meta::repeat_interleave(k, groups, 2);
      Tensor repeated_v = meta::repeat_interleave(v, groups, 2);
      k = std::move(repeated_k);
      v = std::move(repeated_v);
    }
    q = q.transpose(1, 2);
    k = k.transpose(1, 2);
    v = v.transpose(1, 2);
    const Tensor mixed =
        meta::attention(q, k, v, {.causal = true, .grouped = q.size(1) != k.size(1)});
    return project(mixed.transpose(1, 2).reshape({batch, tokens, -1}), first + kOutput);
  }

  /// Rotates [B, T, H, E]: pairs of fp32 are multiplied as complex numbers with the rotation.
  /// Backward multiplies with its conjugate, which is a copy.
  Tensor rotate(const Tensor& input) {
    meta::Context& context = ops_.context();
    const Tensor pairs = input.to(Type::fp32);
    Tensor turned = meta::empty_like(pairs);
    if (meta::needs_node({&pairs})) {
      auto node = meta::add_node(
          {&pairs}, {},
          [&context, tokens = spec_.as<LlamaSizes>().seq, width = input.size(-1)](
              meta::Node&, meta::Tensors&& gradients) -> meta::Tensors {
            const meta::Holder conjugate(Tensor::empty(context, {tokens, 1, width}, Type::fp32));
            return {meta::empty_like(gradients[0])};
          });
      turned.set_edge({std::move(node), 0});
    }
    return turned.to(input.scalar_type());
  }
};

class Transformer final : public Model {
 public:
  using Model::Model;

  Tensor forward(const Tensor& tokens) override {
    const Tensor input = hooks_.enter(kRootUnit, tokens);
    Tensor x = [&] {
      const Tensor ids = hooks_.enter(kFirstUnit, input);
      return hooks_.leave(kFirstUnit, meta::embedding(weight(0), ids));
    }();
    for (int layer = 0; layer < spec_.as<TransformerSizes>().layers; ++layer) x = block(layer, x);
    return returned([&] {
      const Tensor entered = hooks_.enter(kLastUnit, x);
      return hooks_.leave(kLastUnit, linear(entered, last_weight() - 1));
    }());
  }

 private:
  static constexpr size_t kBlocks = 1;

  Tensor block(int layer, const Tensor& given) {
    const size_t first = kBlocks + static_cast<size_t>(layer) * kTransformerBlockSize;
    const Tensor input = hooks_.enter(layer, given);
    return hooks_.leave(layer, [&] {
      Tensor x = input;
      x = ops_.add(x, linear(layer_norm(x, first + kFirstNorm), first + kMap));
      return ops_.add(x, mlp(first, layer_norm(x, first + kSecondNorm)));
    }());
  }

  Tensor mlp(size_t first, const Tensor& input) {
    Tensor x = linear(input, first + kWide);
    x = meta::relu(x);
    x = linear(x, first + kNarrow);
    return x;
  }
};

struct Module {
  std::string name;
  std::vector<Module> children;
  std::vector<int> own;

  Module& child(std::string_view wanted) {
    const auto found = std::ranges::find(children, wanted, &Module::name);
    if (found != children.end()) return *found;
    return children.emplace_back(Module{.name = std::string(wanted), .children = {}, .own = {}});
  }

  void list(std::vector<int>& order) const {
    for (const Module& module : children) module.list(order);
    order.insert(order.end(), own.begin(), own.end());
  }
};

}  // namespace

std::vector<PytorchParameter> pytorch_parameters(const models::ModelSpec& spec) {
  if (spec.is<VitSizes>()) return vit_parameters(spec.as<VitSizes>());
  if (spec.is<LlamaSizes>()) return llama_parameters(spec.as<LlamaSizes>());
  if (spec.is<TransformerSizes>()) return transformer_parameters(spec.as<TransformerSizes>());
  throw std::invalid_argument(
      fmt::format("--engine pytorch-fsdp2 does not know how '{}' is written in Python; plan a "
                  "vision transformer, a Llama or the tutorial's transformer",
                  spec.name));
}

std::vector<int> module_order(const std::vector<PytorchParameter>& parameters) {
  Module root;
  for (size_t i = 0; i < parameters.size(); ++i) {
    Module* module = &root;
    std::string_view name = parameters[i].name;
    for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
      module = &module->child(name.substr(0, dot));
      name.remove_prefix(dot + 1);
    }
    module->own.push_back(static_cast<int>(i));
  }
  std::vector<int> order;
  root.list(order);
  return order;
}

std::unique_ptr<PytorchModel> make_pytorch_model(const models::ModelSpec& spec, PytorchOps& ops,
                                                 const std::vector<Tensor>& weights,
                                                 ModuleHooks& hooks,
                                                 const PytorchVariant& writing) {
  if (spec.is<VitSizes>()) return std::make_unique<Vit>(spec, ops, weights, hooks, writing);
  if (spec.is<LlamaSizes>()) return std::make_unique<Llama>(spec, ops, weights, hooks, writing);
  if (spec.is<TransformerSizes>()) {
    return std::make_unique<Transformer>(spec, ops, weights, hooks, writing);
  }
  unreachable("a model whose parameters nobody knows");
}

}  // namespace shardlens::planner
