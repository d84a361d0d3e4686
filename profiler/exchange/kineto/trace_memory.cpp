#include "profiler/exchange/kineto/trace_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <tuple>

#include "profiler/recording/stack_table.h"

namespace shardlens::profiler {

namespace {

constexpr uint64_t kRestAddress = 1;  // no allocator gives it

/// True for operators that only allocate: the one around them says what for.
bool only_allocates(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::resize_");
}

}  // namespace

void TraceMemory::take_step(int64_t begin_ns, const std::string& name) {
  const size_t at = name.find('#') + 1;
  int64_t number = 0;
  const char* const end = name.data() + name.size();
  if (std::from_chars(name.data() + at, end, number).ptr == end && number >= 0) {
    steps_.emplace_back(begin_ns, number);
  }
}

std::optional<std::pair<int64_t, int64_t>> TraceMemory::range() const {
  if (changes_.empty()) return std::nullopt;
  const auto [first, last] = std::ranges::minmax_element(changes_, {}, &Change::time_ns);
  return std::pair(first->time_ns, last->time_ns);
}

/// Leaves the changes of one device: a GPU's if there are any.
void TraceMemory::leave_one_device() {
  std::map<std::pair<bool, int64_t>, size_t> counts;
  for (const Change& change : changes_) ++counts[{change.is_on_gpu, change.device}];
  const auto most = std::ranges::max_element(
      counts, {}, [](const auto& one) { return std::pair(one.first.first, one.second); });
  const auto device = most->first;
  std::erase_if(changes_, [&](const Change& change) {
    return std::pair(change.is_on_gpu, change.device) != device;
  });
  std::ranges::stable_sort(changes_, {}, &Change::time_ns);
}

/// Gives each allocation the stack of the operators that ran on its thread, and the name of the
/// innermost one that does more than to allocate.
void TraceMemory::name_changes(Profile& profile, const std::vector<std::string>& names) {
  StackTable table(profile);
  struct Cursor {
    size_t next = 0;
    std::vector<Operator> running{};
  };
  std::map<int64_t, Cursor> cursors;
  for (auto& [thread, all] : operators_) {
    std::ranges::stable_sort(
        all, {}, [](const Operator& one) { return std::pair(one.begin_ns, -one.end_ns); });
  }
  for (Change& change : changes_) {
    if (change.bytes <= 0) continue;
    const std::vector<Operator>& all = operators_[change.thread];
    Cursor& at = cursors[change.thread];
    const auto leave = [&](int64_t time_ns) {
      while (!at.running.empty() && at.running.back().end_ns < time_ns) at.running.pop_back();
    };
    for (; at.next < all.size() && all[at.next].begin_ns <= change.time_ns; ++at.next) {
      leave(all[at.next].begin_ns);
      at.running.push_back(all[at.next]);
    }
    leave(change.time_ns);
    uint32_t frame = 0;
    std::string name;
    for (const Operator& one : at.running) {
      const uint32_t function = table.label(names[one.name]);
      frame = table.frame({.caller = frame, .function = function});
      if (name.empty() || !only_allocates(names[one.name])) name = names[one.name];
    }
    change.name = name.empty() ? 0 : table.label(name, frame);
  }
}

/// Adds what was allocated before the trace began: the blocks that are freed in it, and the rest of
/// the total in one block.
void TraceMemory::add_what_was_there(Profile& profile) const {
  std::set<uint64_t> live;
  int64_t known = 0;
  const auto label = static_cast<uint32_t>(profile.strings.size());
  profile.strings.emplace_back("allocated before the trace");
  const auto add = [&](uint64_t address, int64_t bytes) {
    profile.events.push_back({.address = address,
                              .value = bytes,
                              .label = label,
                              .kind = EventKind::alloc,
                              .space = profile.header.space_of_tensors()});
  };
  for (const Change& change : changes_) {
    if (change.bytes > 0) live.insert(change.address);
    if (change.bytes >= 0 || live.erase(change.address) > 0) continue;
    add(change.address, -change.bytes);
    known -= change.bytes;
  }
  const Change& first = changes_.front();
  const int64_t rest = first.total_bytes - first.bytes - known;
  if (first.total_bytes >= 0 && rest > 0) add(kRestAddress, rest);
}

std::optional<Profile> TraceMemory::finish(const std::vector<std::string>& names,
                                           int64_t begin_ns) {
  if (changes_.empty()) return std::nullopt;
  leave_one_device();
  Profile profile;
  profile.header.device = changes_.front().is_on_gpu ? "cuda" : "cpu";
  profile.header.notice =
      "from a trace of torch.profiler: memory as operators asked for it, without segments";
  name_changes(profile, names);
  add_what_was_there(profile);
  std::ranges::sort(steps_);
  if (!steps_.empty()) {
    profile.events.push_back(
        {.value = static_cast<int64_t>(Phase::training), .kind = EventKind::phase});
  }
  size_t step = 0;
  const auto begin_steps = [&](int64_t time_ns) {
    for (; step < steps_.size() && steps_[step].first <= time_ns; ++step) {
      profile.events.push_back({.time_ns = std::max<int64_t>(0, steps_[step].first - begin_ns),
                                .value = steps_[step].second,
                                .kind = EventKind::step});
    }
  };
  for (const Change& change : changes_) {
    begin_steps(change.time_ns);
    if (change.bytes == 0) continue;
    profile.events.push_back({.time_ns = change.time_ns - begin_ns,
                              .address = change.address,
                              .value = std::max<int64_t>(0, change.bytes),
                              .label = change.name,
                              .kind = change.bytes > 0 ? EventKind::alloc : EventKind::free,
                              .space = profile.header.space_of_tensors()});
  }
  return profile;
}

}  // namespace shardlens::profiler
