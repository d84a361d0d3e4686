// Finds allocations by words: a name or category, sizes, rank, age, or being alive at the peak.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/lane.h"
#include "viewer/model/passes.h"

namespace shardlens::viewer {

/// The conditions of a search; an allocation must fulfil all of them.
struct Query {
  std::vector<std::string> words;  // in label, category, action or stack; lower case
  std::optional<int64_t> more_than_bytes;
  std::optional<int64_t> less_than_bytes;
  std::optional<int32_t> rank;
  std::optional<int64_t> more_than_steps;  // lifetime
  bool alive_at_peak = false;

  bool is_empty() const;
};

/// Parses "mlp3 >64MiB <1GiB rank:3 life>2steps alive@peak": blanks separate the parts, and the
/// case of words does not matter. Throws std::invalid_argument for a bad size or number.
Query parse_query(std::string_view text);
/// Parses the search of a session, which may have been edited: one that cannot be parsed counts as
/// empty.
Query query_of_session(std::string_view text);

std::string in_lower_case(std::string_view text);

struct Hit {
  uint32_t block = 0;
  int64_t bytes = 0;
};

/// Returns the allocations that match, in order of birth. An empty query finds nothing.
std::vector<Hit> search(const Lane& lane, const ActionNames& names, const Query& query);

}  // namespace shardlens::viewer
