#include "backend/cuda/world.hpp"

#include <exception>
#include <utility>

#include "backend/cuda/gpu.hpp"
#include "backend/host/thread_communicator.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

/// A CudaMessage owns memory that is allocated in the sender's stream and freed in the receiver's.
class CudaMessage final : public Buffer {
 public:
  CudaMessage(std::shared_ptr<CudaGpu> gpu, std::size_t bytes, CudaStream& stream)
      : Buffer(nullptr, bytes), gpu_(std::move(gpu)), ready_(gpu_->make_event()) {
    if (bytes == 0) return;
    data_ = gpu_->allocate(bytes, stream.handle());
    if (data_ == nullptr) {
      throw OutOfMemory("a message of " + std::to_string(bytes) + " bytes has no room on " + gpu_->name(),
                        Bytes{static_cast<std::int64_t>(bytes)}, gpu_->free_memory());
    }
  }
  /// Frees a message that nobody received. The sender's stream may no longer exist.
  ~CudaMessage() override {
    if (data_ == nullptr) return;
    try {
      ready_->make_wait(gpu_->side_stream());
    } catch (...) {  // the message was never filled, or the GPU has failed
    }
    CudaGpu::free(data_, gpu_->side_stream());
  }

  void fill(const void* from, CudaStream& stream) {
    stream.copy(data_, from, bytes());
    stream.record(*ready_);
  }
  void empty(void* to, CudaStream& stream) {
    stream.wait(*ready_);
    stream.copy(to, data_, bytes());
    if (data_ != nullptr) CudaGpu::free(std::exchange(data_, nullptr), stream.handle());
  }
  const std::shared_ptr<CudaEvent>& ready() const { return ready_; }

 private:
  std::shared_ptr<CudaGpu> gpu_;
  std::shared_ptr<CudaEvent> ready_;
};

class CudaCommunicator final : public ThreadCommunicator {
 public:
  CudaCommunicator(std::shared_ptr<CudaGpu> gpu, std::shared_ptr<HostRun> run, int rank)
      : ThreadCommunicator(std::move(run), rank), gpu_(std::move(gpu)) {}

 private:
  HostMessage pack(const void* data, std::size_t bytes, DeviceStream& to) override {
    auto copy = std::make_unique<CudaMessage>(gpu_, bytes, of_cuda(to));
    copy->fill(data, of_cuda(to));
    std::shared_ptr<DeviceEvent> ready = copy->ready();
    return {std::move(copy), {}, std::move(ready), {}};
  }

  void unpack(void* data, HostMessage message, DeviceStream& to) override {
    static_cast<CudaMessage&>(*message.data).empty(data, of_cuda(to));
  }

  void come(HostPart& part, DeviceStream& stream) override {
    part.come = gpu_->make_event();
    part.done = gpu_->make_event();
    stream.record(*part.come);
  }

  /// Records the end of a share even if it fails. Otherwise the other ranks would fail because of the missing
  /// record and hide the reason.
  void do_share(const HostCollective& collective, std::size_t place, DeviceStream& stream) override {
    std::exception_ptr failure;
    try {
      for (const auto& part : collective.parts) stream.wait(*part->come);
      ThreadCommunicator::do_share(collective, place, stream);
    } catch (...) {
      failure = std::current_exception();
    }
    stream.record(*collective.parts[place]->done);
    if (failure) std::rethrow_exception(failure);
  }

  /// After this call, no other rank reads or writes this rank's memory.
  void go_on(const HostCollective& collective, DeviceStream& stream) override {
    for (const auto& part : collective.parts) stream.wait(*part->done);
  }

  void copy(void* to, const void* from, std::size_t bytes, DeviceStream& stream) override {
    stream.copy(to, from, bytes);
  }
  void add_up(const HostSum& sum, std::size_t begin, std::size_t end, DeviceStream& stream) override {
    add_up_on_gpu(sum, begin, end, of_cuda(stream).handle(), gpu_->multiprocessors());
  }

  std::shared_ptr<CudaGpu> gpu_;
};

/// Returns "13.0" for 13000.
std::string version(cudaError_t (*ask)(int*)) {
  int number = 0;
  check_cuda(ask(&number), "CUDA's version");
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

class CudaWorld final : public World {
 public:
  CudaWorld(int ranks, const WorldOptions& options)
      : gpu_(std::make_shared<CudaGpu>(0)),
        options_(options),
        run_(std::make_shared<HostRun>(ranks, options.timeout)) {
    if (options.partition) partition_ = make_cuda_partition(gpu_->index(), ranks, options);
    if (options.shared_devices > 0 && !options.partition) {
      throw Error(ErrorKind::internal, "ranks share devices of a GPU that is not partitioned");
    }
  }

  std::string device_name() const override {
    // A device that covers the whole GPU is named like the GPU, even if ranks share it.
    if (partition_ == nullptr || options_.shared_devices == 1) return gpu_->name();
    if (options_.shared_devices > 1) {
      return gpu_->name() + " as " + std::to_string(options_.shared_devices) + " devices";
    }
    return gpu_->name() + ", " + std::to_string(partition_->multiprocessors_of(0)) +
           std::string(kPartitionName);
  }
  int shared_devices() const override { return options_.shared_devices; }
  int quanta() const override {
    return options_.shared_devices > 0 ? partition_->groups() / options_.shared_devices : 0;
  }
  std::string part_of(int rank) const override {
    return partition_ ? std::to_string(partition_->multiprocessors_of(rank)) + " multiprocessors" : "";
  }
  std::string software() const override {
    return "CUDA driver " + version(cudaDriverGetVersion) + ", runtime " + version(cudaRuntimeGetVersion) +
           attention_software(options_.attention);
  }
  int ranks() const override { return run_->ranks(); }
  std::unique_ptr<Device> make_device(int rank) override {
    return make_cuda_device(gpu_, {rank, options_.memory, partition_, options_.attention});
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    return std::make_unique<CudaCommunicator>(gpu_, run_, rank);
  }

 private:
  std::shared_ptr<CudaGpu> gpu_;
  WorldOptions options_;
  std::shared_ptr<HostRun> run_;
  std::shared_ptr<CudaPartition> partition_;
};

}  // namespace

std::string attention_software(const AttentionOptions& options) {
  const std::string library = attention_library();
  if (library.empty()) return {};
  std::string text = ", " + library;
  if (options.sums != AttentionSums::fixed) text += " with sums in any order";
  if (options.workspace) text += " in " + std::to_string(options.workspace->count >> 20) + " MiB";
  return text;
}

std::unique_ptr<World> make_cuda_world(int ranks, const WorldOptions& options) {
  if (ranks > kMaxCudaSummands) {
    throw Error(ErrorKind::usage, "device 'cuda' runs up to " + std::to_string(kMaxCudaSummands) +
                                      " ranks on its GPU, not " + std::to_string(ranks));
  }
  return std::make_unique<CudaWorld>(ranks, options);
}

}  // namespace dflop
