#include "backend/host/world.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "backend/host/device.hpp"
#include "backend/host/run.hpp"
#include "backend/host/thread_communicator.hpp"
#include "kernels/dtype.hpp"

namespace dflop {
namespace {

/// Adding says how an element's values are added: as float, double, or float in bfloat16's place.
template <typename Value>
struct Adding {
  using Sum = Value;
  static Sum widen(Value value) { return value; }
  static Value narrow(Sum sum) { return sum; }
};
template <>
struct Adding<BFloat16> {
  using Sum = float;
  static Sum widen(BFloat16 value) { return to_float(value); }
  static BFloat16 narrow(Sum sum) { return to_bfloat16(sum); }
};

constexpr std::size_t kBlock = 1024;  // sums at a time, which stay in the first cache

template <typename Value>
void add_block(const HostSum& sum, std::size_t begin, std::size_t count) {
  using A = Adding<Value>;
  std::array<typename A::Sum, kBlock> sums;
  const auto* first = static_cast<const Value*>(sum.inputs.front()) + begin;
  std::transform(first, first + count, sums.begin(), A::widen);
  for (std::size_t k = 1; k < sum.inputs.size(); ++k) {
    const auto* input = static_cast<const Value*>(sum.inputs[k]) + begin;
    for (std::size_t i = 0; i < count; ++i) sums[i] += A::widen(input[i]);
  }
  for (void* output : sum.outputs) {
    std::transform(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count),
                   static_cast<Value*>(output) + begin, A::narrow);
  }
}

template <typename Value>
void add_blocks(const HostSum& sum, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; i += kBlock) add_block<Value>(sum, i, std::min(kBlock, end - i));
}

/// A HeapBuffer is a message's own memory.
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

/// A HostCommunicator passes streams over: those of the host have come to their end whenever a call is made.
class HostCommunicator final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;

 private:
  HostMessage pack(const void* data, std::size_t bytes, DeviceStream&) override {
    return {std::make_unique<HeapBuffer>(data, bytes), {}, {}, {}};
  }
  void unpack(void* data, HostMessage message, DeviceStream&) override {
    copy(data, message.data->data(), message.data->bytes());
  }

  void come(HostPart&, DeviceStream&) override {}
  void copy(void* to, const void* from, std::size_t bytes, DeviceStream&) override { copy(to, from, bytes); }
  void add_up(const HostSum& sum, std::size_t begin, std::size_t end, DeviceStream&) override {
    switch (sum.element) {
      case Element::f32:
        return add_blocks<float>(sum, begin, end);
      case Element::f64:
        return add_blocks<double>(sum, begin, end);
      case Element::bf16:
        return add_blocks<BFloat16>(sum, begin, end);
    }
  }
  void finish(const HostCollective&, DeviceStream&) override {}

  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
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

/// Returns whether ranks stay on processors. A thread that is woken may wait behind the one that woke it, for
/// milliseconds, while another processor is idle. Where most are idle it finds one, and ranks that stayed
/// would share theirs with those of other runs.
bool stays_on_processors(int ranks, std::size_t processors) {
  const auto count = static_cast<std::size_t>(ranks);
  return ranks > 1 && count <= processors && 2 * count > processors;
}

}  // namespace

HostWorld::HostWorld(int ranks, const HostWorldOptions& options)
    : ranks_(ranks),
      options_(options),
      run_(std::make_shared<HostRun>(ranks, options.timeout, options.cores)) {
  const std::vector<int> processors = usable_processors();
  if (ranks <= options.cores && stays_on_processors(ranks, processors.size())) processors_ = processors;
  if (const std::optional<Bytes> all = available_host_memory()) budget_ = std::make_shared<HostBudget>(*all);
}

std::unique_ptr<Device> HostWorld::make_device(int rank) {
  HostDeviceOptions options{rank, options_.memory, budget_};
  if (!processors_.empty()) options.processor = processors_[static_cast<std::size_t>(rank)];
  return make_host_device(options);
}

std::unique_ptr<Communicator> HostWorld::make_communicator(int rank) {
  return std::make_unique<HostCommunicator>(run_, rank);
}

std::unique_ptr<ComputeTurn> HostWorld::make_turn(int rank, const RankGroup& tp) {
  if (!run_->join_turns(rank, tp)) return nullptr;
  return std::make_unique<HostTurn>(run_, rank);
}

}  // namespace dflop
