#include <gtest/gtest.h>

#include "backend/devices.hpp"
#include "core/error.hpp"

namespace dflop {
namespace {

/// Every machine either lists its devices or says why there is none.
TEST(CudaDevices, AreListedOrTheirAbsenceIsExplained) {
  try {
    EXPECT_FALSE(cuda_devices().empty());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_FALSE(error.message().empty());
  }
}

}  // namespace
}  // namespace dflop
