#include "traces/profiler/context.hpp"

#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace kineto_phase_test {

/// Returns the phase of a kernel launched on thread 1 at 50 us, within these events.
KinetoPhase phase_within(KinetoText text) {
  return text.launch(9, "50").kernel(9, "gemm", "60", "1").trace().activities.at(0).phase;
}

KinetoPhase phase_of_annotation(const std::string& name) {
  return phase_within(KinetoText().x("user_annotation", name, "10", "80", 1));
}

TEST(KinetoPhase, ByAnnotations) {
  EXPECT_EQ(phase_of_annotation("## forward ##"), KinetoPhase::forward);
  EXPECT_EQ(phase_of_annotation("DistributedDataParallel.forward"), KinetoPhase::forward);
  EXPECT_EQ(phase_of_annotation("Backward pass"), KinetoPhase::backward);
  EXPECT_EQ(phase_of_annotation("mlp(F)"), KinetoPhase::forward);
  EXPECT_EQ(phase_of_annotation("attn(B)"), KinetoPhase::backward);
  EXPECT_EQ(phase_of_annotation("attn(W)"), KinetoPhase::backward);
  EXPECT_EQ(phase_of_annotation("Optimizer.step#AdamW.step"), KinetoPhase::optimizer);
  EXPECT_EQ(phase_of_annotation("## optimizer ##"), KinetoPhase::optimizer);
  EXPECT_EQ(phase_of_annotation("forward_backward"), KinetoPhase::other);  // names neither pass
  EXPECT_EQ(phase_of_annotation("ProfilerStep#3"), KinetoPhase::other);
  EXPECT_EQ(phase_of_annotation("load"), KinetoPhase::other);
}

TEST(KinetoPhase, ByOperations) {
  const auto op = [](const std::string& name, const std::string& args) {
    return phase_within(KinetoText().x("cpu_op", name, "10", "80", 1, args));
  };
  EXPECT_EQ(op("autograd::engine::evaluate_function: MmBackward0", ""), KinetoPhase::backward);
  EXPECT_EQ(op("aten::mm", R"("Sequence number": 4, "Fwd thread id": 0)"), KinetoPhase::forward);
  EXPECT_EQ(op("MmBackward0", R"("Sequence number": 4, "Fwd thread id": 1)"), KinetoPhase::backward);
  EXPECT_EQ(op("aten::mm", R"("Sequence number": -1)"), KinetoPhase::other);
  EXPECT_EQ(op("aten::mm", ""), KinetoPhase::other);  // as under no_grad
  EXPECT_EQ(op("Optimizer.step#Adam.step", ""), KinetoPhase::optimizer);
}

TEST(KinetoPhase, TheInnerRangeCountsButRecomputationIsBackward) {
  const KinetoText backward = KinetoText().x("user_annotation", "backward", "10", "80", 1);
  EXPECT_EQ(phase_within(KinetoText(backward).x("user_annotation", "forward", "20", "50", 1)),
            KinetoPhase::backward);
  EXPECT_EQ(phase_within(KinetoText(backward).x("user_annotation", "Optimizer.step#A.step", "20", "50", 1)),
            KinetoPhase::optimizer);
  EXPECT_EQ(
      phase_within(KinetoText(backward).x("cpu_op", "aten::mm", "20", "50", 1, R"("Sequence number": 4)")),
      KinetoPhase::backward);
  const KinetoText forward = KinetoText().x("user_annotation", "forward", "10", "80", 1);
  EXPECT_EQ(phase_within(KinetoText(forward).x("cpu_op", "autograd::engine::x", "20", "50", 1)),
            KinetoPhase::backward);
  // Ranges that ended before, begin later, or are on another thread do not matter.
  EXPECT_EQ(phase_within(KinetoText(forward).x("user_annotation", "backward", "20", "30", 1)),
            KinetoPhase::forward);
  EXPECT_EQ(phase_within(KinetoText(forward).x("user_annotation", "backward", "51", "9", 1)),
            KinetoPhase::forward);
  EXPECT_EQ(phase_within(KinetoText(forward).x("user_annotation", "optimizer", "10", "80", 2)),
            KinetoPhase::forward);
}

TEST(KinetoPhase, ALaunchOnAThreadOfTheAutogradEngineIsBackward) {
  KinetoText engine = KinetoText().x("cpu_op", "autograd::engine::x", "10", "20", 1);
  EXPECT_EQ(phase_within(engine), KinetoPhase::backward);
  // A thread that also records a forward pass is not an autograd-engine thread.
  EXPECT_EQ(phase_within(engine.x("cpu_op", "aten::mm", "31", "2", 1, R"("Sequence number": 4)")),
            KinetoPhase::other);
}

}  // namespace kineto_phase_test
}  // namespace dflop
