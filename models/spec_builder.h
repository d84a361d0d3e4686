// The parts that families share: a size with its name in a model file and its limit, what is wrong
// with sizes, and a spec while it is being built.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/fault.h"
#include "models/spec.h"

namespace shardlens::models {

/// A size, named as in a model file. Limits are far above any real model, but low enough that
/// products of two sizes stay in 64 bits.
template <class FamilySizes>
struct SizeKey {
  const char* name;
  std::variant<int64_t FamilySizes::*, bool FamilySizes::*> value;
  int64_t most = 1;
  bool required = true;  // false: a file may leave it out, for the struct's default
};

constexpr bool kOptional = false;  // SizeKey::required
constexpr int64_t kMostLayers = 10000;
constexpr int64_t kMostWidth = int64_t{1} << 20;
constexpr int64_t kMostMlpWidth = int64_t{1} << 22;
constexpr int64_t kMostClasses = int64_t{1} << 24;
constexpr int64_t kMostSeq = int64_t{1} << 22;

/// Returns what is wrong if some number is below 1 or above its limit; else nothing.
template <class FamilySizes>
Problem range_problem(const FamilySizes& sizes) {
  for (const SizeKey<FamilySizes>& key : keys_of(sizes)) {
    const auto* number = std::get_if<int64_t FamilySizes::*>(&key.value);
    if (number == nullptr) continue;
    const int64_t value = sizes.**number;
    if (value >= 1 && value <= key.most) continue;
    return fmt::format("\"{}\" is {}; give a number from 1 to {}", key.name, value, key.most);
  }
  return std::nullopt;
}

/// Returns what is wrong if `divisor` does not divide `value`, as "heads" must divide "width"; else
/// nothing.
Problem division_problem(const char* divisor_name, int64_t divisor, const char* name,
                         int64_t value);

/// Returns what is wrong if a model is too large; else nothing. `approximate_numel` is in floating
/// point, so that it can be compared with a limit before any product has overflowed.
Problem numel_problem(int64_t width, double approximate_numel);

[[noreturn]] void refuse_sizes(const std::string& model, const std::string& problem);

/// Appends parameters in state-dict order and units in forward order.
class SpecBuilder {
 public:
  template <class FamilySizes>
  SpecBuilder(std::string name, const FamilySizes& sizes) {
    spec.name = std::move(name);
    spec.sizes = sizes;
  }

  /// Adds a parameter and returns its index.
  int add(std::string name, std::vector<int64_t> shape, const std::string& group) {
    spec.parameters.push_back({std::move(name), std::move(shape), group});
    return static_cast<int>(spec.parameters.size()) - 1;
  }

  /// Adds weight [out, in] and bias [out] of nn.Linear and returns their indices.
  std::vector<int> add_linear(const std::string& name, int64_t out, int64_t in,
                              const std::string& group) {
    const int weight = add(name + ".weight", {out, in}, group);
    return {weight, add(name + ".bias", {out}, group)};
  }

  std::vector<int> add_layer_norm(const std::string& name, int64_t width,
                                  const std::string& group) {
    const int weight = add(name + ".weight", {width}, group);
    return {weight, add(name + ".bias", {width}, group)};
  }

  /// Adds a unit of a kind of the family's own. Its matrices multiply `rows` for one sample.
  template <class Kind>
  UnitSpec& add_unit(std::string name, Kind kind, int64_t rows, std::vector<int> parameters) {
    return spec.units.emplace_back(UnitSpec{.name = std::move(name),
                                            .kind = static_cast<int>(kind),
                                            .parameters = std::move(parameters),
                                            .rows = rows});
  }

  /// Adds a unit that looks tokens up in a matrix, which its backward does not read.
  template <class Kind>
  void add_embedding(Kind kind, int64_t tokens, int matrix) {
    UnitSpec& unit = add_unit("embed", kind, tokens, {matrix});
    unit.backward_reads_parameters = false;
    unit.looks_up = true;
  }

  ModelSpec spec;
};

inline std::vector<int> joined(std::vector<int> first, const std::vector<int>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace shardlens::models
