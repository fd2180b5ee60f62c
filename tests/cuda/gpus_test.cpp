#include "backend/gpus.hpp"

#include <gtest/gtest.h>

namespace dflop {
namespace gpus_test {

TEST(CudaDevices, HaveADescription) {
  for (const GpuInfo& device : cuda_devices()) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GE(device.compute_capability, 70);
    EXPECT_GT(device.memory.count, 0);
    EXPECT_LE(device.free_memory.count, device.memory.count);
  }
}

}  // namespace gpus_test
}  // namespace dflop
