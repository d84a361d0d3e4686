#include "models/presets.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace shardlens::models {
namespace {

VitSizes vit(int64_t patch_px, int64_t layers, int64_t heads, int64_t width) {
  return {.image_px = 224,
          .patch_px = patch_px,
          .channels = 3,
          .layers = layers,
          .heads = heads,
          .width = width,
          .mlp_width = 4 * width,
          .classes = 1000};
}

/// Returns the sizes of Llama 3.1 and 3.2, which differ in sizes and in how far they stretch rotary
/// positions.
LlamaSizes llama(int64_t layers, int64_t width, int64_t heads, int64_t mlp_width,
                 int64_t rope_factor) {
  return {.layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = 8,
          .mlp_width = mlp_width,
          .vocab = 128256,
          .rope_factor = rope_factor};
}

LlamaSizes tied(LlamaSizes sizes) {
  sizes.tied = true;
  return sizes;
}

const std::vector<Preset>& table() {
  static const std::vector<Preset> kTable = {
      {"vit-tutorial", VitSizes{.image_px = 28,
                                .patch_px = 7,
                                .channels = 1,
                                .layers = 10,
                                .heads = 2,
                                .width = 128,
                                .mlp_width = 128,
                                .classes = 10}},
      {"vit-b16", vit(16, 12, 12, 768)},
      {"vit-l16", vit(16, 24, 16, 1024)},
      {"vit-h14", vit(14, 32, 16, 1280)},
      {"vit-22b", vit(14, 48, 48, 6144)},
      {"llama-1b", tied(llama(16, 2048, 32, 8192, 32))},
      {"llama-8b", llama(32, 4096, 32, 14336, 8)},
      {"llama-70b", llama(80, 8192, 64, 28672, 8)},
      {"simple-model", MlpSizes{.inputs = 1024, .width = 1024, .layers = 1, .classes = 10}},
      {"transformer", TransformerSizes{.layers = 3, .width = 512, .vocab = 10000}},
  };
  return kTable;
}

// Keeps letters and digits only, so that "ViT_B_16", torchvision's spelling, is vit-b16 itself.
std::string plain(const std::string& name) {
  std::string letters;
  for (const unsigned char c : name) {
    if (std::isalnum(c)) letters.push_back(static_cast<char>(std::tolower(c)));
  }
  return letters;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const Preset> presets() { return table(); }

std::string nearest_preset(const std::string& name) {
  constexpr size_t kNear = 2;
  constexpr size_t kLongestName = 64;
  if (name.size() > kLongestName) return "";
  std::string nearest;
  size_t best = kNear + 1;
  for (const Preset& preset : presets()) {
    const size_t distance = edit_distance(plain(name), plain(preset.name));
    if (distance < best) {
      best = distance;
      nearest = preset.name;
    }
  }
  return nearest;
}

}  // namespace shardlens::models
