#include "profiler/record/known/postponed_fills.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "profiler/record/known/operators.h"
#include "profiler/record/known/tensors.h"
#include "profiler/recorder/own_time.h"
#include "profiler/recorder/resident_bytes.h"

namespace shardlens::profiler {

namespace {

using Storage = const c10::StorageImpl*;

/// Operators between two searches for tensors that the program has freed.
constexpr int64_t kOperatorsBetweenSearches = 1024;

/// A fill of the few numbers that fills.py measures draws less.
constexpr int64_t kMostDrawsCounted = 4096;

// Both are set before any fill is postponed.
ShardlensFill end_one = nullptr;
size_t own_references = 1;  // to a storage that only its postponed fill keeps alive

size_t references_of(Storage storage) {
  return c10::raw::intrusive_ptr::use_count(const_cast<c10::StorageImpl*>(storage));
}

bool is_unused(Storage storage) { return references_of(storage) <= own_references; }

/// The storages whose fills are postponed. All threads may call.
class PostponedFills {
 public:
  bool is_empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  void add(Storage storage) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(storages_, storage) == storages_.end()) storages_.push_back(storage);
    count_ = storages_.size();
  }

  bool take(Storage storage) {
    const std::lock_guard lock(mutex_);
    const bool is_there = std::erase(storages_, storage) > 0;
    count_ = storages_.size();
    return is_there;
  }

  bool holds(Storage storage) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(storages_, storage) != storages_.end();
  }

  std::vector<Storage> unused() {
    const std::lock_guard lock(mutex_);
    std::vector<Storage> found;
    std::ranges::copy_if(storages_, std::back_inserter(found), is_unused);
    return found;
  }

  /// Returns the bytes that the program holds and has not touched.
  int64_t bytes() {
    const std::lock_guard lock(mutex_);
    int64_t total = 0;
    for (const Storage storage : storages_) {
      if (!is_unused(storage)) total += static_cast<int64_t>(storage->nbytes());
    }
    return total;
  }

 private:
  std::mutex mutex_;
  std::vector<Storage> storages_;  // hundreds: a set would not be faster
  std::atomic<size_t> count_{0};
};

/// Never destroyed: operators are called until the process ends.
PostponedFills& fills() {
  static auto& all = *new PostponedFills;
  return all;
}

void end_fill(Storage storage, bool is_read) {
  if (!fills().take(storage)) return;
  const at::DisableRecordFunctionGuard unobserved;
  end_one(reinterpret_cast<uint64_t>(storage), is_read);
}

Storage storage_of(const at::Tensor& tensor) {
  const bool has_values = tensor.device().is_cpu() && tensor.has_storage();
  return has_values ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

/// True if writing all elements of the tensor leaves nothing of what its storage held.
bool covers_storage(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

/// True if a copy stays unknown on a GPU (known_memory.h): nobody reads it.
bool is_unread(const at::Tensor& target, const at::Tensor& source) {
  return target.device().is_cuda() && source.nbytes() > kMostBytesOfRange;
}

/// The effect of an operator on a tensor on the host whose fill is postponed.
enum class Touch : uint8_t { none, reads, overwrites };

Touch touch_of(const KnownOperator& facts, c10::ArrayRef<const c10::IValue> arguments, size_t i,
               const at::Tensor& tensor) {
  const bool is_target = facts.uses[i] == Use::overwrites;
  if (is_target) return covers_storage(tensor) ? Touch::overwrites : Touch::reads;
  const bool is_source = facts.copies && i == 1 && arguments[0].isTensor();
  return is_source && is_unread(arguments[0].toTensor(), tensor) ? Touch::none : Touch::reads;
}

void end_touched_fills(const KnownOperator& facts, c10::ArrayRef<const c10::IValue> arguments) {
  std::vector<std::pair<Storage, Touch>> touched;
  for (size_t i = 0; i < arguments.size(); ++i) {
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      const Storage storage = storage_of(tensor);
      if (storage == nullptr || !fills().holds(storage)) return;
      const Touch touch = touch_of(facts, arguments, i, tensor);
      if (touch != Touch::none) touched.emplace_back(storage, touch);
    });
  }
  // An operator may read what it also overwrites, as another argument: fill first.
  std::ranges::stable_sort(touched, {}, &std::pair<Storage, Touch>::second);
  for (const auto& [storage, touch] : touched) end_fill(storage, touch == Touch::reads);
}

void end_unused_fills() {
  static std::atomic<int64_t> operators{0};
  if (++operators % kOperatorsBetweenSearches != 0) return;
  for (const Storage storage : fills().unused()) end_fill(storage, false);
}

std::unique_ptr<at::ObserverContext> watch_operator(const at::RecordFunction& call) {
  if (fills().is_empty()) return nullptr;
  const OwnTime own;
  const KnownOperator& facts = known_operator(call);
  const size_t count = facts.uses.size();
  if (facts.handle != nullptr && facts.reads_host && call.inputs().size() >= count) {
    // A boxed call shows more than its own arguments, which are the last.
    end_touched_fills(facts, call.inputs().slice(call.inputs().size() - count));
  }
  end_unused_fills();
  return nullptr;
}

// ---- draws --------------------------------------------------------------------------------------

at::CPUGeneratorImpl& generator() {
  static auto& own =
      *at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  return own;
}

bool are_same(const at::mt19937& a, const at::mt19937& b) {
  const auto x = a.data(), y = b.data();
  return x.next_ == y.next_ && x.left_ == y.left_ && x.seed_ == y.seed_ && x.state_ == y.state_;
}

std::optional<at::mt19937> before_draws;

}  // namespace
}  // namespace shardlens::profiler

using shardlens::profiler::fills;
using shardlens::profiler::generator;

void shardlens_postpone_fills(ShardlensFill fill, uint64_t storage) {
  shardlens::profiler::end_one = fill;
  shardlens::profiler::own_references =
      shardlens::profiler::references_of(reinterpret_cast<const c10::StorageImpl*>(storage));
  shardlens::profiler::untouched_host_bytes = [] { return fills().bytes(); };
  at::addGlobalCallback(at::RecordFunctionCallback(shardlens::profiler::watch_operator)
                            .scopes({at::RecordScope::FUNCTION})
                            .needsInputs(true));
}

void shardlens_postpone_fill(uint64_t storage) {
  fills().add(reinterpret_cast<const c10::StorageImpl*>(storage));
}

bool shardlens_take_fill(uint64_t storage) {
  return fills().take(reinterpret_cast<const c10::StorageImpl*>(storage));
}

void shardlens_begin_draws() {
  const std::lock_guard lock(generator().mutex_);
  shardlens::profiler::before_draws = generator().engine();
}

int64_t shardlens_end_draws() {
  const std::lock_guard lock(generator().mutex_);
  const at::mt19937 after = generator().engine();
  at::mt19937 drawing = *shardlens::profiler::before_draws;
  generator().set_engine(drawing);
  for (int64_t draws = 0; draws <= shardlens::profiler::kMostDrawsCounted; ++draws) {
    if (shardlens::profiler::are_same(drawing, after)) return draws;
    drawing();
  }
  return -1;
}

void shardlens_skip_draws(int64_t words) {
  const std::lock_guard lock(generator().mutex_);
  at::mt19937 engine = generator().engine();
  for (int64_t i = 0; i < words; ++i) engine();
  generator().set_engine(engine);
}
