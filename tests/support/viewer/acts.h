// A user's acts on a presenter, and what is found in the resulting picture.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

inline void act(Presenter& presenter, std::string_view id) {
  REQUIRE(find_command(id) != nullptr);
  presenter.perform(*find_command(id));
}

inline void act(Presenter& presenter, std::initializer_list<std::string_view> ids) {
  for (const std::string_view id : ids) act(presenter, id);
}

inline std::vector<Area> areas_of(const Picture& picture, Area::Kind kind) {
  std::vector<Area> areas;
  std::ranges::copy_if(picture.areas, std::back_inserter(areas),
                       [&](const Area& area) { return area.kind == kind; });
  return areas;
}

inline bool says(const Picture& picture, const std::string& text) {
  return to_text(picture).find(text) != std::string::npos;
}

}  // namespace shardlens::viewer
