#include "backend/host/world.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "backend/host/run.hpp"
#include "backend/host/thread_communicator.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "core/quanta.hpp"
#include "core/support/clock.hpp"
#include "kernels/host/host_kernels.hpp"
#include "kernels/host/team.hpp"

namespace dflop {
namespace {

constexpr std::align_val_t kAlignment{256};

/// HostMemory allocates host memory and counts the memory of a rank's buffers.
class HostMemory {
 public:
  explicit HostMemory(const HostDeviceOptions& options)
      : account_("rank " + std::to_string(options.rank) + " on host", options.memory),
        budget_(options.budget) {}

  void* take(std::size_t bytes) {
    account_.check(bytes);
    if (budget_ && !budget_->take(bytes)) account_.refused(bytes, budget_->left());
    void* data = ::operator new(bytes, kAlignment, std::nothrow);
    if (data == nullptr) {
      if (budget_) budget_->give_back(bytes);
      account_.refused(bytes, Bytes{0});
    }
    account_.add(bytes);
    return data;
  }

  void give_back(void* data, std::size_t bytes) {
    ::operator delete(data, kAlignment);
    account_.remove(bytes);
    if (budget_) budget_->give_back(bytes);
  }

  MemoryAccount& account() { return account_; }

 private:
  MemoryAccount account_;
  std::shared_ptr<HostBudget> budget_;
};

class HostBuffer final : public Buffer {
 public:
  HostBuffer(std::shared_ptr<HostMemory> memory, std::size_t bytes)
      : Buffer(memory->take(bytes), bytes), memory_(std::move(memory)) {}
  ~HostBuffer() override { memory_->give_back(data(), bytes()); }

 private:
  std::shared_ptr<HostMemory> memory_;
};

class HostEvent final : public DeviceEvent {
 public:
  void record() { time_ = host_time(); }

  Nanoseconds time() override {
    if (!time_) throw Error(ErrorKind::internal, "an event has no time before a stream records it");
    return *time_;
  }
  bool recorded() const { return time_.has_value(); }

 private:
  std::optional<Nanoseconds> time_;
};

HostEvent& of_host(DeviceEvent& event) {
  auto* host = dynamic_cast<HostEvent*>(&event);
  if (host == nullptr) {
    throw Error(ErrorKind::internal, "a stream of the host can wait only for events of the host");
  }
  return *host;
}

class HostStream final : public DeviceStream {
 public:
  void record(DeviceEvent& event) override { of_host(event).record(); }
  void wait(DeviceEvent& event) override {
    if (of_host(event).recorded()) return;
    throw Error(ErrorKind::internal, "a stream waits for an event that was never recorded");
  }
  void synchronize() override {}

  void copy_to_device(void* destination, const void* source, std::size_t bytes) override {
    copy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, std::size_t bytes) override {
    copy(destination, source, bytes);
  }
  void copy(void* destination, const void* source, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(destination, source, bytes);
  }
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : memory_(std::make_shared<HostMemory>(options)),
        processor_(options.processor),
        row_alignment_(options.row_alignment) {
    if (options.team > 0) team_.emplace(options.team, options.team_processors);
  }

  std::string name() const override { return "host"; }
  bool is_synchronous() const override { return true; }
  int row_alignment() const override { return row_alignment_; }
  void enter_thread() override {
    if (processor_) stay_on_processor(*processor_);
  }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<HostBuffer>(memory_, bytes);
  }
  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Kernels> make_kernels(DeviceStream&, DType dtype) override {
    return make_host_kernels(dtype, fastest_host_target(), team_ ? &*team_ : nullptr);
  }

  Bytes in_use() const override { return memory_->account().in_use(); }
  Bytes most_in_use() const override { return memory_->account().most_in_use(); }
  void reset_most_in_use() override { memory_->account().reset_most_in_use(); }

 private:
  std::shared_ptr<HostMemory> memory_;
  std::optional<int> processor_;
  int row_alignment_;
  std::optional<Team> team_;
};

/// Adding is the type in which an element's values are added: float, double, or float for bfloat16.
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

constexpr std::size_t kBlock = 1024;  // sums at a time; they stay in the first-level cache

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

/// A HeapBuffer owns the memory of a message.
class HeapBuffer final : public Buffer {
 public:
  explicit HeapBuffer(std::vector<std::byte> content)
      : Buffer(content.data(), content.size()), content_(std::move(content)) {}

 private:
  std::vector<std::byte> content_;
};

/// A HostCommunicator ignores streams, because the host's streams have finished their work whenever a call is
/// made.
class HostCommunicator final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;

 private:
  HostMessage pack(const void* data, std::size_t bytes, DeviceStream&) override {
    const auto* begin = static_cast<const std::byte*>(data);
    return {std::make_unique<HeapBuffer>(std::vector(begin, begin + bytes)), {}, {}, {}};
  }
  void unpack(void* data, HostMessage message, DeviceStream&) override {
    copy(data, message.data->data(), message.data->bytes());
  }

  void come(HostPart&, DeviceStream&) override {}
  void copy(void* to, const void* from, std::size_t bytes, DeviceStream&) override { copy(to, from, bytes); }
  void add_up(const HostSum& sum, std::size_t begin, std::size_t end, DeviceStream&) override {
    switch (sum.element) {
      case DType::f32:
        return add_blocks<float>(sum, begin, end);
      case DType::f64:
        return add_blocks<double>(sum, begin, end);
      case DType::bf16:
        return add_blocks<BFloat16>(sum, begin, end);
    }
  }
  bool takes_any_share() const override { return true; }
  void go_on(const HostCollective&, DeviceStream&) override {}

  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
};

/// Returns how many of the ranks' devices compute at a time. @throws Error (internal) for invalid options
int turns_of(int ranks, const WorldOptions& options) {
  const int devices = options.shared_devices;
  if (options.device_cores < 1) {
    throw Error(ErrorKind::internal,
                "expected devices of at least 1 core, found " + std::to_string(options.device_cores));
  }
  if (devices != 0 && (2 * devices != ranks || options.device_cores < 2)) {
    throw Error(ErrorKind::internal, std::to_string(ranks) + " ranks do not share " +
                                         std::to_string(devices) + " devices of " +
                                         std::to_string(options.device_cores) + " cores in pairs");
  }
  if (options.cores <= 0) return options.cores;
  return devices > 0 ? 0 : std::max(1, options.cores / options.device_cores);
}

/// Returns whether to pin ranks to processors. Without pinning, a woken thread may wait for milliseconds
/// behind the thread that woke it while another processor is idle. If most processors are idle, it finds one;
/// pinned ranks would then share processors with the ranks of other runs.
bool stays_on_processors(int ranks, std::size_t processors) {
  const auto count = static_cast<std::size_t>(ranks);
  return ranks > 1 && count <= processors && 2 * count > processors;
}

/// Returns the number of devices whose ranks are pinned to processors; 0: threads are not pinned. Teams are
/// pinned whenever possible, because a member that waits behind the thread that woke it delays its whole
/// team. If only one of several teams fits, all are pinned to its processors and compute in turns.
int places_for(int devices, const WorldOptions& options, std::size_t processors) {
  const auto all = static_cast<int>(processors);
  const int threads = devices * options.device_cores;
  if (options.device_cores == 1) {
    return threads <= options.cores && stays_on_processors(threads, processors) ? devices : 0;
  }
  if (threads <= options.cores && threads <= all) return devices;
  const bool one_fits = options.device_cores <= all && 2 * options.device_cores > all;
  return one_fits && options.device_cores <= options.cores ? 1 : 0;
}

/// Returns the budget that all concurrent worlds of this process share; otherwise each would count on all
/// free memory. Null if the system does not report free memory.
std::shared_ptr<HostBudget> shared_budget() {
  static std::mutex mutex;
  static std::weak_ptr<HostBudget> of_worlds;
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<HostBudget> known = of_worlds.lock()) return known;
  const std::optional<Bytes> all = available_host_memory();
  if (!all) return nullptr;
  std::shared_ptr<HostBudget> budget = std::make_shared<HostBudget>(*all);
  of_worlds = budget;
  return budget;
}

}  // namespace

std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

HostWorld::HostWorld(int ranks, const WorldOptions& options)
    : ranks_(ranks),
      options_(options),
      turns_(turns_of(ranks, options)),
      run_(std::make_shared<HostRun>(ranks, options.timeout, turns_)) {
  const std::vector<int> processors = usable_processors();
  const int devices = options.shared_devices > 0 ? options.shared_devices : ranks;
  places_ = places_for(devices, options, processors.size());
  if (places_ > 0) processors_ = processors;
  budget_ = shared_budget();
}

/// Returns the cores of a rank: all cores of its device, or its part of a shared device.
HostWorld::CoreRange HostWorld::cores_of(int rank) const {
  const int all = options_.device_cores;
  const int devices = options_.shared_devices;
  const int device = devices > 0 ? rank % devices : rank;
  const int begin = places_ > 0 ? device % places_ * all : 0;
  if (devices == 0) return {begin, all};
  const int first = encoder_quanta(all, options_.first_share);
  return rank < devices ? CoreRange{begin, first} : CoreRange{begin + first, all - first};
}

std::string HostWorld::part_of(int rank) const {
  const int count = cores_of(rank).count;
  return std::to_string(count) + (count == 1 ? " core" : " cores");
}

std::unique_ptr<Device> HostWorld::make_device(int rank) {
  HostDeviceOptions options{rank, options_.memory, budget_};
  const CoreRange own = cores_of(rank);
  if (options_.device_cores > 1) options.team = own.count;
  options.row_alignment = options_.row_alignment;
  if (!processors_.empty()) {
    const auto begin = processors_.begin() + own.first;
    options.processor = *begin;
    options.team_processors.assign(begin, begin + own.count);
  }
  return make_host_device(options);
}

std::unique_ptr<Communicator> HostWorld::make_communicator(int rank) {
  return std::make_unique<HostCommunicator>(run_, rank);
}

std::unique_ptr<ComputeTurn> HostWorld::make_turn(int rank, const RankGroup& tp) {
  if (!run_->join_turns(rank, tp)) return nullptr;
  return std::make_unique<ComputeTurn>(ComputeTurn{[run = run_, rank] { return run->begin_turn(rank); },
                                                   [run = run_, rank] { run->end_turn(rank); }});
}

}  // namespace dflop
