#include "profiler/record/known/operators.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "profiler/record/known/experts.h"

namespace shardlens::profiler {

namespace {

using std::string_view;

// Names lack "aten::". An entry that ends in * stands for all names that begin with it.

/// These change what a tensor is, or answer the host, and write no values.
constexpr std::array kNoEffect = {
    string_view("empty*"), string_view("new_empty*"), string_view("resize_*"),
    string_view("set_"),   string_view("set_data"),   string_view("record_stream"),
    string_view("is_*"),   string_view("_version"),   string_view("_local_scalar_dense"),
    string_view("item"),   string_view("pin_memory"), string_view("_pin_memory"),
    string_view("_has_*"), string_view("retain_grad")};

/// These take too long on a CPU, or draw random numbers although no tag says so.
constexpr std::array kNotComputed = {string_view("*conv*"),
                                     string_view("*cudnn*"),
                                     string_view("*miopen*"),
                                     string_view("*attention*"),
                                     string_view("*_rnn*"),
                                     string_view("*lstm*"),
                                     string_view("*gru*"),
                                     string_view("linalg_*"),
                                     string_view("_linalg_*"),
                                     string_view("_fft*"),
                                     string_view("grid_sampler*"),
                                     string_view("_ctc*"),
                                     string_view("*dropout*"),
                                     string_view("rrelu*"),
                                     string_view("geqrf*"),
                                     string_view("*_scaled_mm*"),
                                     string_view("_grouped_mm*"),
                                     string_view("cholesky*"),
                                     string_view("triangular_solve"),
                                     string_view("lu_*"),
                                     string_view("ormqr*"),
                                     string_view("_amp_*"),
                                     string_view("_fused_*"),
                                     string_view("*quantize*")};

/// These update running statistics that their schemas do not mark.
constexpr std::array kUnmarked = {string_view("*batch_norm*"), string_view("_embedding_bag*"),
                                  string_view("embedding_renorm_")};

bool fits(string_view pattern, string_view name) {
  const bool ends_open = pattern.ends_with('*'), begins_open = pattern.starts_with('*');
  if (begins_open) pattern.remove_prefix(1);
  if (ends_open) pattern.remove_suffix(1);
  if (begins_open) return name.find(pattern) != string_view::npos;
  return ends_open ? name.starts_with(pattern) : name == pattern;
}

template <class Patterns>
bool is_among(const Patterns& patterns, string_view name) {
  return std::ranges::any_of(patterns, [&](string_view pattern) { return fits(pattern, name); });
}

bool is_view(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Filling and copying overwrite their target without reading it, like an out argument.
Use use_of(const c10::Argument& argument, string_view name) {
  if (!is_written(argument)) return Use::reads;
  const bool is_filled = name == "fill_" || name == "zero_" || name == "copy_";
  return argument.is_out() || is_filled ? Use::overwrites : Use::updates;
}

AbsorbingValue absorbing_of(string_view name) {
  for (const string_view one : {"bitwise_or", "logical_or", "__or__", "__ior__"}) {
    if (name.starts_with(one)) return AbsorbingValue::one;
  }
  for (const string_view zero : {"bitwise_and", "logical_and", "__and__", "__iand__"}) {
    if (name.starts_with(zero)) return AbsorbingValue::zero;
  }
  return name == "mul" || name == "mul_" ? AbsorbingValue::zero : AbsorbingValue::none;
}

Finiteness finiteness_of(string_view name) {
  if (name == "isfinite") return Finiteness::is_finite;
  constexpr std::array kNotFinite = {string_view("isnan"), string_view("isinf"),
                                     string_view("isposinf"), string_view("isneginf")};
  return is_among(kNotFinite, name) ? Finiteness::is_not : Finiteness::nothing;
}

/// Returns the place of the result in which LAPACK's routines report failure.
int status_of(const c10::FunctionSchema& schema, string_view name) {
  if (!name.starts_with("linalg_") && !name.starts_with("_linalg_")) return -1;
  const auto& returns = schema.returns();
  const auto found = std::ranges::find(returns, "info", &c10::Argument::name);
  return found == returns.end() ? -1 : static_cast<int>(found - returns.begin());
}

Count count_of(string_view name) {
  if (name.starts_with("_unique")) return Count::results_or_true;
  return name == "nonzero" || name.starts_with("unique_") ? Count::results : Count::nothing;
}

Effect effect_of(const c10::OperatorHandle& handle, string_view space, string_view name) {
  if (space == "c10d") return Effect::collective;
  if (space != "aten") return Effect::unclear;
  if (is_among(kUnmarked, name)) return Effect::unmarked;
  if (is_view(handle.schema()) || is_among(kNoEffect, name)) return Effect::none;
  // A copy has one kernel for all devices.
  const bool has_kernel = handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA) ||
                          name == "copy_" || name == "_foreach_copy_";
  if (!has_kernel) return Effect::by_others;
  const bool is_random = handle.hasTag(at::Tag::nondeterministic_seeded);
  return is_random || is_among(kNotComputed, name) ? Effect::writes : Effect::computes;
}

/// False for an operator that leaves the work to others: these are seen when they are called.
bool reads_host(const c10::OperatorHandle& handle, string_view name) {
  if (name == "_local_scalar_dense" || name == "copy_") return true;
  if (is_view(handle.schema()) || is_among(kNoEffect, name)) return false;
  return handle.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

KnownOperator facts_of(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  const string_view full = schema.name();
  const size_t colons = full.find("::");
  const string_view space = full.substr(0, colons);
  const string_view name = colons == string_view::npos ? full : full.substr(colons + 2);
  KnownOperator facts{.handle = &handle,
                      .effect = effect_of(handle, space, name),
                      .uses = {},
                      .results = schema.returns().size(),
                      .beta = schema.argumentIndexWithName("beta").value_or(-1),
                      .writes_arguments = false,
                      .counts = count_of(name),
                      .absorbing = absorbing_of(name),
                      .asks = finiteness_of(name),
                      .asks_all = name == "all" || name == "any",
                      .status = status_of(schema, name),
                      .lacks_whole_numbers = name == "histc",
                      .chooses = name == "topk",
                      .places = places_by_values(name),
                      .writes_by_index = name == "_index_put_impl_",
                      .copies = name == "copy_",
                      .reads_host = space != "aten" || reads_host(handle, name)};
  for (const c10::Argument& argument : schema.arguments()) {
    facts.uses.push_back(use_of(argument, name));
    facts.writes_arguments = facts.writes_arguments || is_written(argument);
  }
  return facts;
}

/// Returns facts that are kept until the process ends: one for each operator of each thread.
const KnownOperator& make_facts(const at::RecordFunction& call) {
  const auto name = call.operator_name();
  const auto found = name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
  if (!found) return *new KnownOperator();
  return *new KnownOperator(facts_of(*new c10::OperatorHandle(*found)));
}

/// Identifies an operator by the addresses of its schema's names. The name is compared, too: an
/// operator may be removed, and another one take its address.
struct OperatorEntry {
  std::string name;
  const KnownOperator* facts = nullptr;
};

using Places = std::pair<const char*, const char*>;

struct PlacesHash {
  /// Spreads over all 64 bits; the upper ones are the best.
  size_t operator()(const Places& places) const {
    constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
    const auto first = reinterpret_cast<uint64_t>(places.first);
    const auto second = reinterpret_cast<uint64_t>(places.second);
    return (first * kGoldenRatio + second) * kGoldenRatio;
  }
};

const OperatorEntry& find_known(const Places& places, const at::RecordFunction& call) {
  // Operators are called until the process ends, after a thread's own objects are gone.
  thread_local auto& known = *new std::unordered_map<Places, OperatorEntry, PlacesHash>;
  OperatorEntry& one = known[places];
  if (one.facts == nullptr || one.name != call.name()) one = {call.name(), &make_facts(call)};
  return one;
}

/// An operator that the thread called recently.
struct RecentOperator {
  Places places;
  const OperatorEntry* known = nullptr;
};

}  // namespace

const KnownOperator& known_operator(const at::RecordFunction& call) {
  // An operator is at the place that its hash gives, until another takes that place. The table
  // needs no destructor either, which would run too early.
  constexpr int kBits = 10;
  thread_local std::array<RecentOperator, size_t{1} << kBits> all_recent;
  const Places places(call.name(), call.overload_name());
  RecentOperator& recent = all_recent[PlacesHash()(places) >> (64 - kBits)];
  const bool is_same = recent.known != nullptr && recent.places == places &&
                       std::strcmp(recent.known->name.c_str(), call.name()) == 0;
  if (!is_same) recent = {places, &find_known(places, call)};
  return *recent.known->facts;
}

}  // namespace shardlens::profiler
