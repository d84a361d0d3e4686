// A regular expression, given by an option, for names of parameters and of the modules that contain
// them. RE2 matches it in time linear in the name, whatever the expression. Private to the planner.
#pragma once

#include <memory>
#include <string>

#include "models/spec.h"

namespace re2 {
class RE2;
}

namespace shardlens::planner {

class NamePattern {
 public:
  /// Compiles `expression`. `option` is for messages: "--wrap module:". Throws
  /// std::invalid_argument if it is not a regular expression, or needs lookahead or backreferences.
  NamePattern(const std::string& option, const std::string& expression);

  /// Returns the outermost module whose whole name matches, or the parameter itself; empty: none.
  std::string match(const std::string& parameter) const;

  /// Throws std::invalid_argument if no parameter of the model matches.
  void expect_matches(const models::ModelSpec& spec) const;

 private:
  std::string text_;  // option and expression
  std::shared_ptr<const re2::RE2> regex_;
};

}  // namespace shardlens::planner
