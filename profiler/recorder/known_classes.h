// Keeps the classes of those live blocks whose class decides about others: parameters, of which
// copies are made, and blocks that nobody has classed yet.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Any thread may call.
class KnownClasses {
 public:
  /// Notes the category of a live block, and the name of what it holds; 0: the name that it has.
  void keep(uint64_t address, Category category, uint32_t name) {
    const bool decides = is_parameter(category) || category == Category::other;
    const std::lock_guard lock(mutex_);
    if (!decides) {
      blocks_.erase(address);
      return;
    }
    Class& known = blocks_[address];
    known.category = category;
    if (name != 0) known.name = name;
  }

  void forget(uint64_t address) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(address);
  }

  /// Returns the name of the parameter in the block, 0 if it has none; nothing for other blocks.
  std::optional<uint32_t> parameter_at(uint64_t address) const {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end() || !is_parameter(found->second.category)) return std::nullopt;
    return found->second.name;
  }

  /// Returns the block's category, if it is one of those that are kept.
  std::optional<Category> class_at(uint64_t address) const {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return std::nullopt;
    return found->second.category;
  }

 private:
  struct Class {
    Category category{};
    uint32_t name = 0;
  };

  static bool is_parameter(Category category) {
    return category == Category::parameter_shard || category == Category::unsharded_parameter;
  }

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Class> blocks_;  // by address
};

}  // namespace shardlens::profiler
