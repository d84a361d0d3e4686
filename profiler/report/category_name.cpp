#include "profiler/report/category_name.h"

namespace shardlens::profiler {

bool has_shards(const Header& header) { return header.world_size > 1 && !header.train.empty(); }

std::string_view category_name(Category category, bool has_shards) {
  if (category == Category::parameter_shard && !has_shards) return "parameters";
  return kCategoryNames[static_cast<size_t>(category)];
}

}  // namespace shardlens::profiler
