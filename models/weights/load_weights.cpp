#include <ATen/ATen.h>

#include <cstring>

#include "models/model.h"
#include "models/weights/weight_files.h"

namespace shardlens::models {

void check_weights(const ModelSpec& spec, const std::string& path) { WeightFiles(spec, path); }

void load_parameters(const ModelSpec& spec, const std::string& path,
                     const ParameterReceiver& take) {
  const WeightFiles weights(spec, path);
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    at::Tensor value = at::empty(spec.parameters[i].shape, at::kFloat);
    // The file aligns nothing, so the bytes are copied rather than viewed.
    const auto data = weights.data_of(i);
    std::memcpy(value.data_ptr(), data.data(), data.size());
    take(static_cast<int>(i), value);
  }
}

}  // namespace shardlens::models
