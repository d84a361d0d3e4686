#include "tests/runtime/comm/collective_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>

namespace shardlens::tests {

using namespace runtime;
namespace {

using Kind = PlannedOperation::Kind;

struct Format {
  int fraction_bits;
  int bias;
  int total_bits;
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return {23, 127, 32};
    case DType::bf16:
      return {7, 127, 16};
    case DType::fp16:
      return {10, 15, 16};
  }
  throw std::logic_error("no such dtype");
}

class Memory {
 public:
  Memory(int64_t numel, DType dtype)
      : dtype_(dtype), bytes_(static_cast<size_t>(numel * bytes_of(dtype))) {}
  void* data() { return bytes_.data(); }
  uint32_t bits(int64_t index) const {
    uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + offset(index), size());
    return value;
  }
  void set(int64_t index, uint32_t value) {
    std::memcpy(bytes_.data() + offset(index), &value, size());
  }

 private:
  size_t size() const { return static_cast<size_t>(bytes_of(dtype_)); }
  size_t offset(int64_t index) const { return static_cast<size_t>(index) * size(); }

  DType dtype_;
  std::vector<std::byte> bytes_;
};

// What rank `rank` holds at `index` of a buffer of an operation; known to every rank.
uint32_t input_bits(const Plan& plan, size_t operation, size_t buffer, int rank, int64_t index,
                    DType dtype) {
  uint64_t mixed = plan.seed;
  for (const uint64_t part : {static_cast<uint64_t>(operation), static_cast<uint64_t>(buffer),
                              static_cast<uint64_t>(rank), static_cast<uint64_t>(index)}) {
    mixed = (mixed ^ part) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
  }
  const double value = static_cast<double>(mixed % 2000003) / 1000001.5 - 1.0;
  const int exponent = static_cast<int>(mixed >> 40) % 24 - 16;  // reaches fp16's subnormals
  return encode(std::ldexp(value, exponent), dtype);
}

uint32_t mean_bits(const Plan& plan, size_t operation, int64_t index, DType dtype) {
  float sum = 0;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const auto value =
        static_cast<float>(decode(input_bits(plan, operation, 0, rank, index, dtype), dtype));
    sum = rank == 0 ? value : sum + value;
  }
  return encode(sum / static_cast<float>(plan.world_size), dtype);
}

double sum_input(const Plan& plan, size_t operation, int rank, int64_t index) {
  return decode(input_bits(plan, operation, 0, rank, index, DType::fp32), DType::fp32);
}

// One rank's part in a plan.
class Player {
 public:
  Player(const Plan& plan, Communicator& first, Communicator& second, AllReduceOrder order)
      : plan_(plan), channels_{&first, &second}, order_(order), rank_(first.rank()) {}

  std::string play() {
    for (size_t i = 0; i < plan_.operations.size(); ++i) {
      const auto channel = static_cast<size_t>(plan_.operations[i].channel);
      for (int due = plan_.operations[i].tickets_due; due > 0; --due) finish_oldest(channel);
      issue(i);
      if (!fault_.empty()) return fault_;
    }
    for (const size_t channel : {1u, 0u}) {
      while (!flights_[channel].empty()) finish_oldest(channel);
    }
    return fault_.empty() ? "ok " + std::to_string(shared_hash_) : fault_;
  }

 private:
  struct Flight {
    size_t operation = 0;
    Ticket ticket = 0;
    std::vector<Memory> buffers;  // gather: its buffers; reduce: input, output, receive
  };

  void issue(size_t index) {
    const PlannedOperation& planned = plan_.operations[index];
    Communicator& channel = *channels_[static_cast<size_t>(planned.channel)];
    const Operation name{static_cast<int64_t>(index), "PLANNED", "plan", planned.channel};
    if (planned.kind == Kind::barrier) return channel.barrier(name);
    if (planned.kind == Kind::sum) return check_sum(channel, name, index);
    Flight flight{index, 0, {}};
    if (planned.kind == Kind::gather) {
      flight.ticket = issue_gather(channel, name, flight);
    } else {
      flight.ticket = issue_reduce(channel, name, flight);
    }
    flights_[static_cast<size_t>(planned.channel)].push_back(std::move(flight));
  }

  Ticket issue_gather(Communicator& channel, const Operation& name, Flight& flight) {
    const PlannedOperation& planned = plan_.operations[flight.operation];
    std::vector<GatherBuffer> buffers;
    for (size_t b = 0; b < planned.dtypes.size(); ++b) {
      const int64_t range = planned.range_numels[b];
      Memory& memory = flight.buffers.emplace_back(range * plan_.world_size, planned.dtypes[b]);
      for (int64_t i = rank_ * range; i < (rank_ + 1) * range; ++i) {
        memory.set(i, input_bits(plan_, flight.operation, b, rank_, i, planned.dtypes[b]));
      }
    }
    for (size_t b = 0; b < planned.dtypes.size(); ++b) {
      buffers.push_back({flight.buffers[b].data(), planned.range_numels[b] * plan_.world_size,
                         planned.dtypes[b]});
    }
    return channel.all_gather(name, buffers);
  }

  Ticket issue_reduce(Communicator& channel, const Operation& name, Flight& flight) {
    const PlannedOperation& planned = plan_.operations[flight.operation];
    const bool scatter = planned.kind == Kind::reduce_scatter;
    const int64_t range = planned.range_numels[0];
    const int64_t numel = scatter ? range * plan_.world_size : range;
    const DType dtype = planned.dtypes[0];
    for (const int64_t size : {numel, range, numel}) flight.buffers.emplace_back(size, dtype);
    for (int64_t i = 0; i < numel; ++i) {
      flight.buffers[0].set(i, input_bits(plan_, flight.operation, 0, rank_, i, dtype));
    }
    if (!scatter) return channel.all_reduce(name, flight.buffers[0].data(), range, dtype);
    return channel.reduce_scatter(name, {flight.buffers[0].data(), flight.buffers[1].data(),
                                         flight.buffers[2].data(), range, dtype});
  }

  void finish_oldest(size_t channel) {
    if (flights_[channel].empty()) return;
    const Flight flight = std::move(flights_[channel].front());
    flights_[channel].pop_front();
    channels_[channel]->wait(flight.ticket);
    switch (plan_.operations[flight.operation].kind) {
      case Kind::gather:
        return check_gather(flight);
      case Kind::reduce_scatter:
        return check_reduce(flight, flight.buffers[1], rank_);
      case Kind::all_reduce:
        return check_reduce(flight, flight.buffers[0], 0);
      case Kind::sum:
      case Kind::barrier:
        return;
    }
  }

  void check_gather(const Flight& flight) {
    const PlannedOperation& planned = plan_.operations[flight.operation];
    for (size_t b = 0; b < planned.dtypes.size(); ++b) {
      const int64_t range = planned.range_numels[b];
      for (int64_t i = 0; i < range * plan_.world_size; ++i) {
        const int owner = static_cast<int>(i / range);
        const uint32_t want = input_bits(plan_, flight.operation, b, owner, i, planned.dtypes[b]);
        expect(flight.buffers[b].bits(i) == want, "gather", flight.operation, i);
        share(flight.buffers[b].bits(i));
      }
    }
  }

  void check_reduce(const Flight& flight, const Memory& output, int range_index) {
    const PlannedOperation& planned = plan_.operations[flight.operation];
    const DType dtype = planned.dtypes[0];
    const bool scatter = planned.kind == Kind::reduce_scatter;
    for (int64_t i = 0; i < planned.range_numels[0]; ++i) {
      const int64_t place = range_index * planned.range_numels[0] + i;
      const uint32_t want = mean_bits(plan_, flight.operation, place, dtype);
      const uint32_t got = output.bits(i);
      const bool exact = scatter || order_ == AllReduceOrder::rank;
      const double error = std::abs(decode(got, dtype) - decode(want, dtype));
      // Below 128 fp32 sums of 8 ranks are the same in any order; then the format rounds once.
      const double step =
          std::ldexp(std::abs(decode(want, dtype)), -format_of(dtype).fraction_bits);
      expect(exact ? got == want : error <= 1e-4 + step, "reduce", flight.operation, i);
      if (!scatter) share(got);
    }
  }

  void check_sum(Communicator& channel, const Operation& name, size_t index) {
    const int64_t numel = plan_.operations[index].range_numels[0];
    std::vector<double> values;
    for (int64_t i = 0; i < numel; ++i) values.push_back(sum_input(plan_, index, rank_, i));
    channel.sum(name, values);
    for (int64_t i = 0; i < numel; ++i) {
      double want = 0;
      for (int rank = 0; rank < plan_.world_size; ++rank) {
        want += sum_input(plan_, index, rank, i);
      }
      const double got = values[static_cast<size_t>(i)];
      expect(std::abs(got - want) <= 1e-12 * 1024, "sum", index, i);
      share(std::bit_cast<uint64_t>(got));
    }
  }

  void expect(bool held, const char* what, size_t operation, int64_t index) {
    if (held || !fault_.empty()) return;
    fault_ = std::string(what) + " of rank " + std::to_string(rank_) + ", operation " +
             std::to_string(operation) + ", element " + std::to_string(index) + " is wrong";
  }

  void share(uint64_t bits) { shared_hash_ = (shared_hash_ ^ bits) * 0x100000001b3u; }

  const Plan& plan_;
  std::vector<Communicator*> channels_;
  AllReduceOrder order_;
  int rank_;
  std::deque<Flight> flights_[2];
  std::string fault_;
  uint64_t shared_hash_ = 0xcbf29ce484222325u;
};

}  // namespace

uint32_t encode(double value, DType dtype) {
  const Format format = format_of(dtype);
  const uint32_t sign = std::signbit(value) ? 1u << (format.total_bits - 1) : 0u;
  const uint32_t infinity = ((2u << (format.total_bits - format.fraction_bits - 2)) - 1)
                            << format.fraction_bits;
  if (std::isnan(value)) return sign | infinity | 1u << (format.fraction_bits - 1);
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  const int least = 1 - format.bias;
  const int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
  // In steps of the format at this exponent; nearbyint rounds ties to even.
  const double steps = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
  // A whole number of steps that carries into the exponent is the next binade's first value.
  const auto bits = static_cast<uint64_t>(steps) +
                    (static_cast<uint64_t>(exponent - least) << format.fraction_bits);
  return sign | static_cast<uint32_t>(std::min<uint64_t>(bits, infinity));
}

double decode(uint32_t bits, DType dtype) {
  const Format format = format_of(dtype);
  const uint32_t fraction = bits & ((1u << format.fraction_bits) - 1);
  const int exponent_bits = format.total_bits - 1 - format.fraction_bits;
  const int exponent =
      static_cast<int>((bits >> format.fraction_bits) & ((1u << exponent_bits) - 1));
  const double sign = (bits >> (format.total_bits - 1)) & 1u ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
  const uint32_t hidden = exponent == 0 ? 0u : 1u << format.fraction_bits;
  return sign * std::ldexp(static_cast<double>(hidden + fraction),
                           std::max(exponent, 1) - format.bias - format.fraction_bits);
}

int64_t Plan::max_gather_bytes() const {
  int64_t most = 0;
  for (const PlannedOperation& operation : operations) {
    int64_t bytes = 0;
    for (size_t b = 0; b < operation.dtypes.size(); ++b) {
      bytes += operation.range_numels[b] * bytes_of(operation.dtypes[b]);
    }
    if (operation.kind == Kind::gather) most = std::max(most, bytes);
  }
  return most;
}

int64_t Plan::max_reduce_bytes() const {
  int64_t most = 0;
  for (const PlannedOperation& operation : operations) {
    if (operation.dtypes.empty() || operation.kind == Kind::gather) continue;
    const int ranges = operation.kind == Kind::reduce_scatter ? world_size : 1;
    most = std::max(most, operation.range_numels[0] * ranges * bytes_of(operation.dtypes[0]));
  }
  return most;
}

Plan random_plan(uint64_t seed, int world_size, int operations) {
  std::mt19937_64 random(seed);
  const auto below = [&](int limit) {
    return std::uniform_int_distribution<int>(0, limit - 1)(random);
  };
  const auto size = [&] {
    const int shape = below(8);
    return static_cast<int64_t>(shape == 0 ? 0 : shape == 1 ? 2000 + below(3000) : 1 + below(90));
  };
  Plan plan{seed, world_size, {}};
  int in_flight[2] = {0, 0};
  for (int i = 0; i < operations; ++i) {
    PlannedOperation operation;
    const int draw = below(20);
    operation.kind = draw < 8    ? Kind::gather
                     : draw < 14 ? Kind::reduce_scatter
                     : draw < 18 ? Kind::all_reduce
                     : draw < 19 ? Kind::sum
                                 : Kind::barrier;
    operation.channel = below(2);
    int& flying = in_flight[operation.channel];
    const bool returns_done = operation.kind == Kind::sum || operation.kind == Kind::barrier;
    operation.tickets_due = returns_done ? flying : below(flying + 1);
    flying += (returns_done ? 0 : 1) - operation.tickets_due;
    const int buffers = operation.kind == Kind::gather ? 1 + below(3) : 1;
    for (int b = 0; b < buffers; ++b) {
      operation.range_numels.push_back(operation.kind == Kind::sum ? below(100) : size());
      if (!returns_done) operation.dtypes.push_back(static_cast<DType>(below(3)));
    }
    plan.operations.push_back(operation);
  }
  return plan;
}

std::string run_plan(const Plan& plan, Communicator& first, Communicator& second,
                     AllReduceOrder order) {
  return Player(plan, first, second, order).play();
}

}  // namespace shardlens::tests
