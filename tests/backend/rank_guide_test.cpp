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

TEST(RankGuide, ContinuesAfterCallsThatThrow) {
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
    const KernelKey swiglu({.operation = KernelOperation::swiglu, .outer = 4, .tokens = 3});
    const KernelObservation& computed = seen[0].key == swiglu ? seen[0] : seen[1];
    const KernelObservation& failed = seen[0].key == swiglu ? seen[1] : seen[0];
    EXPECT_EQ(computed.key, swiglu);
    EXPECT_EQ(computed.calls, kCalls);
    EXPECT_EQ(computed.timed, kCalls);
    EXPECT_EQ(failed.calls, kFailures);
    EXPECT_EQ(failed.timed, 0);  // none has returned
  }
}

}  // namespace
}  // namespace rank_guide_test
}  // namespace dflop
