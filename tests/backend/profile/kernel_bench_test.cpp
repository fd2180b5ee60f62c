// A KernelBench makes arguments for every operation that has variants, and measures each variant.
#include "backend/profile/kernel_bench.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include <map>
#include <memory>
#include <string>

#include "backend/host/world.hpp"

namespace dflop {
namespace kernel_bench_test {
namespace {

constexpr Seconds kEndless{1e30};

/// Returns a small call. Only attention has a length.
KernelCall small_call(KernelOperation operation) {
  const bool attention =
      operation == KernelOperation::attention || operation == KernelOperation::attention_backward;
  return {.operation = operation,
          .inner = 8,
          .outer = attention ? 2 * 512 + 1 : 12,
          .causal = attention,
          .tokens = 20,
          .length = attention ? 7 : 0};
}

/// One rank of the host, with kernels in f32.
class KernelBenchTest : public ::testing::Test {
 protected:
  std::unique_ptr<World> world_ = std::make_unique<HostWorld>(1);
  LocalRank rank_{*world_, 0, DType::f32};
  RankContext context_ = context_of(rank_);
};

TEST_F(KernelBenchTest, RunsEveryVariantOfEveryOperation) {
  const VariantNames names = rank_.kernels->variant_names();
  KernelBench bench(context_, 1);
  for (const KernelOperation operation : all_of<KernelOperation>()) {
    bench.prepare(small_call(operation));
    EXPECT_EQ(bench.variants(), names[static_cast<std::size_t>(operation)].size()) << to_string(operation);
    for (std::size_t v = 0; v < bench.variants(); ++v) bench.run_ns(v);  // throws if it cannot run
  }
}

/// Activations have no inner size, by which the budget is usually divided.
TEST_F(KernelBenchTest, TunesOnlyActivations) {
  std::vector<TunedCall> calls;
  for (const KernelOperation operation : {KernelOperation::gelu, KernelOperation::swiglu_backward}) {
    KernelCall call = small_call(operation);
    call.inner = 0;
    calls.push_back({call});
  }
  KernelTable table(rank_.kernels->variant_names());
  EXPECT_EQ(tune_kernels(context_, calls, {}, table), LeftOut{});
  for (const TunedCall& tuned : calls) {
    ASSERT_TRUE(table.entries().contains(KernelKey(tuned.call))) << to_string(tuned.call.operation);
    for (const KernelStats& variant : table.entries().at(KernelKey(tuned.call)))
      EXPECT_GE(variant.count, 2) << to_string(tuned.call.operation);
  }
}

// A call that is too large, or a signal, does not discard earlier measurements.
TEST_F(KernelBenchTest, KeepsMeasurementsIfMemoryEndsOrItIsStopped) {
  KernelCall large = small_call(KernelOperation::linear);
  large.tokens = std::int64_t{1} << 30;
  large.inner = large.outer = 1 << 20;  // 2^50 values
  const std::vector<TunedCall> calls = {
      {large}, {small_call(KernelOperation::linear)}, {small_call(KernelOperation::attention)}};
  KernelTable table(rank_.kernels->variant_names());
  EXPECT_EQ(tune_kernels(context_, calls, {.budget = kEndless}, table), (LeftOut{.without_memory = 1}));
  EXPECT_EQ(table.entries().size(), 2);

  KernelTable stopped(rank_.kernels->variant_names());
  int begun = 0;
  TuningOptions options;
  options.progress = [&](std::int64_t, std::int64_t) {
    if (++begun == 3) throw std::runtime_error("stop");  // in the first call, which has all variants
  };
  EXPECT_THROW(tune_kernels(context_, calls, options, stopped), std::runtime_error);
  EXPECT_EQ(stopped.entries().size(), 1);
}

// The small call runs first, whatever the budget. Extrapolated from it, 2^33 multiplications take more than a
// nanosecond.
TEST_F(KernelBenchTest, SkipsCallsThatWouldExceedTheBudget) {
  KernelCall large = small_call(KernelOperation::linear);
  large.tokens = large.inner = large.outer = 1 << 11;
  KernelTable table(rank_.kernels->variant_names());
  const std::vector<TunedCall> calls = {{large}, {small_call(KernelOperation::linear)}};
  EXPECT_EQ(tune_kernels(context_, calls, {.budget = Seconds(1e-9)}, table), (LeftOut{.too_long = 1}));
  EXPECT_FALSE(table.entries().contains(KernelKey(large)));
}

}  // namespace
}  // namespace kernel_bench_test
}  // namespace dflop
