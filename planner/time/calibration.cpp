#include "planner/time/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "base/input_file.h"
#include "base/strict_json.h"
#include "planner/time/collectives.h"
#include "planner/time/operators.h"
#include "planner/time/products.h"

namespace shardlens::planner {

namespace {

using Json = nlohmann::json;
using profiler::CollectiveKind;
using profiler::CopyKind;
using profiler::NumberType;
using profiler::Product;
using profiler::Work;
using profiler::WorkKind;
using profiler::WorkTrace;

constexpr std::string_view kSchema = "shardlens.calibration/";
constexpr std::string_view kVersion = "1";
constexpr uint64_t kMostBytes = 16 << 20;
constexpr std::string_view kAdvice = "write it with shardlens calibrate on the GPU";

// A measured time that is longer or shorter than the model's by this factor is of no GPU.
constexpr double kMostRatio = 50;

// Two places of the same work: measurements nearer than this count alike.
constexpr double kNear = 0.05;

WorkPlace place_of(double seconds) { return {std::log2(seconds), 0, 0}; }

WorkPlace place_of(const Product& product) {
  const auto rows = static_cast<double>(product.n) * static_cast<double>(product.batch);
  const auto log = [](double size) { return std::log2(std::max(size, 1.0)); };
  return {log(rows), log(static_cast<double>(product.m)), log(static_cast<double>(product.k))};
}

/// The type that a product's time depends on.
NumberType type_of(const Product& product, bool halves_are_alike) {
  if (product.a == NumberType::fp32 && product.compute == NumberType::tf32) return NumberType::tf32;
  return halves_are_alike && is_half(product.a) ? NumberType::bf16 : product.a;
}

CorrectedKind kind_of(WorkClass work_class, int kind = 0, int more = 0) {
  return {work_class, kind, more};
}

CorrectedKind kind_of(const Product& product, bool halves_are_alike) {
  return kind_of(WorkClass::products, static_cast<int>(type_of(product, halves_are_alike)));
}

CorrectedKind kind_of(const profiler::Copy& copy) {
  if (copy.kind == CopyKind::on_device) return kind_of(WorkClass::kernels);  // it streams
  return kind_of(WorkClass::copies, static_cast<int>(copy.kind), copy.is_pageable ? 1 : 0);
}

}  // namespace

// ---- the file -----------------------------------------------------------------------------------

/// Turns the measurements of a file into corrections.
class TimeCalibrationReader {
 public:
  TimeCalibrationReader(const Gpu& gpu, const Json& document) : gpu_(gpu), document_(document) {
    found_.halves_are_alike_ = gpu.capability.major >= 8;
  }

  TimeCalibration read() {
    each("products", [this](const Json& row) { add_product(row); });
    each("streaming", [this](const Json& row) { add_streaming(row); });
    each("copies", [this](const Json& row) { add_copy(row); });
    each("attention", [this](const Json& row) { add_attention(row); });
    each("collectives", [this](const Json& row) { add_collective(row); });
    if (found_.by_kind_.empty()) throw std::runtime_error("it has no measurements");
    found_.spread_ = document_.value("spread", 0.0);
    return std::move(found_);
  }

 private:
  template <class Add>
  void each(const char* part, Add add) {
    const Json& rows = document_.at(part);
    if (!rows.is_array()) throw std::runtime_error(fmt::format("{} is not a list", part));
    for (size_t i = 0; i < rows.size(); ++i) {
      where_ = fmt::format("{}, row {}", part, i);
      add(rows.at(i));
    }
  }

  void add_product(const Json& row) {
    const auto word = row.at("type").get<std::string>();
    const auto type = choice_named<NumberType>(word);
    const bool is_known = type && (is_half(*type) || *type == NumberType::tf32 ||
                                   *type == NumberType::fp32 || is_fp8(*type));
    if (!is_known) refuse("the type " + word + " is not known");
    const NumberType a = *type == NumberType::tf32 ? NumberType::fp32 : *type;
    const NumberType sum = *type == NumberType::tf32 ? NumberType::tf32 : NumberType::fp32;
    const Product product{.m = size_in(row, "columns"),
                          .n = size_in(row, "rows"),
                          .k = size_in(row, "depth"),
                          .a = a,
                          .b = a,
                          .c = a,
                          .compute = sum};
    add(row, kind_of(product, found_.halves_are_alike_), place_of(product),
        product_seconds(gpu_, product));
  }

  void add_streaming(const Json& row) {
    const double model = streaming_seconds(gpu_, static_cast<double>(size_in(row, "bytes")));
    add(row, kind_of(WorkClass::kernels), place_of(model), model);
  }

  void add_copy(const Json& row) {
    const auto word = row.at("kind").get<std::string>();
    const auto kind = choice_named<CopyKind>(word);
    if (!kind || *kind == CopyKind::on_host || *kind == CopyKind::on_device)
      refuse("the copy " + word + " is not known");
    const profiler::Copy copy{.bytes = size_in(row, "bytes"),
                              .kind = *kind,
                              .is_pageable = row.at("is_pageable").get<bool>()};
    const double model = copy_seconds(gpu_, copy);
    add(row, kind_of(copy), place_of(model), model);
  }

  void add_attention(const Json& row) {
    const auto tokens = static_cast<double>(size_in(row, "tokens"));
    const Attention attention{.batch = static_cast<double>(size_in(row, "batch")),
                              .heads = static_cast<double>(size_in(row, "heads")),
                              .queries = tokens,
                              .keys = tokens,
                              .width = static_cast<double>(size_in(row, "width")),
                              .is_causal = row.at("is_causal").get<bool>(),
                              .is_backward = row.at("is_backward").get<bool>(),
                              .type = NumberType::bf16};
    const double model = attention_seconds(gpu_, attention);
    add(row, kind_of(WorkClass::attention, attention.is_backward ? 1 : 0), place_of(model), model);
  }

  void add_collective(const Json& row) {
    const auto word = row.at("kind").get<std::string>();
    const auto kind = choice_named<CollectiveKind>(word);
    const int64_t ranks = size_in(row, "ranks");
    if (!kind || ranks > kGpusANode) refuse("the collective " + word + " is not known");
    const RankLayout layout{.size = static_cast<int>(ranks), .a_node = static_cast<int>(ranks)};
    const double model = collective_seconds(gpu_, *kind, size_in(row, "bytes"), layout);
    add(row, kind_of(WorkClass::collectives, static_cast<int>(*kind), layout.size), place_of(model),
        model);
  }

  void add(const Json& row, const CorrectedKind& kind, const WorkPlace& place, double model) {
    const auto seconds = row.at("seconds").get<double>();
    const double ratio = seconds / model;
    if (!(ratio > 1 / kMostRatio && ratio < kMostRatio)) {
      refuse(fmt::format("{:.3g} s is not a time of {}", seconds, gpu_.display_name));
    }
    found_.by_kind_[kind].add({.place = place, .log_ratio = std::log2(ratio)});
  }

  int64_t size_in(const Json& row, const char* key) const {
    const auto size = whole_of(row.at(key));
    if (size < 1 || size > int64_t{1} << 40) refuse(fmt::format("{} {} is not a size", key, size));
    return size;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::runtime_error(fmt::format("{}: {}", where_, why));
  }

  const Gpu& gpu_;
  const Json& document_;
  std::string where_;
  TimeCalibration found_;
};

TimeCalibration TimeCalibration::read(const std::string& path, const Gpu& gpu) {
  const std::string text = read_file(path, kMostBytes, kAdvice);
  try {
    const Json document = parse_strict_json(text);
    const auto schema = document.at("schema").get<std::string>();
    if (!schema.starts_with(kSchema)) throw std::runtime_error("its schema is " + schema);
    if (schema.substr(kSchema.size()) != kVersion) {
      throw std::invalid_argument(fmt::format(
          "{}: written by a later version ({}); read it with that version, or calibrate "
          "again with this one",
          path, schema));
    }
    const auto name = document.at("gpu").get<std::string>();
    if (name != gpu.display_name) {
      throw std::invalid_argument(
          fmt::format("{}: measured on {}, but the time is asked for {}; calibrate that GPU, or "
                      "leave --calibration out",
                      path, name, gpu.display_name));
    }
    return TimeCalibrationReader(gpu, document).read();
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(
        fmt::format("{}: not a calibration ({}); {}", path, problem_of(error), kAdvice));
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(
        fmt::format("{}: not a calibration ({}); {}", path, error.what(), kAdvice));
  }
}

// ---- corrections --------------------------------------------------------------------------------

double Corrections::log_ratio_at(const WorkPlace& place, const Correction* without) const {
  double sum = 0, weights = 0;
  for (const Correction& one : all_) {
    if (&one == without) continue;
    double squares = kNear * kNear;
    for (size_t i = 0; i < place.size(); ++i) {
      const double distance = place[i] - one.place[i];
      squares += distance * distance;
    }
    const double weight = 1 / (squares * squares);  // the nearest ones decide
    sum += weight * one.log_ratio;
    weights += weight;
  }
  return weights > 0 ? sum / weights : 0;
}

double Corrections::at(const WorkPlace& place) const {
  return std::exp2(log_ratio_at(place, nullptr));
}

std::vector<double> Corrections::errors() const {
  std::vector<double> errors;
  for (const Correction& one : all_) {
    errors.push_back(std::abs(std::exp2(log_ratio_at(one.place, &one) - one.log_ratio) - 1));
  }
  return errors;
}

Cost TimeCalibration::corrected(const WorkTrace& trace, const Work& work, const Cost& cost) const {
  CorrectedKind kind = kind_of(cost.work_class);
  WorkPlace place = place_of(std::max(cost.seconds, 1e-9));
  switch (cost.work_class) {
    case WorkClass::products:
      kind = kind_of(work.product, halves_are_alike_);
      place = place_of(work.product);
      break;
    case WorkClass::attention: {
      const profiler::OperatorCall& call = trace.calls[work.call];
      const auto attention = attention_of(trace.strings[call.name], call);
      kind = kind_of(WorkClass::attention, attention && attention->is_backward ? 1 : 0);
      break;
    }
    case WorkClass::copies:
      kind = kind_of(work.copy);
      break;
    case WorkClass::collectives:
      kind = kind_of(WorkClass::collectives, static_cast<int>(work.collective.kind),
                     trace.communicators[work.collective.communicator].size);
      break;
    case WorkClass::other_kernels:
      kind = kind_of(WorkClass::kernels);
      break;
    default:
      break;
  }
  const auto found = by_kind_.find(kind);
  if (found == by_kind_.end()) return cost;
  Cost corrected = cost;
  corrected.seconds *= found->second.at(place);
  return corrected;
}

std::optional<double> TimeCalibration::error_of(WorkClass work_class) const {
  std::vector<double> errors;
  for (const auto& [kind, corrections] : by_kind_) {
    if (std::get<0>(kind) != work_class) continue;
    for (const double error : corrections.errors()) errors.push_back(error);
  }
  if (errors.empty()) return std::nullopt;
  std::ranges::sort(errors);
  return errors[static_cast<size_t>(0.9 * static_cast<double>(errors.size() - 1))];
}

}  // namespace shardlens::planner
