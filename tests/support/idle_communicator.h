// A communicator whose collectives do nothing at all: any rank of any set, on any device.
#pragma once

#include <span>
#include <string>

#include "runtime/comm/communicator.h"

namespace shardlens::tests {

class IdleCommunicator final : public runtime::Communicator {
 public:
  explicit IdleCommunicator(int rank = 0, int world_size = 1)
      : rank_(rank), world_size_(world_size) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  runtime::Ticket all_gather(const runtime::Operation&,
                             std::span<const runtime::GatherBuffer>) override {
    return 0;
  }
  runtime::Ticket reduce_scatter(const runtime::Operation&,
                                 const runtime::ReduceBuffers&) override {
    return 0;
  }
  runtime::Ticket all_reduce(const runtime::Operation&, void*, int64_t, DType) override {
    return 0;
  }
  void sum(const runtime::Operation&, std::span<double>) override {}
  void wait(runtime::Ticket) override {}
  void barrier(const runtime::Operation&) override {}
  void abort(const std::string&) noexcept override {}

 private:
  int rank_;
  int world_size_;
};

}  // namespace shardlens::tests
