#include "profiler/file/work_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "profiler/file/block_index.h"
#include "profiler/file/varint.h"

namespace shardlens::profiler {

namespace {

/// The parts of a payload, in order. Before them is the number of bytes of each, as u32.
enum WorkPart {
  known_part,  // how many strings, calls, communicators, pieces and items came before
  string_part,
  call_part,
  communicator_part,
  work_part,
  item_part,  // the first of the columns
};
constexpr size_t kItemColumns = 7;
constexpr size_t kWorkParts = item_part + kItemColumns;

constexpr size_t kMostItems = size_t{1} << 26;  // of a trace, however many a file claims
constexpr size_t kMostNumbers = 64;             // of a piece of work, and dimensions of a tensor
constexpr size_t kMostInputs = 256;             // of an operator
constexpr size_t kMostRanks = 1 << 20;

/// The numbers of a piece of work by its kind, in the order of the file. A later version may add
/// numbers at the end.
void visit_numbers(auto& work, const auto& visit) {
  switch (work.kind) {
    case WorkKind::kernel:
      for (auto& blocks : work.launch.grid) visit(blocks);
      for (auto& threads : work.launch.block) visit(threads);
      return visit(work.launch.shared_bytes);
    case WorkKind::product: {
      auto& product = work.product;
      for (auto* size : {&product.m, &product.n, &product.k, &product.batch}) visit(*size);
      for (auto* type : {&product.a, &product.b, &product.c, &product.compute}) visit(*type);
      visit(product.transposes_a);
      visit(product.transposes_b);
      return visit(product.epilogue);
    }
    case WorkKind::copy:
    case WorkKind::set:
    case WorkKind::memory:
      visit(work.copy.bytes);
      visit(work.copy.kind);
      visit(work.copy.is_pageable);
      return visit(work.copy.blocks);
    case WorkKind::collective:
      visit(work.collective.kind);
      visit(work.collective.bytes);
      visit(work.collective.type);
      visit(work.collective.communicator);
      visit(work.collective.peer);
      return visit(work.collective.joins_previous);
    default:
      return;  // its kind says all
  }
}

/// True if `about` is an index of an item.
bool is_about_item(WorkKind kind) {
  return kind == WorkKind::event_wait || kind == WorkKind::event_synchronize ||
         kind == WorkKind::event_query;
}

/// Returns the number that stands for `about` in the file: 0 for none, else how far back the item
/// is, or 1 more than the number.
uint64_t code_of_about(WorkKind kind, int64_t about, int64_t index) {
  if (about < 0) return 0;
  return static_cast<uint64_t>(is_about_item(kind) ? index - about : about + 1);
}

}  // namespace

// ---- encoding -----------------------------------------------------------------------------------

uint32_t WorkEncoder::Dictionary::number_of(const Bytes& encoded) {
  std::string key(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  const auto next = static_cast<uint32_t>(numbers.size());
  const auto [found, is_new] = numbers.try_emplace(std::move(key), next);
  if (is_new) added.insert(added.end(), encoded.begin(), encoded.end());
  return found->second;
}

/// Returns the entries that no block has yet.
Bytes WorkEncoder::Dictionary::take() {
  known = numbers.size();
  return std::exchange(added, {});
}

WorkEncoder::WorkEncoder() {
  string("");
  call({});
  communicator({});
  for (Dictionary* const of_none : {&strings_, &calls_, &communicators_}) of_none->take();
}

uint32_t WorkEncoder::string(std::string_view text) {
  text = text.substr(0, kMaxStringBytes);
  scratch_.clear();
  put_varint(scratch_, text.size());
  put_text(scratch_, text);
  return strings_.number_of(scratch_);
}

uint32_t WorkEncoder::call(const OperatorCall& call) {
  const size_t inputs = std::min(call.inputs.size(), kMostInputs);
  scratch_.clear();
  put_varint(scratch_, call.name);
  put_varint(scratch_, call.in_backward ? 1 : 0);
  put_varint(scratch_, inputs);
  for (const OperatorInput& input : std::span(call.inputs).first(inputs)) {
    const size_t sizes = std::min(input.sizes.size(), kMostNumbers);
    put_varint(scratch_, static_cast<uint64_t>(input.type));
    put_varint(scratch_, input.tensors);
    put_varint(scratch_, sizes);
    for (size_t i = 0; i < sizes; ++i) put_signed(scratch_, input.sizes[i]);
  }
  return calls_.number_of(scratch_);
}

uint32_t WorkEncoder::communicator(const WorkCommunicator& communicator) {
  const size_t ranks = std::min(communicator.world_ranks.size(), kMostRanks);
  scratch_.clear();
  put_signed(scratch_, communicator.size);
  put_signed(scratch_, communicator.rank);
  put_varint(scratch_, ranks);
  for (size_t i = 0; i < ranks; ++i) put_signed(scratch_, communicator.world_ranks[i]);
  return communicators_.number_of(scratch_);
}

uint32_t WorkEncoder::work(const Work& work) {
  scratch_.clear();
  put_varint(scratch_, static_cast<uint64_t>(work.kind));
  put_varint(scratch_, work.name);
  put_varint(scratch_, work.call);
  size_t numbers = 0;
  visit_numbers(work, [&](auto) { ++numbers; });
  put_varint(scratch_, numbers);
  visit_numbers(work, [&](auto number) { put_signed(scratch_, static_cast<int64_t>(number)); });
  const uint32_t number = work_.number_of(scratch_);
  if (number == kinds_.size()) kinds_.push_back(work.kind);
  return number;
}

void WorkEncoder::add(WorkItem item) {
  check(item.work < kinds_.size(), "work: an item asks for an unknown piece");
  const WorkKind kind = kinds_[item.work];
  check(!is_about_item(kind) || item.about < items_, "work: an item is about a later one");
  item.time_ns = std::max(item.time_ns, last_.time_ns);
  if (count_ == 0) first_ns_ = item.time_ns;
  const auto put = [&](size_t column, uint64_t number) { put_varint(columns_[column], number); };
  put_signed(columns_[0], int64_t{item.work} - int64_t{last_.work});
  put(1, static_cast<uint64_t>(item.time_ns - last_.time_ns));
  put(2, static_cast<uint64_t>(std::max<int64_t>(item.own_ns, 0)));
  put(3, code_of_about(kind, item.about, items_));
  put(4, item.stream);
  put(5, item.thread);
  put(6, item.graph);
  last_ = item;
  ++items_;
  ++count_;
}

WorkBlock WorkEncoder::take() {
  Bytes known;
  for (const size_t count : {strings_.known, calls_.known, communicators_.known, work_.known}) {
    put_varint(known, count);
  }
  put_varint(known, static_cast<uint64_t>(items_ - count_));
  std::array<Bytes, kWorkParts> parts = {std::move(known), strings_.take(), calls_.take(),
                                         communicators_.take(), work_.take()};
  for (size_t i = 0; i < kItemColumns; ++i) parts[item_part + i] = std::exchange(columns_[i], {});
  WorkBlock block{.payload = {},
                  .count = std::exchange(count_, 0),
                  .first_ns = first_ns_,
                  .last_ns = last_.time_ns};
  put(block.payload, static_cast<uint32_t>(kWorkParts));
  for (const Bytes& part : parts) put(block.payload, static_cast<uint32_t>(part.size()));
  for (const Bytes& part : parts) {
    block.payload.insert(block.payload.end(), part.begin(), part.end());
  }
  return block;
}

// ---- decoding -----------------------------------------------------------------------------------

namespace {

[[noreturn]] void refuse(const std::string& fault) { throw std::runtime_error(fault); }

template <ClosedChoice Choice>
Choice choice_of(uint64_t number, Choice otherwise) {
  return number < kWords<Choice>.size() ? static_cast<Choice>(number) : otherwise;
}

/// Sets a number of a piece of work to one that a file gives.
template <class Number>
void set_number(Number& to, int64_t number) {
  if constexpr (std::is_enum_v<Number>) {
    to = choice_of(static_cast<uint64_t>(number), Number{});
  } else if constexpr (std::is_same_v<Number, bool>) {
    to = number != 0;
  } else if (std::in_range<Number>(number)) {
    to = static_cast<Number>(number);
  } else {
    refuse(fmt::format("a number of a piece of work is {}", number));
  }
}

class WorkDecoder {
 public:
  WorkDecoder(ByteSpan payload, uint32_t count, WorkTrace& trace) : count_(count), trace_(trace) {
    ByteReader head{payload};
    const auto parts = head.take<uint32_t>();
    if (head.failed || parts < kWorkParts || parts > kMostParts)
      refuse("its parts are not counted");
    std::vector<uint32_t> bytes(parts);
    for (uint32_t& part : bytes) part = head.take<uint32_t>();
    for (size_t i = 0; i < kWorkParts && !head.failed; ++i) {
      const std::string_view part = head.take_text(bytes[i]);
      parts_[i] = {std::as_bytes(std::span(part))};
    }
    if (head.failed) refuse("its parts are longer than it is");
  }

  void run() {
    take_known();
    while (!parts_[string_part].rest.empty()) take_string();
    while (!parts_[call_part].rest.empty()) take_call();
    while (!parts_[communicator_part].rest.empty()) take_communicator();
    while (!parts_[work_part].rest.empty()) take_work();
    // Each item takes a byte at least, so a count cannot ask for more memory than bytes do.
    if (parts_[item_part].rest.size() < count_) refuse("it has fewer items than it says");
    trace_.items.reserve(trace_.items.size() + count_);
    for (uint32_t i = 0; i < count_; ++i) take_item();
  }

 private:
  static constexpr uint32_t kMostParts = 1024;

  uint64_t take(size_t part) {
    const uint64_t number = take_varint(parts_[part]);
    if (parts_[part].failed) refuse("a part ends within a number");
    return number;
  }

  /// Takes a count of things that take a byte each at least.
  size_t take_count(size_t part, size_t most) {
    const uint64_t count = take(part);
    if (count > most || count > parts_[part].rest.size()) refuse("a list is longer than its part");
    return count;
  }

  int64_t take_signed_of(size_t part) { return static_cast<int64_t>(unzigzag(take(part))); }

  template <class Table>
  uint32_t take_index(size_t part, const Table& table) {
    const uint64_t index = take(part);
    if (index >= table.size()) refuse("it names what no block has");
    return static_cast<uint32_t>(index);
  }

  void take_known() {
    for (const size_t count :
         {trace_.strings.size(), trace_.calls.size(), trace_.communicators.size(),
          trace_.work.size(), trace_.items.size()}) {
      if (take(known_part) != count) refuse("it does not follow the blocks before it");
    }
    if (trace_.items.size() + count_ > kMostItems) refuse("the trace has too many items");
  }

  void take_string() {
    const size_t bytes = take_count(string_part, kMaxStringBytes);
    trace_.strings.emplace_back(parts_[string_part].take_text(bytes));
  }

  void take_call() {
    OperatorCall call;
    call.name = take_index(call_part, trace_.strings);
    call.in_backward = take(call_part) != 0;
    call.inputs.resize(take_count(call_part, kMostInputs));
    for (OperatorInput& input : call.inputs) {
      input.type = choice_of(take(call_part), NumberType::unknown);
      set_number(input.tensors, static_cast<int64_t>(take(call_part)));
      input.sizes.resize(take_count(call_part, kMostNumbers));
      for (int64_t& size : input.sizes) size = take_signed_of(call_part);
    }
    trace_.calls.push_back(std::move(call));
  }

  void take_communicator() {
    WorkCommunicator communicator;
    set_number(communicator.size, take_signed_of(communicator_part));
    set_number(communicator.rank, take_signed_of(communicator_part));
    communicator.world_ranks.resize(take_count(communicator_part, kMostRanks));
    for (int32_t& rank : communicator.world_ranks) {
      set_number(rank, take_signed_of(communicator_part));
    }
    trace_.communicators.push_back(std::move(communicator));
  }

  void take_work() {
    Work work;
    const uint64_t kind = take(work_part);
    if (kind >= kWords<WorkKind>.size()) refuse(fmt::format("work of the kind {} is newer", kind));
    work.kind = static_cast<WorkKind>(kind);
    work.name = take_index(work_part, trace_.strings);
    work.call = take_index(work_part, trace_.calls);
    size_t left = take_count(work_part, kMostNumbers);
    visit_numbers(work, [&](auto& number) {
      if (left == 0) return;  // an older version has no such number
      set_number(number, take_signed_of(work_part));
      --left;
    });
    for (; left > 0; --left) take(work_part);
    if (work.collective.communicator >= trace_.communicators.size()) {
      refuse("it names a communicator that no block has");
    }
    trace_.work.push_back(work);
  }

  void take_item() {
    const auto index = static_cast<int64_t>(trace_.items.size());
    const auto column = [&](size_t number) { return take(item_part + number); };
    const WorkItem last = trace_.items.empty() ? WorkItem{} : trace_.items.back();
    WorkItem item;
    set_number(item.work, int64_t{last.work} + take_signed_of(item_part));
    if (item.work >= trace_.work.size()) refuse("an item asks for work that no block has");
    item.time_ns = last.time_ns + small(column(1));
    if (item.time_ns > kMaxTime_ns) refuse("an item is more than 73 years away");
    item.own_ns = small(column(2));
    item.about = about_of(trace_.work[item.work].kind, column(3), index);
    set_number(item.stream, small(column(4)));
    set_number(item.thread, small(column(5)));
    set_number(item.graph, small(column(6)));
    trace_.items.push_back(item);
  }

  /// Returns a number that can be added to a time.
  static int64_t small(uint64_t number) {
    if (number > static_cast<uint64_t>(kMaxTime_ns)) refuse("a number of an item is too large");
    return static_cast<int64_t>(number);
  }

  static int64_t about_of(WorkKind kind, uint64_t code, int64_t index) {
    const int64_t number = small(code);
    if (number == 0) return -1;
    if (!is_about_item(kind)) return number - 1;
    if (number > index) refuse("an item is about one before the first");
    return index - number;
  }

  const uint32_t count_;
  WorkTrace& trace_;
  std::array<ByteReader, kWorkParts> parts_;
};

/// The sizes of a trace's lists, to which a block that turns out to be damaged is undone.
struct TraceSizes {
  size_t strings, calls, communicators, work, items;
};

TraceSizes sizes_of(const WorkTrace& trace) {
  return {trace.strings.size(), trace.calls.size(), trace.communicators.size(), trace.work.size(),
          trace.items.size()};
}

void cut(WorkTrace& trace, const TraceSizes& to) {
  trace.strings.resize(to.strings);
  trace.calls.resize(to.calls);
  trace.communicators.resize(to.communicators);
  trace.work.resize(to.work);
  trace.items.resize(to.items);
}

}  // namespace

void decode_work(ByteSpan payload, uint32_t count, WorkTrace& trace) {
  const TraceSizes before = sizes_of(trace);
  try {
    WorkDecoder(payload, count, trace).run();
  } catch (const std::runtime_error&) {
    cut(trace, before);
    throw;
  }
}

WorkTrace read_work(const std::string& path) {
  const File file = open_recording(path);
  const BlockIndex index = index_blocks(file, path);
  WorkTrace trace;
  BlockCodec codec;
  Bytes payload;
  uint64_t next = 1;
  bool is_closed = false;
  for (const IndexedBlock& block : index.blocks) {
    is_closed |= !block.problem && block.header.type == BlockType::end;
    if (block.header.type != BlockType::work) continue;
    try {
      if (block.header.sequence != next++) refuse("a block before it is missing");
      read_payload(file, block, codec, payload);
      decode_work(payload, block.header.count, trace);
    } catch (const std::runtime_error& error) {
      trace.faults.push_back(
          fmt::format("offset {}: block of work, {} items: {}; the trace ends before it",
                      block.offset, block.header.count, error.what()));
      return trace;
    }
  }
  if (next > 1 && !is_closed) trace.faults.push_back("not closed: its last items are missing");
  return trace;
}

}  // namespace shardlens::profiler
