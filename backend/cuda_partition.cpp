#include "backend/cuda_partition.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "kernels/cuda_check.hpp"

namespace dflop {

#if CUDART_VERSION >= 13000  // older headers do not tell how small a group may be

namespace {

/// Functions of the driver, which is not linked so that programs start without one.
struct DriverTable {
  decltype(&::cuDeviceGetDevResource) get_resource = nullptr;
  decltype(&::cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&::cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&::cuGreenCtxCreate) create = nullptr;
  decltype(&::cuGreenCtxDestroy) destroy = nullptr;
  decltype(&::cuGreenCtxStreamCreate) create_stream = nullptr;

  DriverTable() {
    load(get_resource, "cuDeviceGetDevResource");
    load(split, "cuDevSmResourceSplitByCount");
    load(describe, "cuDevResourceGenerateDesc");
    load(create, "cuGreenCtxCreate");
    load(destroy, "cuGreenCtxDestroy");
    load(create_stream, "cuGreenCtxStreamCreate");
  }

 private:
  template <typename Function>
  static void load(Function& function, const char* name) {
    constexpr unsigned int kVersion = 12050;  // whose signatures the calls have
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &result);
    if (status != cudaSuccess || result != cudaDriverEntryPointSuccess || address == nullptr) {
      throw Error(ErrorKind::no_device,
                  std::string("a partition of the GPU needs '") + name +
                      "', which this driver has not; that of CUDA 13.0 or newer has it");
    }
    function = reinterpret_cast<Function>(address);
  }
};

void check(CUresult status, const std::string& what) {
  if (status == CUDA_SUCCESS) return;
  throw Error(ErrorKind::internal,
              what + ": error " + std::to_string(static_cast<int>(status)) + " of the CUDA driver");
}

/// How many groups each rank gets, of groups of one size.
using Dealing = std::function<std::vector<int>(int group_size, int groups)>;

class GreenPartition final : public CudaPartition {
 public:
  GreenPartition(int gpu, const Dealing& deal) {
    check_cuda(cudaSetDevice(gpu), "GPU " + std::to_string(gpu));
    check_cuda(cudaFree(nullptr), "GPU " + std::to_string(gpu));  // its primary context is there now
    CUdevResource all{};
    check(driver_.get_resource(gpu, &all, CU_DEV_RESOURCE_TYPE_SM), "the GPU's multiprocessors");
    std::vector<CUdevResource> groups = split(all);
    const auto group_size = static_cast<int>(groups.front().sm.smCount);
    const std::vector<int> counts = deal(group_size, static_cast<int>(groups.size()));
    contexts_.reserve(counts.size());
    CUdevResource* next = groups.data();
    for (const int count : counts) {
      CUdevResourceDesc description = nullptr;
      check(driver_.describe(&description, next, static_cast<unsigned int>(count)), "a part of the GPU");
      CUgreenCtx context = nullptr;
      check(driver_.create(&context, description, gpu, CU_GREEN_CTX_DEFAULT_STREAM), "a part of the GPU");
      contexts_.push_back({context, count * group_size});
      next += count;
    }
  }
  GreenPartition(const GreenPartition&) = delete;
  GreenPartition& operator=(const GreenPartition&) = delete;
  ~GreenPartition() override {
    for (const Part& part : contexts_) driver_.destroy(part.context);
  }

  int multiprocessors(int rank) const override { return part(rank).multiprocessors; }
  void* make_stream(int rank) override {
    CUstream stream = nullptr;
    check(driver_.create_stream(&stream, part(rank).context, CU_STREAM_NON_BLOCKING, 0),
          "a stream on a part of the GPU");
    return stream;
  }

 private:
  struct Part {
    CUgreenCtx context;
    int multiprocessors;
  };

  /// Into the smallest groups; those of one split can be put together again.
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

  const Part& part(int rank) const { return contexts_.at(static_cast<std::size_t>(rank)); }

  DriverTable driver_;
  std::vector<Part> contexts_;
};

}  // namespace

std::shared_ptr<CudaPartition> make_cuda_partition(int gpu, const std::vector<int>& wanted) {
  return std::make_shared<GreenPartition>(
      gpu, [&](int group_size, int groups) { return groups_of_ranks(wanted, group_size, groups); });
}

std::shared_ptr<CudaPartition> make_even_cuda_partition(int gpu, int ranks) {
  return std::make_shared<GreenPartition>(gpu, [&](int, int groups) { return even_groups(ranks, groups); });
}

#else

namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::no_device,
              "a partition of the GPU needs a build with the CUDA Toolkit 13.0 or newer");
}

}  // namespace

std::shared_ptr<CudaPartition> make_cuda_partition(int, const std::vector<int>&) {
  refuse();
}

std::shared_ptr<CudaPartition> make_even_cuda_partition(int, int) {
  refuse();
}

#endif

}  // namespace dflop
