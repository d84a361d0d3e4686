// A model as plain data: its parameters' names and shapes, which unit uses them and in which group
// they are communicated.
//
// Other folders read this and nothing else of a model, whatever its family: planner and viewer need
// no LibTorch to know a model, and models/model.h builds the LibTorch code from it unit by unit. A
// *unit* is a cut point of the step (embed, attention i, mlp i, head): forward and backward are
// driven unit by unit. A *group* is a set of units that is gathered together (by default a block,
// the embedding, the head; if the head is tied to the embedding, both are one group).
#pragma once

#include <any>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardlens::models {

enum class InputKind { images, features, tokens };

/// One sample of the input. Images and features are fp32, token ids and targets int64.
struct SampleSpec {
  InputKind input{};
  std::vector<int64_t> shape;         // {channels, height, width}, {features} or {seq}
  std::vector<int64_t> target_shape;  // {}: one class a sample; {seq}: one a token
  int64_t classes = 0;                // targets and token ids are below this
};

/// The kind of a loss. `sum`: the sum of all logits, with no target.
enum class LossKind { mean_cross_entropy, sum };

struct ParameterSpec {
  std::string name;  // as in the PyTorch model's state dict, e.g. "model.norm.weight"
  std::vector<int64_t> shape;
  std::string group{};  // the group under --wrap block: "embed", "block0", ..., "head"

  int64_t numel() const;
};

/// The attention of a unit, with which cost and largest tensors are estimated.
struct AttentionSpec {
  int64_t heads = 0;  // 0: the unit does not attend
  int64_t tokens = 0;
  int64_t width = 0;  // of all heads together
  bool is_causal = false;
};

struct UnitSpec {
  std::string name;  // "embed", "attention3", "mlp3", "head"
  int kind = 0;  // a value of the family's own enum, such as VitUnit; 0 in a program's own model
  std::vector<int> parameters{};  // indices into ModelSpec::parameters, in order of first use
  bool backward_reads_parameters = true;  // false: its backward needs no gathered weights
  int64_t rows = 1;       // that its matrices multiply for one sample: its tokens, or patches
  bool looks_up = false;  // rows of its matrix are copied, not multiplied: an embedding
  AttentionSpec attention{};
};

/// Says how start weights are drawn: as PyTorch's modules draw theirs, one after the other; all
/// matrices normal with one deviation, as in a Llama; or as torchvision's VisionTransformer does.
enum class StartWeights { modules, normal, torchvision };

/// Says what becomes of the input of a product. Backward writes the input's gradient over an input
/// that is spent, once the weight's is computed, so that a product never holds both. No other node
/// of the graph may have saved that input: a GELU's output is fit for it, a ReLU's or an
/// attention's is not.
enum class InputUse : uint8_t { kept, spent };

/// A model. Parameters are in the order of the state dict, units in forward order: unit 0 takes the
/// input batch, each other unit the output of the one before it, and the last gives the logits.
struct ModelSpec {
  std::string name;
  std::any sizes;  // of its family, as in models/vit.h; empty in a program's own model

  SampleSpec sample;
  LossKind loss{};
  StartWeights start_weights{};
  std::vector<ParameterSpec> parameters;
  std::vector<UnitSpec> units;

  /// True if the model is of the family that has such sizes.
  template <class FamilySizes>
  bool is() const {
    return std::any_cast<FamilySizes>(&sizes) != nullptr;
  }
  /// Returns the sizes of a model of that family; std::bad_any_cast for any other.
  template <class FamilySizes>
  const FamilySizes& as() const {
    return std::any_cast<const FamilySizes&>(sizes);
  }

  int64_t numel() const;
  /// Returns the bytes of `batch` samples, as the model takes them.
  int64_t input_bytes(int64_t batch) const;
  int64_t target_bytes(int64_t batch) const;
};

/// Returns the names that `find_spec` knows: "vit-tutorial", "vit-b16", ...
std::vector<std::string> preset_names();

/// Finds a preset by name, or reads a JSON file (a name that ends in ".json"): a family with its
/// sizes, or the config.json of a Hugging Face Llama or Mistral. `seq`: tokens per sample, 0 for
/// the model's own. Throws std::invalid_argument with one line: what, why, how to fix it; also for
/// a `seq` if the model takes no tokens.
ModelSpec find_spec(const std::string& name_or_file, int64_t seq = 0);

/// Returns lines to print that say how a Hugging Face config.json was read; empty for any other
/// name. Throws as `find_spec` does for such a file.
std::vector<std::string> notes_on(const std::string& name_or_file);

/// Returns the same model with another number of layers; nothing if its family has no such number.
/// Throws std::invalid_argument if the sizes overflow.
std::optional<ModelSpec> with_layers(const ModelSpec& spec, int64_t layers);

}  // namespace shardlens::models
