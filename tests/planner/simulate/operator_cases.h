// Makes the same calls on LibTorch's tensors and on the planner's tensors without values, and logs
// each allocation and free of both in words that can be compared.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "planner/simulate/meta/attention.h"
#include "planner/simulate/meta/operators.h"
#include "planner/simulate/meta/reductions.h"

namespace shardlens::tests {

using models::InputUse;

/// A block is taken or freed. Blocks are numbered in the order in which they are taken.
struct BlockEvent {
  int64_t block = 0;
  int64_t bytes = 0;  // 0: freed

  bool operator==(const BlockEvent&) const = default;
};

class BlockLog {
 public:
  void take(uint64_t address, int64_t bytes);
  /// Empty if the block is from before.
  void give_back(uint64_t address);
  /// Stops logging.
  void close() { is_closed_ = true; }
  const std::vector<BlockEvent>& events() const { return events_; }

 private:
  std::vector<BlockEvent> events_;
  std::unordered_map<uint64_t, int64_t> numbers_;
  int64_t next_ = 0;
  bool is_closed_ = false;
};

/// The beginning of backward: with a number for each element, or with one number in memory for all
/// of them, like the gradient of a sum or a mean.
enum class OutputGradient : uint8_t { written_out, one_number };

/// Calls on LibTorch's tensors.
class RealApi {
 public:
  using Tensor = at::Tensor;

  RealApi(at::Device device, BlockLog& log) : device_(device), log_(log) {}

  at::Tensor leaf(std::initializer_list<int64_t> sizes, DType dtype);
  at::Tensor constant(std::initializer_list<int64_t> sizes, DType dtype);
  at::Tensor ids(std::initializer_list<int64_t> sizes);

  static at::Tensor add(const at::Tensor& a, const at::Tensor& b) { return a + b; }
  static at::Tensor sum(const at::Tensor& input, const std::vector<int64_t>& dims, DType type);
  static at::Tensor amax(const at::Tensor& input, const std::vector<int64_t>& dims);
  static at::Tensor vector_norm(const at::Tensor& input);
  static at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& bias);
  static at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight);
  static at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);
  static at::Tensor attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, bool causal, bool grouped);
  static at::Tensor repeat_interleave(const at::Tensor& input, int64_t repeats, int64_t dim);
  static at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, InputUse use = InputUse::kept);
  static at::Tensor project(const at::Tensor& input, const at::Tensor& weight,
                            InputUse use = InputUse::kept);

  /// Runs backward from `output` and keeps nothing; what comes after is not logged.
  void finish(at::Tensor output, OutputGradient kind = OutputGradient::written_out);
  void end() { log_.close(); }

 private:
  at::Device device_;
  BlockLog& log_;
  std::vector<at::Tensor> leaves_;
};

/// The same calls on tensors without values.
class MetaApi {
 public:
  using Tensor = planner::meta::Tensor;

  MetaApi(planner::meta::Context& context, BlockLog& log) : context_(context), log_(log) {}

  Tensor leaf(std::initializer_list<int64_t> sizes, DType dtype);
  Tensor constant(std::initializer_list<int64_t> sizes, DType dtype);
  Tensor ids(std::initializer_list<int64_t> sizes);

  static Tensor add(const Tensor& a, const Tensor& b) { return planner::meta::add(a, b); }
  static Tensor sum(const Tensor& input, const std::vector<int64_t>& dims, DType type) {
    return planner::meta::sum(input, dims, planner::meta::type_of(type));
  }
  static Tensor amax(const Tensor& input, const std::vector<int64_t>& dims) {
    return planner::meta::amax(input, dims);
  }
  static Tensor vector_norm(const Tensor& input) { return planner::meta::vector_norm(input); }
  static Tensor layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return planner::meta::layer_norm(input, weight, bias);
  }
  static Tensor rms_norm(const Tensor& input, const Tensor& weight) {
    return planner::meta::rms_norm(input, weight);
  }
  static Tensor embedding(const Tensor& weight, const Tensor& ids) {
    return planner::meta::embedding(weight, ids);
  }
  static Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, bool causal,
                          bool grouped) {
    return planner::meta::attention(query, key, value, {.causal = causal, .grouped = grouped});
  }
  static Tensor repeat_interleave(const Tensor& input, int64_t repeats, int64_t dim) {
    return planner::meta::repeat_interleave(input, repeats, dim);
  }
  static Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       InputUse use = InputUse::kept) {
    return planner::meta::linear(input, weight, bias, use);
  }
  static Tensor project(const Tensor& input, const Tensor& weight, InputUse use = InputUse::kept) {
    return planner::meta::project(input, weight, use);
  }

  void finish(Tensor output, OutputGradient kind = OutputGradient::written_out);
  void end() { log_.close(); }

 private:
  planner::meta::Context& context_;
  BlockLog& log_;
  std::vector<Tensor> leaves_;
};

/// One call, for both.
struct OperatorCase {
  std::string name;
  bool takes_scratch = false;  // beyond the planner's figure: see product_scratch.h
  std::function<void(RealApi&)> real;
  std::function<void(MetaApi&)> meta;
};

/// `body` takes an api and ends with api.finish() if it has a backward.
template <class Body>
OperatorCase operator_case(std::string name, Body body) {
  return {.name = std::move(name), .takes_scratch = false, .real = body, .meta = body};
}

/// Operators of models, in all their sizes, with few or many tokens.
std::vector<OperatorCase> realistic_cases(c10::DeviceType device);

/// `rounds` draws of each operator; each name contains the seed.
std::vector<OperatorCase> random_cases(c10::DeviceType device, uint32_t seed, int rounds);

/// The planner's blocks, taken and freed, after a first product of each kind: the workspaces that
/// LibTorch keeps from then on are not among them.
std::vector<BlockEvent> meta_events(const OperatorCase& operator_case,
                                    planner::meta::Context context);

/// LibTorch's events without blocks that are taken and freed again between two events of the
/// planner's, unless the planner has such blocks, too.
std::vector<BlockEvent> without_scratch(const std::vector<BlockEvent>& libtorchs,
                                        const std::vector<BlockEvent>& planners);

/// Empty if both are the same; else both in words.
std::string difference(const std::vector<BlockEvent>& libtorchs,
                       const std::vector<BlockEvent>& planners);

}  // namespace shardlens::tests
