#include "backend/cuda/world.hpp"

#include <exception>
#include <numeric>
#include <string>
#include <utility>

#include "backend/byte_offset.hpp"
#include "backend/cuda/device.hpp"
#include "backend/cuda/partition.hpp"
#include "backend/cuda/stream.hpp"
#include "backend/cuda/sums.hpp"
#include "backend/host/thread_communicator.hpp"
#include "core/error.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

/// A message's own memory, taken in the sender's stream and given back in the receiver's.
class CudaMessage final : public Buffer {
 public:
  CudaMessage(std::shared_ptr<CudaGpu> gpu, std::size_t bytes, CudaStream& stream)
      : gpu_(std::move(gpu)), bytes_(bytes), ready_(gpu_->make_event()) {
    if (bytes == 0) return;
    data_ = gpu_->allocate(bytes, stream.handle());
    if (data_ == nullptr) {
      throw OutOfMemory("a message of " + std::to_string(bytes) + " bytes has no room on " + gpu_->name(),
                        Bytes{static_cast<std::int64_t>(bytes)}, gpu_->free_memory());
    }
  }
  CudaMessage(const CudaMessage&) = delete;
  CudaMessage& operator=(const CudaMessage&) = delete;
  /// One that nobody received; its sender's stream may have ended.
  ~CudaMessage() override {
    if (data_ == nullptr) return;
    try {
      ready_->make_wait(gpu_->side_stream());
    } catch (...) {  // it was never filled, or the GPU has failed
    }
    CudaGpu::free(data_, gpu_->side_stream());
  }

  void* data() override { return data_; }
  const void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

  void fill(const void* from, CudaStream& stream) {
    stream.copy(data_, from, bytes_);
    stream.record(*ready_);
  }
  void empty(void* to, CudaStream& stream) {
    stream.wait(*ready_);
    stream.copy(to, data_, bytes_);
    if (data_ != nullptr) CudaGpu::free(std::exchange(data_, nullptr), stream.handle());
  }
  const std::shared_ptr<CudaEvent>& ready() const { return ready_; }

 private:
  std::shared_ptr<CudaGpu> gpu_;
  void* data_ = nullptr;
  std::size_t bytes_;
  std::shared_ptr<CudaEvent> ready_;
};

/// The end of this rank's slice of values that all ranks add up, at whole vectors but for the last.
std::size_t slice_end(std::size_t count, std::size_t place, std::size_t ranks) {
  constexpr std::size_t kWhole = 8;  // values of bf16 in 16 bytes
  return place + 1 == ranks ? count : count / ranks * (place + 1) / kWhole * kWhole;
}

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

  /// Its end is recorded even where it fails, or the others would fail for its absence and hide the reason.
  void do_share(const HostCollective& collective, std::size_t place, DeviceStream& stream) override {
    std::exception_ptr failure;
    try {
      add_share(collective, place, of_cuda(stream));
    } catch (...) {
      failure = std::current_exception();
    }
    stream.record(*collective.parts[place]->done);
    if (failure) std::rethrow_exception(failure);
  }

  /// Then nobody reads or writes this rank's memory any more.
  void finish(const HostCollective& collective, DeviceStream& stream) override {
    for (const auto& part : collective.parts) stream.wait(*part->done);
  }

  void add_share(const HostCollective& collective, std::size_t place, CudaStream& stream) const {
    for (const auto& part : collective.parts) stream.wait(*part->come);
    switch (collective.call.kind) {
      case CollectiveKind::all_reduce:
        reduce_slice(collective, place, stream);
        break;
      case CollectiveKind::all_gather:
        gather_parts(collective, place, stream);
        break;
      case CollectiveKind::reduce_scatter:
        reduce_part(collective, place, stream);
        break;
    }
  }

  void reduce_slice(const HostCollective& collective, std::size_t place, CudaStream& stream) const {
    HostSum sum{collective.call.element, {}, {}};
    for (const auto& part : collective.parts) {
      sum.inputs.push_back(part->input);
      sum.outputs.push_back(part->output);
    }
    const std::size_t ranks = collective.parts.size();
    const std::size_t begin = place == 0 ? 0 : slice_end(collective.call.count, place - 1, ranks);
    add_up_on_gpu(sum, begin, slice_end(collective.call.count, place, ranks), stream.handle(),
                  gpu_->multiprocessors());
  }

  static void gather_parts(const HostCollective& collective, std::size_t place, CudaStream& stream) {
    const std::size_t bytes = collective.call.count * bytes_of(collective.call.element);
    for (std::size_t r = 0; bytes > 0 && r < collective.parts.size(); ++r) {
      std::byte* to = offset(collective.parts[place]->output, r * bytes);
      const void* from = collective.parts[r]->input;
      if (to != from) stream.copy(to, from, bytes);
    }
  }

  void reduce_part(const HostCollective& collective, std::size_t place, CudaStream& stream) const {
    const std::size_t bytes = collective.call.count * bytes_of(collective.call.element);
    HostSum sum{collective.call.element, {}, {collective.parts[place]->output}};
    for (const auto& part : collective.parts) sum.inputs.push_back(offset(part->input, place * bytes));
    add_up_on_gpu(sum, 0, collective.call.count, stream.handle(), gpu_->multiprocessors());
  }

  std::shared_ptr<CudaGpu> gpu_;
};

/// "13.0" of 13000.
std::string version(cudaError_t (*ask)(int*)) {
  int number = 0;
  check_cuda(ask(&number), "CUDA's version");
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

class CudaRanks final : public World {
 public:
  CudaRanks(int ranks, const CudaWorldOptions& options)
      : gpu_(open_cuda_gpu(0)), options_(options), run_(std::make_shared<HostRun>(ranks, options.timeout)) {
    if (options.partition) partition_ = make_cuda_partition(gpu_->index(), ranks);
  }

  std::string device_name() const override {
    if (partition_ == nullptr) return gpu_->name();
    return gpu_->name() + ", " + std::to_string(partition_->multiprocessors_of_a_rank()) +
           std::string(kPartitionName);
  }
  std::string software() const override {
    return "CUDA driver " + version(cudaDriverGetVersion) + ", runtime " + version(cudaRuntimeGetVersion);
  }
  int ranks() const override { return run_->ranks(); }
  std::vector<int> local_ranks() const override {
    std::vector<int> all(static_cast<std::size_t>(ranks()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::unique_ptr<Device> make_device(int rank) override {
    return make_cuda_device(gpu_, {rank, options_.memory, partition_});
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    return std::make_unique<CudaCommunicator>(gpu_, run_, rank);
  }

 private:
  std::shared_ptr<CudaGpu> gpu_;
  CudaWorldOptions options_;
  std::shared_ptr<HostRun> run_;
  std::shared_ptr<CudaPartition> partition_;
};

}  // namespace

std::unique_ptr<World> make_cuda_ranks(int ranks, const CudaWorldOptions& options) {
  if (ranks > kMostCudaSummands) {
    throw Error(ErrorKind::usage, "device 'cuda' runs up to " + std::to_string(kMostCudaSummands) +
                                      " ranks on its GPU, not " + std::to_string(ranks));
  }
  return std::make_unique<CudaRanks>(ranks, options);
}

}  // namespace dflop
