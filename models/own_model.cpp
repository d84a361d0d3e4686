#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "models/model.h"

namespace shardlens::models {

namespace {

/// Builds the spec of a program's own model, unit by unit.
class OwnSpec {
 public:
  OwnSpec(std::string name, SampleSpec sample) {
    spec_.name = std::move(name);
    spec_.sample = std::move(sample);
    if (spec_.name.empty()) refuse("it", "has no name", "give it one");
  }

  void add(const OwnUnit& unit) {
    if (unit.name.empty()) refuse("a unit", "has no name", "name each");
    if (!units_.insert(unit.name).second) refuse(unit.name, "there are two", "rename one");
    if (!unit.forward) refuse(unit.name, "has no function", "set its forward");
    UnitSpec described{.name = unit.name};
    for (const OwnParameter& parameter : unit.parameters) {
      const int index = place(unit, parameter);
      if (std::ranges::count(described.parameters, index) > 0) {
        refuse(unit.name, fmt::format("names its parameter {} twice", parameter.name),
               "name it once");
      }
      described.parameters.push_back(index);
    }
    spec_.units.push_back(std::move(described));
  }

  ModelSpec take() {
    if (spec_.parameters.empty()) refuse("it", "has no parameters", "give its units some");
    return std::move(spec_);
  }

 private:
  /// Returns the index of a parameter, which may be an earlier unit's.
  int place(const OwnUnit& unit, const OwnParameter& parameter) {
    const auto known = std::ranges::find(spec_.parameters, parameter.name, &ParameterSpec::name);
    if (known == spec_.parameters.end()) {
      if (parameter.name.empty()) refuse(unit.name, "a parameter has no name", "name each");
      if (std::ranges::any_of(parameter.shape, [](int64_t size) { return size < 1; })) {
        refuse(unit.name, shape_text(parameter.name, parameter.shape), "give sizes of 1 or more");
      }
      spec_.parameters.push_back(
          {parameter.name, parameter.shape, unit.group.empty() ? unit.name : unit.group});
      return static_cast<int>(spec_.parameters.size()) - 1;
    }
    if (known->shape != parameter.shape) {
      refuse(unit.name, shape_text(parameter.name, parameter.shape),
             fmt::format("an earlier unit gives it [{}]; give both one shape, or two names",
                         fmt::join(known->shape, ", ")));
    }
    return static_cast<int>(known - spec_.parameters.begin());
  }

  static std::string shape_text(const std::string& name, const std::vector<int64_t>& shape) {
    return fmt::format("parameter {} has shape [{}]", name, fmt::join(shape, ", "));
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& why,
                           const std::string& fix) const {
    throw std::invalid_argument(fmt::format("model {}: {}: {}; {}", spec_.name, what, why, fix));
  }

  ModelSpec spec_;
  std::set<std::string> units_;
};

}  // namespace

OwnModel make_own_model(std::string name, SampleSpec sample, std::vector<OwnUnit> units) {
  OwnSpec spec(std::move(name), std::move(sample));
  OwnModel model;
  for (OwnUnit& unit : units) {
    spec.add(unit);
    model.units.push_back(std::move(unit.forward));
  }
  model.spec = spec.take();
  return model;
}

}  // namespace shardlens::models
