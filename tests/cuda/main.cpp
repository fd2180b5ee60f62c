// Tests that need a GPU. Without one they are skipped: exit status 77.
#include <gtest/gtest.h>

#include <cstdio>

#include "backend/gpus.hpp"
#include "core/error.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests)) {
    try {
      dflop::cuda_devices();
    } catch (const dflop::Error& error) {
      std::printf("skipped: %s\n", error.what());
      return 77;
    }
  }
  return RUN_ALL_TESTS();
}
