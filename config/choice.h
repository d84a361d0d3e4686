// Closed choices: enumerations of which a user names a value by its word, as in --strategy fsdp.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace shardlens::planner {

/// The words of an enumeration's values, in their order from 0. An enumeration becomes a closed
/// choice when it specializes this:
///
///     enum class Sync { every, last };
///     template <>
///     inline constexpr auto kWordsOf<Sync> = words("every", "last");
template <class Enumeration>
inline constexpr std::array<std::string_view, 0> kWordsOf{};

template <class... Words>
constexpr auto words(Words... all) {
  return std::array<std::string_view, sizeof...(Words)>{all...};
}

template <class Type>
concept ClosedChoice = std::is_enum_v<Type> && !kWordsOf<Type>.empty();

template <ClosedChoice Choice>
constexpr std::string_view to_string(Choice choice) {
  const auto index = static_cast<size_t>(choice);
  if (index >= kWordsOf<Choice>.size()) throw std::logic_error("choice out of range");
  return kWordsOf<Choice>[index];
}

/// Returns the value that a word names; nothing if it names none.
template <ClosedChoice Choice>
constexpr std::optional<Choice> choice_named(std::string_view word) {
  for (size_t i = 0; i < kWordsOf<Choice>.size(); ++i) {
    if (kWordsOf<Choice>[i] == word) return static_cast<Choice>(i);
  }
  return std::nullopt;
}

}  // namespace shardlens::planner
