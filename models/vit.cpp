#include <fmt/format.h>

#include <array>
#include <numeric>

#include "models/vit.h"

namespace shardlens::models {
namespace {

constexpr std::array<SizeKey<VitSizes>, 8> kVitKeys = {{
    {"image_px", &VitSizes::image_px, int64_t{1} << 16},
    {"patch_px", &VitSizes::patch_px, int64_t{1} << 16},
    {"channels", &VitSizes::channels, int64_t{1} << 16},
    {"layers", &VitSizes::layers, kMostLayers},
    {"heads", &VitSizes::heads, kMostWidth},
    {"width", &VitSizes::width, kMostWidth},
    {"mlp_width", &VitSizes::mlp_width, kMostMlpWidth},
    {"classes", &VitSizes::classes, kMostClasses},
}};

/// Returns the sizes of a model of ImageNet's images and classes.
VitSizes imagenet_sizes(int64_t patch_px, int64_t layers, int64_t heads, int64_t width) {
  return {.image_px = 224,
          .patch_px = patch_px,
          .channels = 3,
          .layers = layers,
          .heads = heads,
          .width = width,
          .mlp_width = 4 * width,
          .classes = 1000};
}

double approximate_vit_numel(const VitSizes& s) {
  const auto width = static_cast<double>(s.width);
  const auto mlp_width = static_cast<double>(s.mlp_width);
  const auto patch = static_cast<double>(s.patch_px) * static_cast<double>(s.patch_px);
  const double block = 4 * width * width + 2 * width * mlp_width + 9 * width + mlp_width;
  const double embed =
      width * (static_cast<double>(s.channels) * patch + static_cast<double>(s.tokens()) + 2);
  return embed + static_cast<double>(s.layers) * block +
         static_cast<double>(s.classes) * (width + 1) + 2 * width;
}

Problem vit_problem(const VitSizes& sizes) {
  if (auto problem = range_problem(sizes)) return problem;
  if (auto problem = division_problem("patch_px", sizes.patch_px, "image_px", sizes.image_px)) {
    return problem;
  }
  if (auto problem = division_problem("heads", sizes.heads, "width", sizes.width)) return problem;
  return numel_problem(sizes.width, approximate_vit_numel(sizes));
}

// Builds the spec of a vision transformer. The order of the state dict and that of use differ only
// in the embedding, where torchvision lists the class token before the convolution that runs first.
class VitBuilder : SpecBuilder {
 public:
  VitBuilder(std::string name, const VitSizes& sizes)
      : SpecBuilder(std::move(name), sizes), s_(sizes) {}

  ModelSpec build() {
    spec.sample = {InputKind::images, {s_.channels, s_.image_px, s_.image_px}, {}, s_.classes};
    spec.start_weights = StartWeights::torchvision;
    add_embed();
    for (int64_t layer = 0; layer < s_.layers; ++layer) add_block(layer);
    const auto norm = add_layer_norm("encoder.ln", s_.width, "head");
    const auto linear = add_linear("heads.head", s_.classes, s_.width, "head");
    add_unit("head", VitUnit::head, 1, joined(norm, linear));
    return std::move(spec);
  }

 private:
  void add_embed() {
    const int token = add("class_token", {1, 1, s_.width}, "embed");
    const int weight =
        add("conv_proj.weight", {s_.width, s_.channels, s_.patch_px, s_.patch_px}, "embed");
    const int bias = add("conv_proj.bias", {s_.width}, "embed");
    const int position = add("encoder.pos_embedding", {1, s_.tokens(), s_.width}, "embed");
    // Images need no gradient, so the convolution's weight is not read again.
    add_unit("embed", VitUnit::embed, s_.patches(), {weight, bias, token, position})
        .backward_reads_parameters = false;
  }

  void add_block(int64_t layer) {
    const std::string group = fmt::format("block{}", layer);
    const std::string prefix = fmt::format("encoder.layers.encoder_layer_{}.", layer);
    const int64_t width = s_.width;
    const auto declare = [&](const char* name, std::vector<int64_t> shape) {
      return add(prefix + name, std::move(shape), group);
    };
    const int attention = declare("ln_1.weight", {width});
    declare("ln_1.bias", {width});
    declare("self_attention.in_proj_weight", {3 * width, width});
    declare("self_attention.in_proj_bias", {3 * width});
    declare("self_attention.out_proj.weight", {width, width});
    declare("self_attention.out_proj.bias", {width});
    const int mlp = declare("ln_2.weight", {width});
    declare("ln_2.bias", {width});
    declare("mlp.0.weight", {s_.mlp_width, width});
    declare("mlp.0.bias", {s_.mlp_width});
    declare("mlp.3.weight", {width, s_.mlp_width});
    declare("mlp.3.bias", {width});
    add_unit(fmt::format("attention{}", layer), VitUnit::attention, s_.tokens(),
             six_from(attention))
        .attention = {.heads = s_.heads, .tokens = s_.tokens(), .width = width};
    add_unit(fmt::format("mlp{}", layer), VitUnit::mlp, s_.tokens(), six_from(mlp));
  }

  static std::vector<int> six_from(int first) {
    std::vector<int> indices(6);
    std::iota(indices.begin(), indices.end(), first);
    return indices;
  }

  VitSizes s_;
};

}  // namespace

std::span<const SizeKey<VitSizes>> keys_of(const VitSizes&) { return kVitKeys; }

std::vector<std::pair<std::string, VitSizes>> presets_of(const VitSizes&) {
  return {{"vit-tutorial",
           {.image_px = 28,
            .patch_px = 7,
            .channels = 1,
            .layers = 10,
            .heads = 2,
            .width = 128,
            .mlp_width = 128,
            .classes = 10}},
          {"vit-b16", imagenet_sizes(16, 12, 12, 768)},
          {"vit-l16", imagenet_sizes(16, 24, 16, 1024)},
          {"vit-h14", imagenet_sizes(14, 32, 16, 1280)},
          {"vit-22b", imagenet_sizes(14, 48, 48, 6144)}};
}

ModelSpec make_spec(std::string name, const VitSizes& sizes) {
  if (const auto problem = vit_problem(sizes)) refuse_sizes(name, *problem);
  return VitBuilder(std::move(name), sizes).build();
}

}  // namespace shardlens::models
