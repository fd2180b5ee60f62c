// DFLOP_MUTATION=<number> runs the tests with this mutation of the kernels. Some tests must then fail.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cuda_on_host/emulation/block.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* number = std::getenv("DFLOP_MUTATION")) dflop::emulation::mutation = std::atoi(number);
  return RUN_ALL_TESTS();
}
