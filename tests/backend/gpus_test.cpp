#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "backend/gpus.hpp"
#include "core/error.hpp"

namespace dflop {
namespace gpus_test {

/// Every machine either lists its devices or says why there is none.
TEST(CudaDevices, AreListedOrTheirAbsenceIsExplained) {
  try {
    EXPECT_FALSE(cuda_devices().empty());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_FALSE(error.message().empty());
  }
}

#ifdef DFLOP_HAVE_CUDA
/// Also where there is no driver. What a user has set stays.
TEST(CudaDevices, AHardwareQueueForEachStreamIsAskedFor) {
  constexpr const char* kName = "CUDA_DEVICE_MAX_CONNECTIONS";
  const char* given = std::getenv(kName);
  const std::string expected = given != nullptr ? given : "32";
  try {
    cuda_device_count();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
  }
  ASSERT_NE(std::getenv(kName), nullptr);
  EXPECT_EQ(std::getenv(kName), expected);
}
#endif

}  // namespace gpus_test
}  // namespace dflop
