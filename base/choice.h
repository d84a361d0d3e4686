// Closed choices: enumerations whose values have a word each, as in --strategy fsdp or in a file.
// Every enumeration that is printed or read is one.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/check.h"

namespace shardlens {

template <class... Words>
constexpr auto words(Words... all) {
  return std::array<std::string_view, sizeof...(Words)>{all...};
}

/// An enumeration becomes a closed choice when its namespace declares the words of its values, in
/// their order from 0:
///
///     enum class Sync { every, last };
///     constexpr auto choice_words(Sync) { return words("every", "last"); }
template <class Type>
concept ClosedChoice = std::is_enum_v<Type> && requires(Type value) {
  choice_words(value);
};

/// The words of an enumeration, in the order of its values.
template <ClosedChoice Choice>
inline constexpr auto kWords = choice_words(Choice{});

/// Returns the word of a value.
template <ClosedChoice Choice>
constexpr std::string_view to_string(Choice choice) {
  const auto index = static_cast<size_t>(choice);
  check(index < kWords<Choice>.size(), "choice out of range");
  return kWords<Choice>[index];
}

/// Returns the value that a word names; nothing if it names none.
template <ClosedChoice Choice>
constexpr std::optional<Choice> choice_named(std::string_view word) {
  for (size_t i = 0; i < kWords<Choice>.size(); ++i) {
    if (kWords<Choice>[i] == word) return static_cast<Choice>(i);
  }
  return std::nullopt;
}

}  // namespace shardlens
