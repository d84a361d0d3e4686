// The list of families. A new one is a header like vit.h, its source, and one more type here
// (docs/add_model_family.md): files, presets, units and start weights follow from its functions.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "models/llama.h"
#include "models/mlp.h"
#include "models/spec.h"
#include "models/transformer.h"
#include "models/vit.h"

namespace shardlens::models {

using ModelSizes = std::variant<VitSizes, LlamaSizes, MlpSizes, TransformerSizes>;

/// Calls `visit` with the default sizes of each family, in the order of the list.
template <class Visit>
void for_each_family(Visit visit) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (visit(std::variant_alternative_t<kIndex, ModelSizes>{}), ...);
  }
  (std::make_index_sequence<std::variant_size_v<ModelSizes>>());
}

/// Calls `visit` with the sizes of the model. Returns false, and does not call it, if the model is
/// a program's own.
template <class Visit>
bool visit_sizes(const ModelSpec& spec, Visit visit) {
  bool is_visited = false;
  for_each_family([&](const auto& family) {
    using FamilySizes = std::decay_t<decltype(family)>;
    if (!spec.is<FamilySizes>()) return;
    visit(spec.as<FamilySizes>());
    is_visited = true;
  });
  return is_visited;
}

}  // namespace shardlens::models
