#include <gtest/gtest.h>

#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace sim_executor_test {

/// Forward 10 ms, every other compute 20 ms, messages 3 ms; memory as in Pipeline.
class ConstantCost final : public CostModel {
 public:
  Seconds compute(Op op, const Stage&, const Work&) const override {
    return Seconds(op == Op::forward ? 0.010 : 0.020);
  }
  Seconds message(const Message&, const Program&) const override { return Seconds(0.003); }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(0); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage&) const override { return {Bytes{1'000}, {}, {}}; }
  Bytes activation(const Stage&, const Work&) const override { return Bytes{100}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return Bytes{10}; }
};

// The same pipeline gives the same Timeline, whether priced by the cost model or by hand.
TEST(SimExecutor, SimulatesWithTheCostsOfAModel) {
  Pipeline pipeline;
  pipeline.stages = 4;
  pipeline.microbatches = 9;
  pipeline.message = std::chrono::milliseconds(3);
  const PricedProgram priced = make_pipeline(pipeline);
  const ConstantCost cost;
  const SimExecutor executor;
  Iteration iteration;
  iteration.program = priced.program;
  for (const Detail detail : {Detail::usage, Detail::spans}) {
    const Timeline expected = simulate(priced.program, priced.costs, detail);
    EXPECT_EQ(executor.run(priced, detail), expected);
    EXPECT_EQ(executor.run(iteration, cost, detail), expected);
  }
}

}  // namespace sim_executor_test
}  // namespace dflop::testing
