// A model as plain data: what its parameters are called, what shape they have, which unit uses
// them and in which group they are communicated.
//
// Everybody reads this and nothing else of a model: planner and viewer need no LibTorch to know
// it, and models/model.h builds the LibTorch code from it unit by unit. A *unit* is a cut point of
// the step (embed, attention i, mlp i, head): forward and backward are driven unit by unit. A
// *group* is what is gathered together (by default a block, the embedding, the head).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::models {

enum class Family { vit };

/// Sizes of a vision transformer as in torchvision.models.VisionTransformer.
struct VitSizes {
  int64_t image_px = 0;  // images are square
  int64_t patch_px = 0;  // divides image_px
  int64_t channels = 0;
  int64_t layers = 0;
  int64_t heads = 0;  // divides width
  int64_t width = 0;  // torchvision's hidden_dim
  int64_t mlp_width = 0;
  int64_t classes = 0;

  int64_t patches() const { return (image_px / patch_px) * (image_px / patch_px); }
  int64_t tokens() const { return patches() + 1; }  // the class token comes first

  bool operator==(const VitSizes&) const = default;
};

struct ParameterSpec {
  std::string name;  // torchvision's, e.g. "encoder.layers.encoder_layer_0.ln_1.weight"
  std::vector<int64_t> shape;
  std::string group;  // the group under --wrap block: "embed", "block0", ..., "head"

  int64_t numel() const;
};

enum class UnitKind { vit_embed, vit_attention, vit_mlp, vit_head };

struct UnitSpec {
  std::string name;  // "embed", "attention3", "mlp3", "head"
  UnitKind kind{};
  std::vector<int> parameters;  // indices into ModelSpec::parameters, in order of first use
  bool backward_reads_parameters = true;  // false: its backward needs no gathered weights
};

/// parameters: in the order of torchvision's state dict. units: in forward order; unit 0 takes the
/// input batch, each other unit the output of the one before it, and the last gives the logits.
struct ModelSpec {
  std::string name;
  Family family{};
  VitSizes vit;
  std::vector<ParameterSpec> parameters;
  std::vector<UnitSpec> units;

  int64_t numel() const;
};

/// The names that `find_spec` knows: "vit-tutorial", "vit-b16", ...
std::vector<std::string> preset_names();

/// A preset by name, or a JSON file (a name that ends in ".json") with a family and its sizes.
/// Throws std::invalid_argument with one line: what, why, how to mend.
ModelSpec find_spec(const std::string& name_or_file);

/// A ViT of any sizes. Throws std::invalid_argument where sizes do not divide.
ModelSpec make_vit(std::string name, const VitSizes& sizes);

}  // namespace shardlens::models
