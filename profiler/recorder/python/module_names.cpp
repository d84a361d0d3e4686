#include "profiler/recorder/python/module_names.h"

#include <mutex>
#include <set>
#include <unordered_map>

namespace shardlens::profiler {

namespace {

std::mutex guard;

/// All names that were ever told; allocations and nodes of autograd point to them.
std::set<ModuleName>& kept_names() {
  static auto& names = *new std::set<ModuleName>();
  return names;
}

std::unordered_map<const void*, const ModuleName*>& named_modules() {
  static auto& modules = *new std::unordered_map<const void*, const ModuleName*>();
  return modules;
}

}  // namespace

void name_module(const void* module, const ModuleName& name) {
  const std::lock_guard lock(guard);
  named_modules()[module] = &*kept_names().insert(name).first;
}

void forget_module(const void* module) {
  const std::lock_guard lock(guard);
  named_modules().erase(module);
}

const ModuleName* name_of_module(const void* module) {
  const std::lock_guard lock(guard);
  const auto found = named_modules().find(module);
  return found == named_modules().end() ? nullptr : found->second;
}

}  // namespace shardlens::profiler
