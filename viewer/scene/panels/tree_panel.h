// The panel of the tree: what presses and scrolling need to know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/paint/picture.h"
#include "viewer/scene/scene.h"

namespace shardlens::viewer {

/// The groups of choices in the panel's head, in the order of their areas' numbers.
enum class TreeChoice : uint8_t { of, by, from, form };

void choose_in_tree(ViewState& state, TreeChoice group, size_t index);

/// Returns how many rows the panel has below its head.
size_t tree_rows(const SceneInput& input, ImageCache& cache);

/// Returns the place that fills the width after the current one is left: the next one above with
/// other content.
std::vector<std::string> tree_above(const SceneInput& input, ImageCache& cache);

/// Returns the text about a frame or a row under the pointer.
std::string tree_hover_text(const SceneInput& input, ImageCache& cache, uint32_t node);

}  // namespace shardlens::viewer
