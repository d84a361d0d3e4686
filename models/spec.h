// A model as plain data: its parameters' names and shapes, which unit uses them and in which group
// they are communicated.
//
// All other folders read this and nothing else of a model: planner and viewer need no LibTorch to
// know it, and models/model.h builds the LibTorch code from it unit by unit. A *unit* is a cut
// point of the step (embed, attention i, mlp i, head): forward and backward are driven unit by
// unit. A *group* is a set of units that is gathered together (by default a block, the embedding,
// the head; if the head is tied to the embedding, both are one group).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::models {

/// The family of a model. `own`: the model of a program, whose code only that program has
/// (models/model.h).
enum class Family { vit, llama, mlp, transformer, own };

/// Holds the sizes of a vision transformer, as in torchvision.models.VisionTransformer.
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

/// Holds the sizes of a decoder, as in Hugging Face's LlamaForCausalLM: RMSNorm, rotary positions,
/// grouped-query attention, SwiGLU.
struct LlamaSizes {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;     // divides width
  int64_t kv_heads = 0;  // divides heads
  int64_t mlp_width = 0;
  int64_t vocab = 0;
  int64_t seq = 2048;           // tokens a sample
  int64_t rope_theta = 500000;  // base of the rotary positions' wave lengths
  int64_t rope_factor = 1;      // Llama 3.1's stretch of the long ones; 1: none
  bool tied = false;            // the head's matrix is the embedding's

  int64_t head_width() const { return width / heads; }

  bool operator==(const LlamaSizes&) const = default;
};

/// Holds the sizes of an MLP: linear layers with ReLU between them.
struct MlpSizes {
  int64_t inputs = 0;
  int64_t width = 0;
  int64_t layers = 1;  // hidden ones
  int64_t classes = 0;

  bool operator==(const MlpSizes&) const = default;
};

/// Holds the sizes of the simplified transformer of "PyTorch FSDP2: A Practical Guide", which has a
/// linear layer in the place of attention.
struct TransformerSizes {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t vocab = 0;
  int64_t seq = 512;  // tokens a sample

  int64_t mlp_width() const { return 4 * width; }

  bool operator==(const TransformerSizes&) const = default;
};

enum class InputKind { images, features, tokens };

/// One sample of the input. Images and features are fp32, token ids and targets int64.
struct SampleSpec {
  InputKind input{};
  std::vector<int64_t> shape;         // {channels, height, width}, {features} or {seq}
  std::vector<int64_t> target_shape;  // {}: one class a sample; {seq}: one a token
  int64_t classes = 0;                // targets, and token ids, are below this
};

/// The kind of a loss. `sum`: the sum of all logits, with no target.
enum class LossKind { mean_cross_entropy, sum };

struct ParameterSpec {
  std::string name;  // as in the PyTorch model's state dict, e.g. "model.norm.weight"
  std::vector<int64_t> shape;
  std::string group{};  // the group under --wrap block: "embed", "block0", ..., "head"

  int64_t numel() const;
};

enum class UnitKind {
  vit_embed,
  vit_attention,
  vit_mlp,
  vit_head,
  token_embed,  // of llama and transformer
  llama_attention,
  llama_mlp,
  llama_head,
  mlp_input,   // linear, ReLU
  mlp_hidden,  // the same behind another layer
  mlp_output,  // linear
  transformer_attention,
  transformer_mlp,
  transformer_head,
  own,
};

struct UnitSpec {
  std::string name;  // "embed", "attention3", "mlp3", "head"
  UnitKind kind{};
  std::vector<int> parameters;  // indices into ModelSpec::parameters, in order of first use
  bool backward_reads_parameters = true;  // false: its backward needs no gathered weights
};

/// A model. Parameters are in the order of the state dict, units in forward order: unit 0 takes the
/// input batch, each other unit the output of the one before it, and the last gives the logits.
struct ModelSpec {
  std::string name;
  Family family{};
  // The sizes of the family; the others stay as they are.
  VitSizes vit;
  LlamaSizes llama;
  MlpSizes mlp;
  TransformerSizes transformer;

  SampleSpec sample;
  LossKind loss{};
  std::vector<ParameterSpec> parameters;
  std::vector<UnitSpec> units;

  int64_t numel() const;
  /// Returns the bytes of `batch` samples, as the model takes them.
  int64_t input_bytes(int64_t batch) const;
  int64_t target_bytes(int64_t batch) const;
};

/// Returns the names that `find_spec` knows: "vit-tutorial", "vit-b16", ...
std::vector<std::string> preset_names();

/// Finds a preset by name, or reads a JSON file (a name that ends in ".json"): a family with its
/// sizes, or the config.json of a Llama or Mistral of Hugging Face. `seq`: tokens per sample, 0 for
/// the model's own. Throws std::invalid_argument with one line: what, why, how to fix it; also for
/// a `seq` if the model takes no tokens.
ModelSpec find_spec(const std::string& name_or_file, int64_t seq = 0);

/// Returns lines to print that say how a Hugging Face config.json was read; empty for any other
/// name. Throws as `find_spec` does for such a file.
std::vector<std::string> notes_on(const std::string& name_or_file);

/// These make models of any sizes. All throw std::invalid_argument if sizes do not divide, or
/// overflow.
ModelSpec make_vit(std::string name, const VitSizes& sizes);
ModelSpec make_llama(std::string name, const LlamaSizes& sizes);
ModelSpec make_mlp(std::string name, const MlpSizes& sizes);
ModelSpec make_transformer(std::string name, const TransformerSizes& sizes);

}  // namespace shardlens::models
