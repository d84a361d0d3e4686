// Reads safetensors files, as weights of --init and `infer`, and as input of `checkpoint import`.

#include "models/weights/safetensors.h"
#include "models/families.h"

#include "models/weights/weight_files.h"
#include "runtime/checkpoint/interchange/saved_state.h"
#include "runtime/checkpoint/interchange/trained_model.h"
#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

namespace {

/// A model of one layer, whose names and shapes an input can hit.
const models::ModelSpec& small_model() {
  static const models::ModelSpec spec = models::make_spec(
      "small", models::MlpSizes{.inputs = 2, .width = 2, .layers = 1, .classes = 2});
  return spec;
}

void load_weights(const std::string& path) {
  answers([&] {
    const models::WeightFiles weights(small_model(), path);
    for (size_t i = 0; i < small_model().parameters.size(); ++i) {
      const auto numel = static_cast<size_t>(small_model().parameters[i].numel());
      expect(weights.data_of(i).size() == numel * sizeof(float), "weights have another size");
    }
  });
}

}  // namespace

void safetensors(std::string_view input) {
  const std::string path = write_parts({{"model.safetensors", std::string(input)}}, empty_folder());
  answers([&] {
    const models::SafetensorsFile file(path);
    size_t bytes = 0;
    for (const models::SafetensorsTensor& tensor : file.tensors()) {
      expect(file.find(tensor.name) == &tensor, "a tensor is not found by its name");
      bytes += tensor.data.size();
    }
    expect(bytes < input.size(), "tensors are larger than their file");
  });
  load_weights(path);
  answers([&] { runtime::find_model(runtime::read_saved_state(path), path); });
}

}  // namespace shardlens::fuzz
