// The levers of `shardlens record --with`: changes to an unmodified program that are made from
// outside, each equal to an edit of the program. What makes them is in python/shardlens_record/
// levers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::profiler {

/// Says what a change of a program costs, from least to most.
enum class LeverCost : uint8_t {
  nothing,
  little,
  communication,
  compute,
  host_copies,
  numbers,
  machines
};

/// Describes a lever, in words for a user.
struct LeverInfo {
  std::string_view name;
  /// "full|every:N": N is a whole number, F a number from 0 to 1, GPU the name of a simulated GPU,
  /// FILE a path.
  std::string_view values;
  std::string_view subject;  // levers of the same one exclude each other
  std::string_view does;
  std::string_view applies;  // to which programs
  std::string_view code;     // that one would write instead
  std::string_view costs;
  LeverCost cost;
  std::string_view tries;  // the values that `advise` tries by itself; "": none
};

/// Returns all levers, in the order in which a list shows them.
std::span<const LeverInfo> levers();
const LeverInfo& lever_info(std::string_view name);

/// Holds a lever with its value: recompute=every:2.
struct Lever {
  std::string name;
  std::string value = {};  // "" for a lever without values

  bool operator==(const Lever&) const = default;
};

/// Returns the levers that a search tries unless the user names some.
std::vector<Lever> levers_to_try();

/// Parses "recompute,offload=parameters". A lever that needs a value and has none gets its first.
/// Throws std::invalid_argument for an unknown lever or value, or two that contradict each other.
std::vector<Lever> parse_levers(const std::string& text);

/// Throws std::invalid_argument if two of these contradict each other.
void check_levers(const std::vector<Lever>& levers);
bool contradict(const Lever& one, const Lever& other);

/// True for a lever that acts before the program imports anything.
bool acts_at_start(const Lever& lever);

/// Returns "recompute=every:2", or "compile".
std::string lever_text(const Lever& lever);
/// Returns "recompute=full,offload=parameters", as --with takes it.
std::string levers_text(const std::vector<Lever>& levers);

/// Returns the list of all levers that `record --levers` prints.
std::string lever_list();

}  // namespace shardlens::profiler
