#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "backend/cuda/world.hpp"
#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {

#if CUDART_VERSION >= 13000  // older headers do not tell how small a group may be

namespace {

/// Looks up a function of the driver, which is not linked so that programs also start without a driver.
AnyFunction driver_function(const std::string& name) {
  constexpr unsigned int kVersion = 12050;  // CUDA version whose signatures the calls have
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name.c_str(), &address, kVersion, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess || address == nullptr) {
    throw Error(ErrorKind::no_device, "a partition of the GPU needs '" + name +
                                          "', which this driver lacks; drivers of CUDA 13.0 or newer have "
                                          "it");
  }
  return AnyFunction(address);
}

struct DriverTable {
  decltype(&::cuDeviceGetDevResource) get_resource = driver_function("cuDeviceGetDevResource");
  decltype(&::cuDevSmResourceSplitByCount) split = driver_function("cuDevSmResourceSplitByCount");
  decltype(&::cuDevResourceGenerateDesc) describe = driver_function("cuDevResourceGenerateDesc");
  decltype(&::cuGreenCtxCreate) create = driver_function("cuGreenCtxCreate");
  decltype(&::cuGreenCtxDestroy) destroy = driver_function("cuGreenCtxDestroy");
  decltype(&::cuGreenCtxStreamCreate) create_stream = driver_function("cuGreenCtxStreamCreate");
};

void check(CUresult status, const std::string& what) {
  if (status == CUDA_SUCCESS) return;
  throw Error(ErrorKind::internal,
              what + ": error " + std::to_string(static_cast<int>(status)) + " of the CUDA driver");
}

/// A GreenPartition holds a green context for each rank.
class GreenPartition final : public CudaPartition {
 public:
  GreenPartition(int gpu, int ranks, const WorldOptions& options) {
    check_cuda(cudaSetDevice(gpu), "GPU " + std::to_string(gpu));
    check_cuda(cudaFree(nullptr), "GPU " + std::to_string(gpu));  // creates its primary context
    CUdevResource all{};
    check(driver_.get_resource(gpu, &all, CU_DEV_RESOURCE_TYPE_SM), "the GPU's multiprocessors");
    std::vector<CUdevResource> groups = split(all);
    groups_ = static_cast<int>(groups.size());
    for (const GroupRange& own :
         groups_of_ranks(ranks, options.shared_devices, options.first_share, groups_)) {
      multiprocessors_.push_back(own.count * static_cast<int>(groups.front().sm.smCount));
      CUdevResourceDesc description = nullptr;
      check(driver_.describe(&description, &groups[static_cast<std::size_t>(own.first)],
                             static_cast<unsigned int>(own.count)),
            "a part of the GPU");
      contexts_.push_back(nullptr);
      check(driver_.create(&contexts_.back(), description, gpu, CU_GREEN_CTX_DEFAULT_STREAM),
            "a part of the GPU");
    }
  }
  GreenPartition(const GreenPartition&) = delete;
  GreenPartition& operator=(const GreenPartition&) = delete;
  ~GreenPartition() override {
    for (const CUgreenCtx context : contexts_) driver_.destroy(context);
  }

  int multiprocessors_of(int rank) const override {
    return multiprocessors_.at(static_cast<std::size_t>(rank));
  }
  int groups() const override { return groups_; }
  void* make_stream(int rank) override {
    CUstream stream = nullptr;
    check(driver_.create_stream(&stream, contexts_.at(static_cast<std::size_t>(rank)), CU_STREAM_NON_BLOCKING,
                                0),
          "a stream on a part of the GPU");
    return stream;
  }

 private:
  /// Splits the GPU into the smallest groups. Groups of the same split can be combined again.
  std::vector<CUdevResource> split(const CUdevResource& all) const {
    const unsigned int smallest = all.sm.minSmPartitionSize;
    unsigned int count = 0;
    check(driver_.split(nullptr, &count, &all, nullptr, 0, smallest), "splitting the GPU");
    if (count == 0) throw Error(ErrorKind::no_device, "this GPU cannot be partitioned");
    std::vector<CUdevResource> groups(count);
    check(driver_.split(groups.data(), &count, &all, nullptr, 0, smallest), "splitting the GPU");
    groups.resize(count);
    return groups;
  }

  DriverTable driver_;
  std::vector<CUgreenCtx> contexts_;  // by rank
  std::vector<int> multiprocessors_;  // by rank
  int groups_ = 0;
};

}  // namespace

std::shared_ptr<CudaPartition> make_cuda_partition(int gpu, int ranks, const WorldOptions& options) {
  return std::make_shared<GreenPartition>(gpu, ranks, options);
}

#else

std::shared_ptr<CudaPartition> make_cuda_partition(int, int, const WorldOptions&) {
  throw Error(ErrorKind::no_device,
              "a partition of the GPU needs a build with the CUDA Toolkit 13.0 or newer");
}

#endif

}  // namespace dflop
