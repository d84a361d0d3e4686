// Reads where an allocation comes from, and sorts the names of such places as people expect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardlens::profiler {

/// The code that an allocation comes from: a line of a program, or a module of a model.
struct Origin {
  std::string file;      // "train.py", without folders; empty: not a line of a program
  int64_t line = 0;      // of `file`
  std::string function;  // "forward"; for a module the kind of the action, or empty outside a pass
  std::string module;    // "mlp3"; empty for a line of a program

  bool is_line() const { return !file.empty(); }
  auto operator<=>(const Origin&) const = default;
};

/// Reads an allocation's label ("train.py:41 forward", "mlp3", or nothing) and its action
/// ("FORWARD mlp3", or nothing outside a pass).
Origin origin_of(std::string_view label, std::string_view action);

/// Returns the name by which rows show the place: the label, else the action.
std::string name_of_origin(std::string_view label, std::string_view action);

/// Returns an action of a schedule as origin_of expects it: "BACKWARD mlp3 bucket 0" of "BACKWARD
/// unit=mlp3 group=block3 bucket=0". An action whose words are unknown is "action 57".
std::string short_action(int32_t id, std::string_view words);

/// Compares names with the numbers in them as numbers: "mlp2" is less than "mlp10".
bool is_naturally_less(std::string_view a, std::string_view b);

}  // namespace shardlens::profiler
