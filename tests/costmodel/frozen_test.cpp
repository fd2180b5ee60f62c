// Savings by frozen parts and costs of LoRA, computed by hand on the small model. Its encoder has 2 layers of
// 192 parameters, its connector 128, its LLM 3 layers of 480, and embedding and head 80 each.
#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/analytic/memory.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace frozen_test {

using fixtures::small_model;

constexpr TrainedParts kWithoutEncoder{false, true, true, 0};
constexpr TrainedParts kLlmAlone{false, false, true, 0};
constexpr TrainedParts kConnectorAlone{false, true, false, 0};
constexpr TrainedParts kEncoderAlone{true, false, false, 0};
constexpr TrainedParts kLora{false, false, false, 2};

const Work kWork{{2, 6, 18}, {2, 5, 13}};

Stage whole_stage(const TrainedParts& trained, Recomputation mode = Recomputation::none) {
  Stage stage;
  stage.encoder_layers = 2;
  stage.connector = true;
  stage.llm_layers = 3;
  stage.embedding = stage.head = true;
  stage.recomputation = mode;
  stage.trained = trained;
  return stage;
}

Stage llm_layers(const TrainedParts& trained, Recomputation mode) {
  Stage stage;
  stage.llm_layers = 3;
  stage.recomputation = mode;
  stage.trained = trained;
  return stage;
}

TEST(Frozen, LoraHasItsRankTimesInputsAndOutputsOfEachMatrix) {
  // LoRA rank 2: Q 2 * (8 + 8) = 32, K and V 2 * 2 * (8 + 4) = 48, output 32, gate and up 2 * 2 * (8 + 12) =
  // 80, down 2 * (12 + 8) = 40.
  EXPECT_EQ(small_model().llm.adapter_parameters(2, 1), 232);
  // Over 2 ranks Q, K, V, gate and up have half of the outputs, output and down half of the inputs:
  // 2 * (8 + 4) + 2 * 2 * (8 + 2) + 2 * (4 + 8) + 2 * 2 * (8 + 6) + 2 * (6 + 8).
  EXPECT_EQ(small_model().llm.adapter_parameters(2, 2), 24 + 40 + 24 + 56 + 28);
  EXPECT_EQ(small_model().llm.adapter_parameters(0, 1), 0);
}

TEST(Frozen, ParametersAreTrainedByTheirPart) {
  // Encoder 384, connector 128, LLM 1440 + 160; LoRA 3 * 232 = 696.
  const auto trained = [](const TrainedParts& parts) {
    return trained_parameters(whole_stage(parts), small_model());
  };
  EXPECT_EQ(trained({}), 2112);
  EXPECT_EQ(trained(kWithoutEncoder), 1728);
  EXPECT_EQ(trained(kLlmAlone), 1600);
  EXPECT_EQ(trained(kConnectorAlone), 128);
  EXPECT_EQ(trained(kEncoderAlone), 384);
  EXPECT_EQ(trained(kLora), 696);
  EXPECT_EQ(stage_parameters(whole_stage(kLlmAlone), small_model()), 2112);
  EXPECT_EQ(stage_parameters(whole_stage(kLora), small_model()), 2112 + 696);
}

TEST(Frozen, StatesCoverOnlyTrainedParameters) {
  // 2 bytes for all parameters, 4 and 12 for the 1728 trained ones.
  const ModelState state = model_state_bytes(whole_stage(kWithoutEncoder), small_model());
  EXPECT_EQ(state.parameters.count, 2 * 2112);
  EXPECT_EQ(state.gradients.count, 4 * 1728);
  EXPECT_EQ(state.optimizer.count, 12 * 1728);
  EXPECT_EQ(model_state_bytes(whole_stage(kLora), small_model()).total().count, 2 * 2808 + 16 * 696);
}

TEST(Frozen, FlopCountOnlyNeededGradients) {
  // Forward: encoder 2 * 2592 = 5184; connector 768, of which its first product is 2 * 64 * 3 = 384; LLM 3 *
  // 4800 + 800 = 15200 with weights and 3 * 208 = 624 of attention.
  const auto flop = [](const TrainedParts& parts) {
    return model_flop(small_model(), kWork.encoder, kWork.llm, parts).count;
  };
  EXPECT_EQ(flop({}), 3 * (5184 + 768 + 15200 + 624));
  EXPECT_EQ(flop(kWithoutEncoder), 5184 + (3 * 768 - 384) + 3 * (15200 + 624));
  EXPECT_EQ(flop(kLlmAlone), 5184 + 768 + 3 * (15200 + 624));
  EXPECT_EQ(flop(kConnectorAlone), 5184 + (3 * 768 - 384) + 2 * 15200 + 3 * 624);
  EXPECT_EQ(flop(kEncoderAlone), 3 * 5184 + 2 * 768 + 2 * 15200 + 3 * 624);
  // LoRA pairs: 2 * 696 * 5 forward, three times.
  EXPECT_EQ(flop(kLora), 5184 + 768 + 2 * 15200 + 3 * 624 + 3 * 6960);
}

TEST(Frozen, AnEncoderBeforeAllTrainedPartsHasOnlyAForward) {
  const AnalyticCostModel cost(small_model(), fixtures::small_cluster());
  for (const Recomputation mode : {Recomputation::none, Recomputation::full}) {
    Stage stage;
    stage.encoder_layers = 2;
    stage.recomputation = mode;
    const Seconds forward = cost.compute(Op::forward, stage, kWork);
    stage.trained = kWithoutEncoder;
    EXPECT_EQ(cost.compute(Op::forward, stage, kWork), forward);
    for (const Op op : {Op::backward, Op::backward_input, Op::backward_weight}) {
      EXPECT_EQ(cost.compute(op, stage, kWork), Seconds(0));
      EXPECT_EQ(cost.workspace(op, stage, kWork), Bytes{});
    }
    EXPECT_EQ(cost.optimizer_step(stage), Seconds(0));
    EXPECT_EQ(cost.activation(stage, kWork), Bytes{});
    EXPECT_EQ(cost.split_activation(stage, kWork), Bytes{});
  }
}

TEST(Frozen, LlmHasNoGradientsOfWeights) {
  const AnalyticCostModel cost(small_model(), fixtures::small_cluster());
  Stage stage = llm_layers({}, Recomputation::full);
  stage.embedding = stage.head = true;
  const Seconds forward = cost.compute(Op::forward, stage, kWork);
  const Seconds input = cost.compute(Op::backward_input, stage, kWork);
  stage.trained = kConnectorAlone;
  EXPECT_EQ(cost.compute(Op::forward, stage, kWork), forward);
  EXPECT_EQ(cost.compute(Op::backward_input, stage, kWork), input);
  EXPECT_EQ(cost.compute(Op::backward_weight, stage, kWork), Seconds(0));
  EXPECT_EQ(cost.compute(Op::backward, stage, kWork), input);
}

// If memory takes no time and kernels have no overhead, products take their FLOP at 500 per second.
TEST(Frozen, LoraAddsItsProducts) {
  ClusterSpec cluster = fixtures::small_cluster();
  cluster.gpu.memory_bandwidth_bytes_per_s = 1e30;
  cluster.software.gemm_half_tokens = cluster.software.gemm_half_width = 0;
  cluster.software.kernel_overhead = Seconds(0);
  const AnalyticCostModel cost(small_model(), cluster);
  // 2 FLOP per parameter and token: 2 * 232 * 5 = 2320 per layer, 4.64 s in each pass.
  const auto more = [&](Op op, Recomputation mode) {
    return (cost.compute(op, llm_layers(kLora, mode), kWork) -
            cost.compute(op, llm_layers(kConnectorAlone, mode), kWork))
        .count();
  };
  EXPECT_NEAR(more(Op::forward, Recomputation::none), 3 * 4.64, 1e-9);
  EXPECT_NEAR(more(Op::backward_input, Recomputation::none), 3 * 4.64, 1e-9);
  EXPECT_NEAR(more(Op::backward_weight, Recomputation::none), 3 * 4.64, 1e-9);
  EXPECT_NEAR(more(Op::backward_input, Recomputation::full), 2 * 3 * 4.64, 1e-9);
}

TEST(Frozen, ConnectorOmitsAnUnusedGradient) {
  ClusterSpec cluster = fixtures::small_cluster();
  cluster.gpu.memory_bandwidth_bytes_per_s = 1e30;
  cluster.software.gemm_half_tokens = cluster.software.gemm_half_width = 0;
  cluster.software.kernel_overhead = Seconds(0);
  const AnalyticCostModel cost(small_model(), cluster);
  Stage stage;
  stage.connector = true;
  // Two products of 384 FLOP, 0.768 s each.
  const auto seconds = [&](Op op, const TrainedParts& trained) {
    stage.trained = trained;
    return cost.compute(op, stage, kWork).count();
  };
  EXPECT_NEAR(seconds(Op::backward_input, {}), 2 * 0.768, 1e-9);
  EXPECT_NEAR(seconds(Op::backward_input, kWithoutEncoder), 0.768, 1e-9);
  EXPECT_NEAR(seconds(Op::backward_weight, kWithoutEncoder), 2 * 0.768, 1e-9);
  EXPECT_NEAR(seconds(Op::backward_input, kEncoderAlone), 2 * 0.768, 1e-9);
  EXPECT_EQ(seconds(Op::backward_weight, kEncoderAlone), 0);
  EXPECT_EQ(seconds(Op::backward, kLlmAlone), 0);
  EXPECT_NEAR(seconds(Op::forward, kLlmAlone), 2 * 0.768, 1e-9);
}

TEST(Frozen, ProductsWithFrozenWeightsKeepNoInputs) {
  // A trained layer keeps 184 per token. A frozen one omits the inputs of QKV and MLP (4 * 8) and of down (2
  // * 12): 128. LoRA rank 2 needs the inputs again and 2 * 2 bytes for each of 7 matrices: 212.
  const auto kept = [](const TrainedParts& trained, Recomputation mode) {
    return activation_bytes(llm_layers(trained, mode), small_model(), kWork).count;
  };
  EXPECT_EQ(kept({}, Recomputation::none), 3 * 5 * 184);
  EXPECT_EQ(kept(kConnectorAlone, Recomputation::none), 3 * 5 * 128);
  EXPECT_EQ(kept(kConnectorAlone, Recomputation::selective), 3 * 5 * (128 - 16));
  EXPECT_EQ(kept(kConnectorAlone, Recomputation::full), 3 * 5 * 16);
  EXPECT_EQ(kept(kLora, Recomputation::none), 3 * 5 * 212);
  EXPECT_EQ(kept(kLora, Recomputation::full), 3 * 5 * 16);
  Stage head;
  head.head = true;
  head.trained = kLora;  // the norm's input and the logits: 2 * 8 + 2 * 10
  EXPECT_EQ(activation_bytes(head, small_model(), kWork).count, 5 * 36);
  Stage connector;
  connector.connector = true;
  connector.trained = kEncoderAlone;  // the activation's input, 3 * 2 * 8
  EXPECT_EQ(activation_bytes(connector, small_model(), kWork).count, 48);
  connector.trained = kWithoutEncoder;  // also the connector's input and the activation's output
  EXPECT_EQ(activation_bytes(connector, small_model(), kWork).count, 48 + 96);
  connector.trained = kLlmAlone;
  EXPECT_EQ(activation_bytes(connector, small_model(), kWork).count, 0);
}

TEST(Frozen, SplitBackwardsKeepOnlyInputsOfTrainedWeights) {
  const AnalyticCostModel cost(small_model(), fixtures::small_cluster());
  // Full recomputation keeps 5 * 16 per layer. A frozen LLM frees this after its gradients of inputs; with
  // LoRA these restore all of 5 * 212.
  Stage stage = llm_layers(kConnectorAlone, Recomputation::full);
  EXPECT_EQ(cost.activation_of(Op::forward, stage, kWork).count, 240);
  EXPECT_EQ(cost.activation_of(Op::backward_input, stage, kWork).count, -240);
  EXPECT_EQ(cost.activation_of(Op::backward_weight, stage, kWork).count, 0);
  stage.trained = kLora;
  EXPECT_EQ(cost.activation_of(Op::backward_input, stage, kWork).count, 3 * 5 * (212 - 16));
  EXPECT_EQ(cost.activation_of(Op::backward_weight, stage, kWork).count, 3 * 5 * 212);
  // A stage with all parts, of which the connector is trained: 144 bytes remain.
  EXPECT_EQ(cost.split_activation(whole_stage(kConnectorAlone), kWork).count, 144);
}

TEST(Frozen, BackwardsRecomputeOnlyNeededTensors) {
  // Full recomputation, one of three layers at a time: 5 * (128 - 16) rebuilt, and gradients of the MLP's
  // intermediates, 5 * 72, and of the input, 5 * 16. No gradients of weights. A forward makes 184 per token.
  const Stage frozen = llm_layers(kConnectorAlone, Recomputation::full);
  const auto needs = [&](Op op) { return workspace_bytes(op, frozen, small_model(), kWork).count; };
  EXPECT_EQ(needs(Op::forward), 5 * (184 - 16 + 16));
  EXPECT_EQ(needs(Op::backward), 5 * (128 - 16 + 72 + 16));
  EXPECT_EQ(needs(Op::backward_input), needs(Op::backward));
  EXPECT_EQ(needs(Op::backward_weight), 0);
  // With LoRA three layers stay for the gradients of weights, plus one layer's bf16 gradients: 2 * 232.
  const Stage lora = llm_layers(kLora, Recomputation::full);
  EXPECT_EQ(workspace_bytes(Op::backward_input, lora, small_model(), kWork).count,
            5 * (3 * (212 - 16) + 72 + 16) + 464);
}

}  // namespace frozen_test
}  // namespace dflop
