#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "backend/gpus.hpp"
#include "core/error.hpp"

namespace dflop {
namespace gpus_test {

/// Every machine either lists its devices or explains why there are none.
TEST(CudaDevices, AreListedOrTheirAbsenceIsExplained) {
  try {
    EXPECT_FALSE(cuda_devices().empty());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_FALSE(error.message().empty());
  }
}

#ifdef DFLOP_HAVE_CUDA
/// Runs in its own process, because variables are set only once, before the first call. Exits with 0 if the
/// variable is as expected afterwards, also without a driver.
[[noreturn]] void ask_cuda(const char* name, const char* given, const std::string& expected) {
  given != nullptr ? ::setenv(name, given, 1) : ::unsetenv(name);
  try {
    cuda_device_count();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_device) ::_exit(2);
  }
  const char* found = std::getenv(name);
  ::_exit(found != nullptr && found == expected ? 0 : 1);
}

TEST(CudaDevices, QueuesAndEarlyLoadingAreSetUnlessTheUserSetThem) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto good = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(ask_cuda("CUDA_DEVICE_MAX_CONNECTIONS", nullptr, "32"), good, "");
  EXPECT_EXIT(ask_cuda("CUDA_DEVICE_MAX_CONNECTIONS", "8", "8"), good, "");
  EXPECT_EXIT(ask_cuda("CUDA_MODULE_LOADING", nullptr, "EAGER"), good, "");
  EXPECT_EXIT(ask_cuda("CUDA_MODULE_LOADING", "LAZY", "LAZY"), good, "");
}
#endif

}  // namespace gpus_test
}  // namespace dflop
