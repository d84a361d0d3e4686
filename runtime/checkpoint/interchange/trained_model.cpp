#include "runtime/checkpoint/interchange/trained_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/checkpoint/interchange/allowance.h"

namespace shardlens::runtime {

namespace {

using Path = std::vector<std::string>;

/// Names one tensor that an optimizer keeps for a parameter.
struct Moment {
  std::string parameter;
  std::string name;
};

/// Parses [..., "state", "head.weight", "exp_avg"], or flattened [...,
/// "state.head.weight.exp_avg"].
std::optional<Moment> moment_of(const Path& path) {
  constexpr std::string_view kState = "state";
  const size_t depth = path.size();
  if (depth >= 3 && path[depth - 3] == kState) return Moment{path[depth - 2], path[depth - 1]};
  const std::string& last = path.back();
  const size_t dot = last.rfind('.');
  const size_t begin = kState.size() + 1;
  if (depth < 2 || !last.starts_with("state.") || dot < begin) return std::nullopt;
  return Moment{last.substr(begin, dot - begin), last.substr(dot + 1)};
}

Path without_last(Path path) {
  path.pop_back();
  return path;
}

/// Returns the path of the dict with the model's tensors: the only dict that has tensors, or the
/// one whose name says model.
Path place_of_model(const SavedState& state, const std::filesystem::path& source) {
  std::set<Path> places;
  for (const SavedTensor& tensor : state.tensors) {
    if (!tensor.path.empty() && !moment_of(tensor.path)) places.insert(without_last(tensor.path));
  }
  if (places.empty()) throw_damaged(fmt::format("{}: holds no tensors by name", source.string()));
  if (places.size() == 1) return *places.begin();
  std::vector<std::string> names;
  for (const Path& place : places) {
    const std::string name = place.empty() ? "" : place.back();
    if (name == "model" || name == "state_dict" || name == "model_state_dict") return place;
    names.push_back(fmt::format("{}", fmt::join(place, ".")));
  }
  throw_damaged(
      fmt::format("{}: has tensors under {}, and none of these is called model or state_dict",
                  source.string(), fmt::join(names, ", ")));
}

float half_to_float(uint16_t half) {
  const int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  float value = 0;
  if (exponent == 0x1f) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

template <class T>
T value_at(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}

struct FloatType {
  std::string_view dtype;
  int64_t bytes;
  float (*value)(const std::byte* from);
};

constexpr std::array kFloats = {
    FloatType{"F32", 4, [](const std::byte* from) { return value_at<float>(from); }},
    FloatType{"BF16", 2,
              [](const std::byte* from) {
                return std::bit_cast<float>(uint32_t{value_at<uint16_t>(from)} << 16);
              }},
    FloatType{"F16", 2,
              [](const std::byte* from) { return half_to_float(value_at<uint16_t>(from)); }},
    FloatType{"F64", 8,
              [](const std::byte* from) { return static_cast<float>(value_at<double>(from)); }},
};

const FloatType& float_type(const SavedTensor& tensor) {
  const auto found = std::ranges::find(kFloats, tensor.dtype, &FloatType::dtype);
  if (found != kFloats.end()) return *found;
  throw_damaged(fmt::format("{} is {}; only F32, BF16, F16 and F64 are supported",
                            fmt::join(tensor.path, "."), tensor.dtype));
}

int64_t product_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

[[noreturn]] void refuse_misplaced(const SavedTensor& tensor) {
  throw_damaged(
      fmt::format("the pieces of {} leave a gap, or overlap", fmt::join(tensor.path, ".")));
}

/// True if a box is inside its tensor.
bool is_inside(const SavedTensor& tensor, const SavedPiece& piece) {
  if (piece.shape.size() != tensor.shape.size() || piece.begin.size() != piece.shape.size()) {
    return false;
  }
  for (size_t i = 0; i < piece.shape.size(); ++i) {
    if (piece.shape[i] > tensor.shape[i] || piece.begin[i] > tensor.shape[i] - piece.shape[i]) {
      return false;
    }
  }
  return true;
}

/// Throws unless the pieces have as many elements as the tensor. The pieces' bytes exist, so a
/// tensor that only claims to be large is refused here.
void expect_whole(const SavedTensor& tensor) {
  int64_t left = 1;
  for (const int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(left, size, &left)) refuse_misplaced(tensor);
  }
  for (const SavedPiece& piece : tensor.pieces) {
    if (!is_inside(tensor, piece)) refuse_misplaced(tensor);
    left -= product_of(piece.shape);
  }
  if (left != 0) refuse_misplaced(tensor);
}

/// True if the pieces are runs of whole rows, as FSDP shards are.
bool are_rows(const SavedTensor& tensor) {
  return std::ranges::all_of(tensor.pieces, [&](const SavedPiece& piece) {
    return std::equal(piece.shape.begin() + (piece.shape.empty() ? 0 : 1), piece.shape.end(),
                      tensor.shape.begin() + (tensor.shape.empty() ? 0 : 1));
  });
}

/// Returns the pieces' values in the tensor's order. Each element must come from exactly one piece.
std::vector<float> assemble(const SavedTensor& tensor) {
  const FloatType& type = float_type(tensor);
  std::vector<float> values(static_cast<size_t>(product_of(tensor.shape)));
  std::vector<bool> known(values.size());
  for (const SavedPiece& piece : tensor.pieces) {
    std::vector<int64_t> index(piece.shape.size(), 0);
    const int64_t numel = product_of(piece.shape);
    for (int64_t i = 0; i < numel; ++i) {
      int64_t to = 0;
      for (size_t d = 0; d < index.size(); ++d) {
        to = to * tensor.shape[d] + piece.begin[d] + index[d];
      }
      if (known[static_cast<size_t>(to)]) refuse_misplaced(tensor);
      known[static_cast<size_t>(to)] = true;
      values[static_cast<size_t>(to)] = type.value(piece.data.data() + i * type.bytes);
      for (size_t d = index.size(); d-- > 0 && ++index[d] == piece.shape[d];) index[d] = 0;
    }
  }
  if (!std::ranges::all_of(known, std::identity())) refuse_misplaced(tensor);
  return values;
}

void add_moment(TrainedModel& model, const SavedTensor& tensor) {
  const auto moment = tensor.path.empty() ? std::nullopt : moment_of(tensor.path);
  if (!moment) return;
  expect_whole(tensor);
  if (moment->name == "step") {
    constexpr double kMostSteps = 1e15;
    const bool is_number = tensor.shape.empty() && tensor.pieces.size() == 1;
    const double step =
        is_number ? float_type(tensor).value(tensor.pieces.front().data.data()) : -1;
    if (!(step >= 0 && step < kMostSteps))
      throw_damaged("its optimizer's step is not a number of steps");
    model.steps = std::max(model.steps.value_or(0), static_cast<int64_t>(step));
    return;
  }
  const auto owner = model.parameters.find(moment->parameter);
  if (owner != model.parameters.end()) owner->second.moments[moment->name] = &tensor;
}

}  // namespace

bool is_integer(std::string_view dtype) {
  return dtype.starts_with('I') || dtype.starts_with('U') || dtype == "BOOL";
}

TrainedModel find_model(const SavedState& state, const std::filesystem::path& source) {
  const Path place = place_of_model(state, source);
  TrainedModel model;
  for (const SavedTensor& tensor : state.tensors) {
    const bool is_weight = !tensor.path.empty() && !moment_of(tensor.path);
    if (!is_weight || without_last(tensor.path) != place) continue;
    expect_whole(tensor);
    const std::string& name = tensor.path.back();
    if (!model.parameters.emplace(name, TrainedModel::Parameter{&tensor, {}}).second) {
      throw_damaged(fmt::format("{}: has {} twice", source.string(), name));
    }
    model.order.push_back(name);
  }
  for (const SavedTensor& tensor : state.tensors) add_moment(model, tensor);
  for (const SavedNumber& number : state.numbers) {
    const size_t depth = number.path.size();
    if (depth >= 3 && number.path[depth - 3] == "param_groups" && number.path[depth - 2] == "0") {
      model.settings[number.path.back()] = number.value;
    }
  }
  return model;
}

void Fp32Ranges::add(const PlacedTensor& placed, const SavedTensor& tensor) {
  const bool is_copied = float_type(tensor).dtype != "F32" || !are_rows(tensor);
  is_copied ? add_copy(placed, tensor) : add_rows(placed, tensor);
}

void Fp32Ranges::add_rows(const PlacedTensor& placed, const SavedTensor& tensor) {
  std::vector<const SavedPiece*> pieces;
  for (const SavedPiece& piece : tensor.pieces) pieces.push_back(&piece);
  const auto row_of = [](const SavedPiece* piece) {
    return piece->begin.empty() ? 0 : piece->begin[0];
  };
  std::ranges::stable_sort(pieces, {}, row_of);
  const int64_t row_bytes = placed.shape.empty() || placed.shape[0] == 0
                                ? kElementBytes
                                : placed.numel() / placed.shape[0] * kElementBytes;
  int64_t bytes = 0;
  for (const SavedPiece* piece : pieces) {
    if (piece->data.empty()) continue;
    if (row_of(piece) * row_bytes != bytes) refuse_misplaced(tensor);
    ranges_.push_back({placed.file, placed.offset_bytes + bytes, piece->data});
    bytes += static_cast<int64_t>(piece->data.size());
  }
  if (bytes != placed.numel() * kElementBytes) refuse_misplaced(tensor);
}

void Fp32Ranges::add_copy(const PlacedTensor& placed, const SavedTensor& tensor) {
  copies_.push_back(assemble(tensor));
  ranges_.push_back({placed.file, placed.offset_bytes, std::as_bytes(std::span(copies_.back()))});
}

}  // namespace shardlens::runtime
