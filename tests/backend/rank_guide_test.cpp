// A RankGuide stays usable after a call throws.
#include "backend/rank_guide.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace dflop {
namespace rank_guide_test {
namespace {

void fail(Matrix, ConstMatrix) {
  throw std::runtime_error("a kernel");
}
void compute(Matrix, ConstMatrix) {}

/// Kernels with two variants of gelu, which throw, and two of swiglu, which do nothing.
struct TwoKernels : Kernels {
  TwoKernels() : Kernels(DType::f32) {
    gelu.set<fail>();
    gelu.add<fail>("other");
    swiglu.set<compute>();
    swiglu.add<compute>("other");
  }
};

TEST(RankGuide, GoesOnAfterCallsThatThrow) {
  TwoKernels kernels;
  RankGuide guide(DType::f32);
  kernels.guide(&guide);
  KernelChoices choices;
  choices.timed_one_of = 1;
  std::vector<float> values(2 * 3 * 4);
  const Matrix y(values.data(), 3, 4);
  constexpr int kFailures = 20;
  constexpr int kCalls = 5;
  for (int step = 0; step < 2; ++step) {
    guide.begin_step(choices);
    for (int i = 0; i < kFailures; ++i) EXPECT_THROW(kernels.gelu(y, ConstMatrix(y)), std::runtime_error);
    for (int i = 0; i < kCalls; ++i) kernels.swiglu(y, ConstMatrix(values.data(), 3, 8));
    const std::vector<KernelObservation> seen = guide.end_step();
    ASSERT_EQ(seen.size(), 2U);
    EXPECT_EQ(seen[0].calls, kFailures);
    EXPECT_EQ(seen[0].timed, 0);  // no call has returned
    EXPECT_EQ(KernelKey::of_bits(seen[1].key),
              KernelKey({.operation = KernelOperation::swiglu, .outer = 4, .tokens = 3}));
    EXPECT_EQ(seen[1].calls, kCalls);
    EXPECT_EQ(seen[1].timed, kCalls);
  }
}

}  // namespace
}  // namespace rank_guide_test
}  // namespace dflop
