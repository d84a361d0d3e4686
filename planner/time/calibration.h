// The times that `shardlens calibrate` measured on a GPU, which correct those of the model.
//
// Each measurement is divided by what the model says of the same work. The ratio corrects work like
// it: products of one type by how near their shapes are, other work by how near its modelled time
// is. A kind of work that was not measured keeps the model's times.
//
// [Note: error of calibrated times] Each measurement is also predicted from the others. Nine of ten
// of these predictions stay within an error, which is the band's for this kind of work, unless half
// of the cold error is more: a step is not a benchmark, so that half is assumed to remain.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/gpus.h"
#include "planner/time/kernels.h"
#include "profiler/recording/work.h"

namespace shardlens::planner {

/// A piece of work among others of its kind: the logarithms of its shape or of its time.
using WorkPlace = std::array<double, 3>;

/// The logarithm of the ratio of measured to modelled time.
struct Correction {
  WorkPlace place{};
  double log_ratio = 0;
};

/// Corrections of work of one kind.
class Corrections {
 public:
  void add(const Correction& one) { all_.push_back(one); }
  bool is_empty() const { return all_.empty(); }
  /// Returns the ratio at a place: the mean of those around it, the nearer the more.
  double at(const WorkPlace& place) const;
  /// Returns by how much each ratio differs from what the others say at its place.
  std::vector<double> errors() const;

 private:
  double log_ratio_at(const WorkPlace& place, const Correction* without) const;

  std::vector<Correction> all_;
};

/// Work that is corrected alike: its class, and within that the type of a product, the direction of
/// attention, the kind of a copy, or that of a collective and its ranks.
using CorrectedKind = std::tuple<WorkClass, int, int>;

class TimeCalibration {
 public:
  /// Reads a file. Throws std::invalid_argument if it cannot be read, is damaged, of a later
  /// version, or of another GPU than `gpu`.
  static TimeCalibration read(const std::string& path, const Gpu& gpu);

  /// Returns the cost of a piece of work with its time corrected.
  Cost corrected(const profiler::WorkTrace& trace, const profiler::Work& work,
                 const Cost& cost) const;

  /// Returns the error that nine of ten measurements stay within when the others predict them;
  /// nothing if the class was not measured.
  std::optional<double> error_of(WorkClass work_class) const;

  /// The part by which repeated times of one piece of work differed, at the median.
  double spread() const { return spread_; }

 private:
  friend class TimeCalibrationReader;

  std::map<CorrectedKind, Corrections> by_kind_;
  bool halves_are_alike_ = true;  // products of fp16 and bf16 take as long
  double spread_ = 0;
};

}  // namespace shardlens::planner
