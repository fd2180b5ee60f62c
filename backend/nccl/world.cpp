#include "backend/nccl/world.hpp"

#include <cstdlib>
#include <string>

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/world.hpp"
#include "backend/gpus.hpp"
#include "backend/nccl/communicator.hpp"
#include "core/error.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

constexpr Seconds kMeetingTime{1800};  // until all processes have joined; each reads its data first

/// Returns the index of a process's GPU. Some launchers let each process see only its own GPU.
int gpu_of(const LaunchEnvironment& launch, int gpus) {
  if (gpus == 1) return 0;
  if (launch.local_rank < gpus) return launch.local_rank;
  throw Error(ErrorKind::no_device, "local rank " + std::to_string(launch.local_rank) +
                                        " has no GPU: this machine has " + std::to_string(gpus) +
                                        "; start a process per GPU");
}

/// An NcclWorld has one rank on its own GPU.
class NcclWorld final : public ProcessWorld {
 public:
  NcclWorld(const RendezvousOptions& meeting, const NcclTable& table, int gpu, const WorldOptions& options)
      : ProcessWorld(meeting), table_(table), rank_(meeting.rank), options_(options) {
    try {
      gpu_ = std::make_shared<CudaGpu>(gpu);
    } catch (const std::exception& error) {
      rendezvous().abort(error.what());  // otherwise the others would wait for this rank
      throw;
    }
  }

  std::string device_name() const override { return gpu_->name(); }
  /// NCCL's version is missing here because profiles are measured within one process.
  std::string software() const override {
    int version = 0;
    const bool known = table_.get_version(&version) == ncclSuccess;
    return (known ? "NCCL " + nccl_version_text(version) : "NCCL") + attention_software(options_.attention);
  }
  std::unique_ptr<Device> make_device(int) override {
    return make_cuda_device(gpu_, {rank_, options_.memory, {}, options_.attention});
  }

  std::unique_ptr<Communicator> make_communicator(int) override {
    NcclSeam seam;
    seam.new_device = [gpu = gpu_, rank = rank_] { return make_cuda_device(gpu, {rank, {}, {}}); };
    seam.native_stream = [](DeviceStream& stream) { return of_cuda(stream).handle(); };
    seam.reached = [gpu = gpu_](DeviceEvent& event) {
      gpu->use();  // otherwise the thread's first CUDA call would allocate memory on another process's GPU
      return of_cuda(event).reached();
    };
    return make_nccl_communicator(table_, rendezvous(), std::move(seam));
  }

 private:
  NcclTable table_;
  std::shared_ptr<CudaGpu> gpu_;
  int rank_;
  WorldOptions options_;
};

}  // namespace

std::unique_ptr<World> make_nccl_world(const LaunchEnvironment& launch, const WorldOptions& options) {
  // With implicit launch order, a waiting receive would hold back the sends of other routes; see
  // docs/backend-notes.md.
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  const int gpu = gpu_of(launch, cuda_device_count());
  const NcclTable table = load_nccl();
  const RendezvousOptions meeting{launch.host,  launch.port,     launch.rank, launch.ranks,
                                  kMeetingTime, options.timeout, launch.token};
  return std::make_unique<NcclWorld>(meeting, table, gpu, options);
}

}  // namespace dflop
