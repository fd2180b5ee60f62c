#include "backend/host/device.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "backend/host/machine.hpp"
#include "backend/memory_account.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"
#include "kernels/host/host_kernels.hpp"

namespace dflop {
namespace {

constexpr std::align_val_t kAlignment{256};

/// HostMemory is the host's memory, and what a rank's buffers take of it.
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
      : memory_(std::move(memory)), data_(memory_->take(bytes)), bytes_(bytes) {}
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() override { memory_->give_back(data_, bytes_); }

  void* data() override { return data_; }
  const void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<HostMemory> memory_;
  void* data_;
  std::size_t bytes_;
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
    throw Error(ErrorKind::internal, "a stream of the host takes events of the host only");
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
      : memory_(std::make_shared<HostMemory>(options)), processor_(options.processor) {}

  std::string name() const override { return "host"; }
  bool is_synchronous() const override { return true; }
  void enter_thread() override {
    if (processor_) stay_on_processor(*processor_);
  }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<HostBuffer>(memory_, bytes);
  }
  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Kernels> make_kernels(DeviceStream&, DType dtype) override {
    return make_host_kernels(dtype);
  }

  Bytes in_use() const override { return memory_->account().in_use(); }
  Bytes most_in_use() const override { return memory_->account().most_in_use(); }
  void reset_most_in_use() override { memory_->account().reset_most_in_use(); }

 private:
  std::shared_ptr<HostMemory> memory_;
  std::optional<int> processor_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace dflop
