// The state with which the tables of the formats read: the document, and the options, notes and
// reasons so far. Private to planner/config/foreign/.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "planner/config/foreign/foreign.h"

namespace shardlens::planner {

class ForeignReader {
 public:
  using Json = nlohmann::json;

  ForeignReader(Config& config, Json document, const ForeignContext& context)
      : config_(config), document_(std::move(document)), context_(context) {}

  /// Reads every key of the document, in the order of the table. Throws std::invalid_argument.
  std::vector<std::string> read(std::span<const ForeignKey> keys);

  // The functions of the table call these for the key that is being read. A value of another
  // type is refused.

  const Json& value() const { return *value_; }
  std::string word() const;  // a string, or the text of a boolean or number
  int64_t count() const;     // whole, from 0 to 2^31
  double number() const;
  bool flag() const;

  /// Returns the value of another key; nullptr if it is missing, null or "auto".
  const Json* find(std::string_view name) const;
  bool is_true(std::string_view name) const;
  /// Returns another key's whole number; `otherwise` if it is missing or not a number.
  int64_t count_of(std::string_view name, int64_t otherwise) const;

  bool has_flag(std::string_view name) const;
  bool is_launched() const { return context_.is_launched; }
  /// Returns the number of ranks that flags or a launcher give, or else the file so far.
  int64_t world() const;
  bool has_world() const;
  int64_t option_count(int64_t Config::*field) const { return config_.*field; }

  /// Sets an option as its flag would.
  void set(std::string_view option, std::string_view text);
  void ignore(std::string_view why);
  /// Refuses the key. `why` continues the line after key and value, and ends with how to fix it.
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  const Json* lookup(std::string_view name) const;  // nullptr where it is missing or null
  void expect_known(const Json& object, const std::string& prefix,
                    std::span<const ForeignKey> keys);
  void read_key(const ForeignKey& key, std::span<const ForeignKey> keys);
  void read_mapped(const ForeignKey& key);
  void expect_off(const ForeignKey& key) const;
  bool is_overridden(std::string_view flags) const;
  std::string auto_text(const ForeignKey& key) const;
  std::string subject() const;  // key and value

  Config& config_;
  Json document_;
  const ForeignContext& context_;

  std::string name_;
  const Json* value_ = nullptr;
  bool is_fallback_ = false;
  std::string set_now_;  // "--batch 8 --accumulate 2"

  std::vector<std::string> lines_;
  std::vector<const ForeignKey*> automatic_;
  std::vector<std::pair<std::string, std::string>> ignored_;  // why, names
};

}  // namespace shardlens::planner
