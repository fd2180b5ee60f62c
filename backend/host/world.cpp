#include "backend/host/world.hpp"

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/byte_offset.hpp"
#include "backend/host/run.hpp"
#include "backend/host/sums.hpp"
#include "backend/host/thread_communicator.hpp"

namespace dflop {
namespace {

/// One rank's share of a collective's work, all of whose ranks have come. `place` is its own.
void reduce_slice(const HostCollective& collective, std::size_t place) {
  HostSum sum{collective.call.element, {}, {}};
  for (const auto& part : collective.parts) {
    sum.inputs.push_back(part->input);
    sum.outputs.push_back(part->output);
  }
  const std::size_t count = collective.call.count;
  const std::size_t ranks = collective.parts.size();
  add_up(sum, count * place / ranks, count * (place + 1) / ranks);
}

void gather_parts(const HostCollective& collective, std::size_t place) {
  const std::size_t bytes = collective.call.count * bytes_of(collective.call.element);
  if (bytes == 0) return;
  for (std::size_t r = 0; r < collective.parts.size(); ++r) {
    std::byte* to = offset(collective.parts[place]->output, r * bytes);
    const void* from = collective.parts[r]->input;
    if (to != from) std::memcpy(to, from, bytes);
  }
}

void reduce_part(const HostCollective& collective, std::size_t place) {
  const std::size_t bytes = collective.call.count * bytes_of(collective.call.element);
  HostSum sum{collective.call.element, {}, {collective.parts[place]->output}};
  for (const auto& part : collective.parts) sum.inputs.push_back(offset(part->input, place * bytes));
  add_up(sum, 0, collective.call.count);
}

/// A message's own memory.
class HeapBuffer final : public Buffer {
 public:
  HeapBuffer(const void* data, std::size_t bytes)
      : bytes_(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + bytes) {}
  void* data() override { return bytes_.data(); }
  const void* data() const override { return bytes_.data(); }
  std::size_t bytes() const override { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

/// Streams are passed over: those of the host have come to their end whenever a call is made.
class HostCommunicator final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;

 private:
  HostMessage pack(const void* data, std::size_t bytes, DeviceStream&) override {
    return {std::make_unique<HeapBuffer>(data, bytes), {}, {}, {}};
  }
  void unpack(void* data, HostMessage message, DeviceStream&) override {
    const Buffer& from = *message.data;
    if (from.bytes() > 0) std::memcpy(data, from.data(), from.bytes());
  }

  void come(HostPart&, DeviceStream&) override {}
  void do_share(const HostCollective& collective, std::size_t place, DeviceStream&) override {
    switch (collective.call.kind) {
      case CollectiveKind::all_reduce:
        return reduce_slice(collective, place);
      case CollectiveKind::all_gather:
        return gather_parts(collective, place);
      case CollectiveKind::reduce_scatter:
        return reduce_part(collective, place);
    }
  }
  void finish(const HostCollective&, DeviceStream&) override {}
};

class HostTurn final : public ComputeTurn {
 public:
  HostTurn(std::shared_ptr<HostRun> run, int rank) : run_(std::move(run)), rank_(rank) {}
  Nanoseconds begin() override { return run_->begin_turn(rank_); }
  void end() override { run_->end_turn(rank_); }

 private:
  std::shared_ptr<HostRun> run_;
  int rank_;
};

}  // namespace

HostWorld::HostWorld(int ranks, Seconds timeout, int cores)
    : run_(std::make_shared<HostRun>(ranks, timeout, cores)) {}

std::unique_ptr<Communicator> HostWorld::communicator(int rank) {
  return std::make_unique<HostCommunicator>(run_, rank);
}

std::unique_ptr<ComputeTurn> HostWorld::turn(int rank, const RankGroup& tp) {
  if (!run_->join_turns(rank, tp)) return nullptr;
  return std::make_unique<HostTurn>(run_, rank);
}

}  // namespace dflop
