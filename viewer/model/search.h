// Finds allocations by words: a name or category, sizes, rank, age, or what is alive at the peak.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/lane.h"
#include "viewer/model/passes.h"

namespace shardlens::viewer {

/// All parts must hold.
struct Query {
  std::vector<std::string> words;  // in label, category or action, in lower case
  std::optional<int64_t> more_than_bytes;
  std::optional<int64_t> less_than_bytes;
  std::optional<int32_t> rank;
  std::optional<int64_t> more_than_steps;  // of life
  bool alive_at_peak = false;

  bool is_empty() const;
};

/// "mlp3 >64MiB <1GiB rank:3 life>2steps alive@peak": parts by blanks, words in any letters. Throws
/// std::invalid_argument for a size or number that is none.
Query parse_query(std::string_view text);

struct Hit {
  uint32_t block = 0;
  int64_t bytes = 0;
};

/// In order of birth.
std::vector<Hit> search(const Lane& lane, const ActionNames& names, const Query& query);

}  // namespace shardlens::viewer
