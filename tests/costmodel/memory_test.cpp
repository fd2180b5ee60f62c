#include "costmodel/analytic/memory.hpp"

#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace memory_test {

using fixtures::small_model;

Stage encoder_stage(int layers, Recomputation mode) {
  Stage stage;
  stage.encoder_layers = layers;
  stage.recomputation = mode;
  return stage;
}

Stage llm_stage(int layers, Recomputation mode, int tp = 1, bool sequence_parallel = true) {
  Stage stage;
  stage.llm_layers = layers;
  stage.recomputation = mode;
  stage.tp = tp;
  stage.sequence_parallel = sequence_parallel;
  return stage;
}

const Work kEncoderWork{{2, 6, 18}, {}};
const Work kLlmWork{{}, {2, 5, 13}};

TEST(Memory, ModelStateIsEighteenBytesAParameter) {
  // 2 encoder layers: 2 * 192 = 384 parameters.
  Stage stage = encoder_stage(2, Recomputation::full);
  EXPECT_EQ(model_state_bytes(stage, small_model()).total().count, 384 * 18);
  stage.zero1 = false;
  stage.dp = 8;
  EXPECT_EQ(model_state_bytes(stage, small_model()).total().count, 384 * 18);
}

TEST(Memory, WithBf16StatesModelStateIsTenBytesAParameter) {
  // 384 parameters of 2 bytes; gradients and their buckets, 2 each; mean and variance, 2 each. Under ZeRO-1
  // the last two are spread over 8 ranks: 384 * (6 + 4 / 8) = 2496.
  Stage stage = encoder_stage(2, Recomputation::full);
  stage.optimizer_states = OptimizerStates::bf16;
  stage.dp = 8;
  stage.zero1 = false;
  const ModelState state = model_state_bytes(stage, small_model());
  EXPECT_EQ(state.parameters.count, 768);
  EXPECT_EQ(state.gradients.count, 1536);
  EXPECT_EQ(state.optimizer.count, 1536);
  stage.zero1 = true;
  EXPECT_EQ(model_state_bytes(stage, small_model()).total().count, 2496);
}

TEST(Memory, Zero1SplitsTheOptimizerStatesExactly) {
  // 384 * (6 + 12 / 8) = 2880. Over 5 ranks 4608 / 5 = 921.6, rounded up.
  Stage stage = encoder_stage(2, Recomputation::full);
  stage.dp = 8;
  EXPECT_EQ(model_state_bytes(stage, small_model()).total().count, 2880);
  stage.dp = 5;
  EXPECT_EQ(model_state_bytes(stage, small_model()).total().count, 384 * 6 + 922);
}

TEST(Memory, Zero1SharesAddUpToTheWhole) {
  Random random(6);
  const ModelSpec model = fixtures::llava_llama3_8b();
  for (int i = 0; i < 500; ++i) {
    Stage stage =
        llm_stage(1 + static_cast<int>(random.below(32)), Recomputation::full, 1 << random.below(4));
    stage.head = random.below(2) == 1;
    stage.dp = 1 + static_cast<int>(random.below(64));
    const std::int64_t parameters = stage_parameters(stage, model);
    const std::int64_t share = model_state_bytes(stage, model).total().count - 6 * parameters;
    EXPECT_GE(share * stage.dp, 12 * parameters);
    EXPECT_LT(share * stage.dp, 12 * parameters + stage.dp);
  }
}

TEST(Memory, PlainLayerWithDropoutKeepsThirtyFourBytesPerTokenAndWidth) {
  // q = k = h = 4 and f = 4 h: Korthikanti et al. 2022 give 34 s h without the attention matrix: 34 * 6 * 4
  // per layer. Two of the 34 are dropout masks.
  const Stage stage = encoder_stage(2, Recomputation::none);
  ModelSpec model = small_model();
  EXPECT_EQ(activation_bytes(stage, model, kEncoderWork).count, 2 * 32 * 6 * 4);
  model.encoder.dropout = true;
  EXPECT_EQ(activation_bytes(stage, model, kEncoderWork).count, 2 * 34 * 6 * 4);
}

TEST(Memory, GatedLayerWithGroupedQueries) {
  // h = 8, q = 8, k = 4, f = 12, per token: 8 * 8 + 4 * 8 + 4 * 4 + 6 * 12 = 184. 5 tokens, 3 layers.
  const Stage stage = llm_stage(3, Recomputation::none);
  EXPECT_EQ(activation_bytes(stage, small_model(), kLlmWork).count, 3 * 5 * 184);
}

TEST(Memory, SelectiveDropsTheAttentionOutputAndFullAllButTheInput) {
  // Selective: 184 - 2 * 8 = 168. Full: 2 * 8.
  EXPECT_EQ(activation_bytes(llm_stage(3, Recomputation::selective), small_model(), kLlmWork).count,
            3 * 5 * 168);
  EXPECT_EQ(activation_bytes(llm_stage(3, Recomputation::full), small_model(), kLlmWork).count, 3 * 5 * 16);
}

TEST(Memory, TensorParallelismSplitsAllWithSequenceParallelismAndAllButEightWithout) {
  // On 2 ranks with 6 tokens: split 6 * 184 / 2 = 552; otherwise 6 * (64 + 120 / 2) = 744. Full: 6 * 16 / 2,
  // or otherwise 6 * 16.
  const Work work{{}, {1, 6, 36}};
  const ModelSpec model = small_model();
  EXPECT_EQ(activation_bytes(llm_stage(1, Recomputation::none, 2), model, work).count, 552);
  EXPECT_EQ(activation_bytes(llm_stage(1, Recomputation::none, 2, false), model, work).count, 744);
  EXPECT_EQ(activation_bytes(llm_stage(1, Recomputation::full, 2), model, work).count, 48);
  EXPECT_EQ(activation_bytes(llm_stage(1, Recomputation::full, 2, false), model, work).count, 96);
}

TEST(Memory, SequencesArePaddedToWholeTokensOnEachRank) {
  // 5 tokens on 2 ranks: 3 each, 2 * 8 bytes.
  EXPECT_EQ(activation_bytes(llm_stage(1, Recomputation::full, 2), small_model(), kLlmWork).count, 48);
}

TEST(Memory, ConnectorKeepsItsInputAndBothSidesOfTheActivation) {
  // 6 encoder tokens merge to 3. Input 2 * 3 * 8 = 48; before and after the activation function 2 * 48.
  Stage stage;
  stage.connector = true;
  EXPECT_EQ(activation_bytes(stage, small_model(), kEncoderWork).count, 48 + 96);
  // Two ranks: 2 resident tokens * 2 * 8 = 32; 4 wide between the products, 2 * 3 * 4 = 24, twice.
  stage.tp = 2;
  EXPECT_EQ(activation_bytes(stage, small_model(), kEncoderWork).count, 32 + 48);
}

TEST(Memory, HeadKeepsTwoInputsAndTheLogits) {
  // 5 tokens: 4 * 8 + 2 * 10 = 52 each. On 2 ranks: 3 resident * 32 + 5 * 2 * 5.
  Stage stage;
  stage.head = true;
  ModelSpec model = small_model();
  EXPECT_EQ(activation_bytes(stage, model, kLlmWork).count, 5 * 52);
  stage.tp = 2;
  EXPECT_EQ(activation_bytes(stage, model, kLlmWork).count, 96 + 50);
  // Without a fused cross-entropy the softmax is in fp32: 4 * 8 + 4 * 10 = 72.
  stage.tp = 1;
  model.llm.fused_cross_entropy = false;
  EXPECT_EQ(activation_bytes(stage, model, kLlmWork).count, 5 * 72);
}

// 20 logits at once are 2 of 5 rows of 10, or 4 on one of two ranks. The norm's input and the gradient of its
// output are kept: 4 * 8 bytes for each of 5 rows, or of 3 on one of two ranks.
TEST(Memory, AHeadInChunksHasTheLogitsOfAChunkInItsForward) {
  Stage stage;
  stage.head = true;
  ModelSpec model = small_model();
  model.llm.logits_at_once = 20;
  EXPECT_EQ(activation_bytes(stage, model, kLlmWork).count, 5 * 32);
  // 2 rows of logits and inputs, 2 * 10 + 2 * 8 bytes; the norm's output, 5 * 16; the gradient of 80 weights.
  EXPECT_EQ(workspace_bytes(Op::forward, stage, model, kLlmWork).count, 2 * 36 + 80 + 160);
  EXPECT_EQ(workspace_bytes(Op::backward, stage, model, kLlmWork).count, 80);
  EXPECT_EQ(workspace_bytes(Op::backward_input, stage, model, kLlmWork).count, 80);
  EXPECT_EQ(workspace_bytes(Op::backward_weight, stage, model, kLlmWork).count, 0);
  EXPECT_EQ(workspace_bytes(Op::forward, stage, model, {}).count, 0);
  // Two ranks: 4 rows of 5 logits, 3 resident rows, 5 gathered rows and their gradients, half of the weights.
  stage.tp = 2;
  EXPECT_EQ(activation_bytes(stage, model, kLlmWork).count, 96);
  EXPECT_EQ(workspace_bytes(Op::forward, stage, model, kLlmWork).count, 4 * 26 + 48 + 160 + 80);
}

TEST(Memory, WorkspaceOfALayerByMode) {
  const ModelSpec model = small_model();
  // Each mode holds the bf16 gradients of one layer's 480 parameters: 960.
  // None: the output, 5 * 16; backward also the gradients of the MLP's 6 * 12 bytes per token.
  EXPECT_EQ(workspace_bytes(Op::forward, llm_stage(3, Recomputation::none), model, kLlmWork).count, 960 + 80);
  EXPECT_EQ(workspace_bytes(Op::backward, llm_stage(3, Recomputation::none), model, kLlmWork).count,
            960 + 80 + 360);
  // Full: one layer's 5 * (184 - 16) more in both.
  EXPECT_EQ(workspace_bytes(Op::forward, llm_stage(3, Recomputation::full), model, kLlmWork).count,
            960 + 80 + 840);
  EXPECT_EQ(workspace_bytes(Op::backward, llm_stage(3, Recomputation::full), model, kLlmWork).count,
            960 + 440 + 840);
  // Two ranks: half of the gradients, 3 resident tokens * 16 and 5 gathered tokens * 16.
  EXPECT_EQ(workspace_bytes(Op::forward, llm_stage(3, Recomputation::none, 2), model, kLlmWork).count,
            480 + 48 + 80);
}

// Between the parts of a split backward a stage holds what it would keep without recomputation: 3 * 5 * 184.
TEST(Memory, SplitBackwardsKeepRecomputedTensors) {
  for (const Recomputation mode : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    EXPECT_EQ(split_activation_bytes(llm_stage(3, mode), small_model(), kLlmWork).count, 3 * 5 * 184);
  }
}

TEST(Memory, WorkspaceOfSplitBackwards) {
  const ModelSpec model = small_model();
  const auto bytes = [&](Op op, const Stage& stage) {
    return workspace_bytes(op, stage, model, {kEncoderWork.encoder, kLlmWork.llm}).count;
  };
  // As above: gradients of weights 960, the output 80, gradients of the MLP 360, and now 840 for each of the
  // three layers when the last one is processed. The weight part finds them in memory.
  EXPECT_EQ(bytes(Op::backward_input, llm_stage(3, Recomputation::full)), 960 + 440 + 3 * 840);
  EXPECT_EQ(bytes(Op::backward_weight, llm_stage(3, Recomputation::full)), 960 + 440);
  EXPECT_EQ(bytes(Op::backward_input, llm_stage(3, Recomputation::none)), 960 + 440);
  // The two encoder layers that follow have dropped 6 * (128 - 8) = 720 each and need 6 * (8 + 64) = 432 for
  // gradients; one layer's weights have 2 * 192 bytes.
  Stage both = llm_stage(3, Recomputation::full);
  both.encoder_layers = 2;
  EXPECT_EQ(bytes(Op::backward_input, both), 960 + 384 + 3 * 840 + 2 * 720 + 432);
}

TEST(Memory, WorkspaceOfTheHead) {
  Stage stage;
  stage.head = true;
  ModelSpec model = small_model();
  EXPECT_EQ(workspace_bytes(Op::forward, stage, model, kLlmWork).count, 0);
  // Backward: the input's gradient 5 * 16 and the gradient of the 80 weights in bf16.
  EXPECT_EQ(workspace_bytes(Op::backward, stage, model, kLlmWork).count, 80 + 160);
  // Two ranks: the whole input and its gradient, half of the weights.
  stage.tp = 2;
  EXPECT_EQ(workspace_bytes(Op::backward, stage, model, kLlmWork).count, 80 + 80 + 80);
  // Without a fused cross-entropy also bf16 logits, 5 * 2 * 5.
  model.llm.fused_cross_entropy = false;
  EXPECT_EQ(workspace_bytes(Op::backward, stage, model, kLlmWork).count, 240 + 50);
}

TEST(Memory, WorkspaceIsTheMaxOverParts) {
  // The head's logits, 5 * 2 * 10 = 100, exceed a layer's 80 and the connector's 2 * 48 = 96. In addition
  // there are one layer's gradients, 960.
  Stage stage = llm_stage(1, Recomputation::none);
  stage.head = true;
  stage.connector = true;
  ModelSpec model = small_model();
  model.llm.fused_cross_entropy = false;
  const Work work{kEncoderWork.encoder, kLlmWork.llm};
  EXPECT_EQ(workspace_bytes(Op::forward, stage, model, work).count, 960 + 100);
  stage.head = false;
  EXPECT_EQ(workspace_bytes(Op::forward, stage, model, work).count, 960 + 96);
}

TEST(Memory, KeptPlusRebuiltIsAlwaysOneWholeLayer) {
  Random random(7);
  const ModelSpec model = fixtures::llava_llama3_8b();
  for (int i = 0; i < 500; ++i) {
    const auto tokens = static_cast<std::int64_t>(1 + random.below(1 << 15));
    const Work work{{}, {1, tokens, tokens * tokens}};
    const int tp = 1 << random.below(4);
    const auto total = [&](Recomputation mode) {
      const Stage stage = llm_stage(1, mode, tp, i % 2 == 0);
      return (activation_bytes(stage, model, work) + workspace_bytes(Op::backward, stage, model, work)).count;
    };
    EXPECT_EQ(total(Recomputation::full), total(Recomputation::none));
    EXPECT_EQ(total(Recomputation::selective), total(Recomputation::none));
  }
}

TEST(Memory, NoWorkNeedsNoMemory) {
  Stage stage = llm_stage(3, Recomputation::none);
  stage.encoder_layers = 2;
  stage.connector = stage.embedding = stage.head = true;
  EXPECT_EQ(activation_bytes(stage, small_model(), {}).count, 0);
  EXPECT_EQ(workspace_bytes(Op::backward, stage, small_model(), {}).count, 0);
}

}  // namespace memory_test
}  // namespace dflop
