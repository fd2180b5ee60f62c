// Compares the cost model's counts for released models with the counts of transformers and torch for the same
// configurations: parameters of models on the meta device, and FLOP by torch.utils.flop_counter.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/analytic/flops.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace released_models_test {

ModelSpec model_of(const std::string& folder) {
  const std::string file = DFLOP_SOURCE_DIR "/tests/golden/" + folder + "/config.json";
  return parse_hugging_face(read_text_file(file), file);
}

/// Returns a stage with a whole model.
Stage whole(const ModelSpec& model) {
  Stage stage;
  stage.encoder_layers = model.encoder.layers;
  stage.llm_layers = model.llm.layers;
  stage.front = stage.connector = model.encoder.layers > 0;
  stage.embedding = stage.head = true;
  return stage;
}

struct Released {
  const char* folder;
  std::int64_t parameters;  ///< of transformers' model
  std::int64_t unused;      ///< of these, in tensors that its forward does not read, less own tables
};

// Sums over named_parameters() of the model classes with a head, transformers 5.24, device meta. SigLIP's
// post_layernorm of 2 * 1152 follows the layer whose rows LLaVA-OneVision takes. LLaVA 1.5 takes the rows of
// CLIP's last layer but one: 12 * 1024^2 weights and 13 * 1024 biases and norms of the last, and a
// post_layernorm of 2 * 1024. Qwen2.5-Omni's thinker has an embedding of 7,168 that is not used; its table of
// 1500 positions is a buffer there, and a frozen parameter here.
constexpr Released kReleased[] = {{"qwen2.5-7b", 7'615'616'512, 0},
                                  {"llama-3.1-8b", 8'030'261'248, 0},
                                  {"llava-onevision-qwen2-7b-ov", 8'029'890'080, 2304},
                                  {"qwen2.5-vl-7b", 8'292'166'656, 0},
                                  {"qwen2.5-vl-3b", 3'754'622'976, 0},
                                  {"internvl2.5-8b", 8'075'365'376, 0},
                                  {"llava-1.5-7b", 7'063'427'072, 12'598'272},
                                  {"qwen2-vl-7b", 8'291'375'616, 0},
                                  {"qwen3-vl-8b", 8'767'123'696, 0},
                                  {"internvl3.5-8b", 8'528'318'464, 0},
                                  {"internvl2.5-26b", 25'514'186'112, 0},
                                  {"qwen2-audio-7b", 8'397'094'912, 0},
                                  {"qwen2.5-omni-7b", 8'931'813'888, 7'168 - 1500 * 1280}};

TEST(ReleasedModels, ParametersEqualTransformers) {
  for (const Released& released : kReleased) {
    const ModelSpec model = model_of(std::string("released/") + released.folder);
    EXPECT_EQ(stage_parameters(whole(model), model), released.parameters - released.unused)
        << released.folder;
  }
}

TEST(ReleasedModels, StagesHaveTheParametersOfTheModel) {
  // With any cut, each parameter is on one stage, except tied embeddings, which are on both ends.
  Random random(1);
  for (const Released& released : kReleased) {
    const ModelSpec model = model_of(std::string("released/") + released.folder);
    const std::int64_t all = stage_parameters(whole(model), model);
    for (int draw = 0; draw < 20; ++draw) {
      Plan plan;
      plan.layout = Layout::uniform;
      plan.encoder = {1, 3, 1, {0, 0, 0}};
      plan.llm = {1, 3, 1, {0, 0, 0}};
      for (int layer = 0; layer < model.encoder.layers; ++layer) ++plan.encoder.layers[random.below(3)];
      for (int layer = 0; layer < model.llm.layers; ++layer) ++plan.llm.layers[random.below(3)];
      std::int64_t sum = 0;
      int embeddings = 0;
      for (const Stage& stage : plan_stages(plan, model)) {
        sum += stage_parameters(stage, model);
        embeddings += stage.embedding && stage.head ? 1 : 0;
      }
      const bool twice = model.llm.tied_embeddings && embeddings == 0;
      EXPECT_EQ(sum, all + (twice ? model.llm.vocabulary * model.llm.hidden : 0)) << released.folder;
    }
  }
}

TEST(ReleasedModels, TensorParallelRanksHaveTheMatricesOnceAndWholeRowsEach) {
  // A layer of Qwen2.5-VL's encoder at tp 4: each rank has the norms, 2 * 1280, and the biases of the outputs
  // that are summed over tp, 2 * 1280, and a quarter of the biases of Q, K and V, 3 * 1280, and of gate and
  // up, 2 * 3420.
  const TransformerSpec spec = model_of("released/qwen2.5-vl-7b").encoder;
  EXPECT_EQ(spec.layer_vectors(1), 4 * 1280 + 3 * 1280 + 2 * 3420);
  EXPECT_EQ(spec.layer_vectors(4), 4 * 1280 + (3 * 1280 + 2 * 3420) / 4);
}

/// FLOP of torch's counter for one sample: a forward, and a forward with backward. The work is the encoder's
/// work and the LLM's tokens.
struct Counted {
  const char* folder;
  Workload encoder;
  std::int64_t tokens;
  double forward;
  double both;
};

// Eager attention of the models in tests/golden/models, float32. Torch counts all pairs of causal attention,
// and does not count norms, activations, positions and the selection of rows.
constexpr Counted kCounted[] = {
    {"llama3", {}, 11, 1864192, 5592576},
    {"qwen2-tied", {}, 11, 1864192, 5592576},
    // 1 + 3x3 tiles of 25 patches
    {"llava-onevision-qwen2", {10, 250, 6250}, 140, 58828800, 173894400},
    {"llava-onevision-llama3", {10, 250, 6250}, 140, 58828800, 173894400},
    // 12 x 8 patches: six windows of 16 in two of four layers, 1536 pairs, and 9216 pairs in the others
    {"qwen2.5-vl", {1, 96, (1536 + 9216) / 2}, 30, 30222336, 88676352},
    // 3 tiles of 64 patches and a class row
    {"internvl-300m-style", {3, 195, 3 * 65 * 65}, 53, 32030848, 94101888},
    {"internvl-6b-style", {3, 195, 3 * 65 * 65}, 53, 32030848, 94101888},
    // 32 positions, all of them valid
    {"qwen2-audio", {1, 32, 32 * 32}, 21, 7107072, 21026304}};

TEST(ReleasedModels, FlopEqualTorch) {
  for (const Counted& counted : kCounted) {
    ModelSpec model = model_of(std::string("models/") + counted.folder);
    model.llm.causal = false;
    const Workload llm{1, counted.tokens, counted.tokens * counted.tokens};
    EXPECT_EQ(encoder_flop(model, counted.encoder).count + llm_flop(model, llm).count, counted.forward)
        << counted.folder;
    EXPECT_EQ(model_flop(model, counted.encoder, llm).count, counted.both) << counted.folder;
  }
}

TEST(ReleasedModels, ATextModelIsPricedAsThePresetsFormOfIt) {
  // Llama has the same form as gated presets, so its layers cost the same with and without an explicit form.
  const ModelSpec llama = model_of("released/llama-3.1-8b");
  TransformerSpec preset = llama.llm;
  preset.form.reset();
  const ClusterSpec cluster = fixtures::a100_cluster();
  const Workload work{4, 8192, 4 * 2048 * 2048};
  const PassTimes own = transformer_layer(cluster, llama.llm, work, 2, true);
  const PassTimes other = transformer_layer(cluster, preset, work, 2, true);
  EXPECT_EQ(own.forward, other.forward);
  EXPECT_EQ(own.backward_input, other.backward_input);
  EXPECT_EQ(own.backward_weight, other.backward_weight);
}

TEST(ReleasedModels, BiasesCostTheReadingOfTheirGradients) {
  // Bytes that a rank moves in bf16 for the gradients of biases, per token, in a layer with Q, K and V of 8,
  // 4 and 4 and a gated MLP of 12. On one rank: 8 + 2 * 4 (QKV) + 8 (output) + 2 * 12 + 8 (MLP) = 56 elements
  // = 112 bytes, for 5 tokens 560, at 50 bytes/s.
  TransformerSpec spec = fixtures::small_model().llm;
  LayerForm form = preset_form(true);
  spec.form = form;
  const ClusterSpec cluster = fixtures::small_cluster();
  const Workload work{1, 5, 25};
  const PassTimes without = transformer_layer(cluster, spec, work, 1, false);
  form.qkv_bias = form.key_bias = form.output_bias = form.mlp_bias = true;
  spec.form = form;
  const PassTimes with = transformer_layer(cluster, spec, work, 1, false);
  EXPECT_EQ(with.forward, without.forward);
  EXPECT_NEAR((with.backward_weight - without.backward_weight).count(), 560.0 / 50, 1e-9);
}

TEST(ReleasedModels, FormsOfInternVitCostTheirTraffic) {
  // Per token: scales 4 h forward and 8 h backward; norms of Q and K 2 (q + k) and 3 (q + k); no rotary
  // positions, which cost 2 (q + k) without a form. With h = q = k = 4: 16 + 16 - 16 = 16 elements forward,
  // 32 + 24 - 16 = 40 backward; 6 tokens of 2 bytes at 50 bytes/s.
  TransformerSpec spec = fixtures::small_model().encoder;
  const ClusterSpec cluster = fixtures::small_cluster();
  const Workload work{2, 6, 18};
  const PassTimes without = transformer_layer(cluster, spec, work, 1, false);
  LayerForm form;
  form.qkv_bias = form.key_bias = form.output_bias = form.mlp_bias = false;
  form.rotary.reset();
  form.qk_norm = QkNormKind::all_heads;
  form.layer_scale = true;
  spec.form = form;
  const PassTimes with = transformer_layer(cluster, spec, work, 1, false);
  EXPECT_NEAR((with.forward - without.forward).count(), 16 * 6 * 2 / 50.0, 1e-9);
  EXPECT_NEAR((with.backward_input - without.backward_input).count(), 40 * 6 * 2 / 50.0, 1e-9);
  // Scales and norms also keep 2 * 2 h and 2 (q + k) bytes per token.
  ModelSpec model = fixtures::small_model();
  Stage stage;
  stage.encoder_layers = 1;
  stage.recomputation = Recomputation::none;
  const Bytes less = activation_bytes(stage, model, {work, {}});
  model.encoder = spec;
  EXPECT_EQ((activation_bytes(stage, model, {work, {}}) - less).count, 6 * (2 * 2 * 4 + 2 * 8));
}

TEST(ReleasedModels, ConnectorsOfAFormCostItsNormPickingAndBiases) {
  // Widths {8, 8, 8} with two rows of 4 merged into one, on one rank: 6 rows are 3 connector tokens. Per
  // token the norm moves 2 * 8 elements forward and 3 * 8 backward, and the gradients of two biases of 8 are
  // read. Per row of 4 the selection of rows moves 2 * 4 in both passes. All elements have 2 bytes, at 50
  // bytes/s.
  ModelSpec model = fixtures::small_model();
  const ClusterSpec cluster = fixtures::small_cluster();
  const Workload work{2, 6, 18};
  const PassTimes without = connector(cluster, model, work, 1);
  model.architecture.emplace();
  model.architecture->connector.selects = true;
  const PassTimes with = connector(cluster, model, work, 1);
  EXPECT_NEAR((with.forward - without.forward).count(), (3 * 16 + 6 * 8) * 2 / 50.0, 1e-9);
  EXPECT_NEAR((with.backward_input - without.backward_input).count(), (3 * 24 + 6 * 8) * 2 / 50.0, 1e-9);
  EXPECT_NEAR((with.backward_weight - without.backward_weight).count(), 3 * 16 * 2 / 50.0, 1e-9);
  // On two ranks the first bias is split by columns: 4 + 8.
  const PassTimes split = connector(cluster, model, work, 2);
  model.architecture.reset();
  EXPECT_NEAR((split.backward_weight - connector(cluster, model, work, 2).backward_weight).count(),
              3 * 12 * 2 / 50.0, 1e-9);
}

TEST(ReleasedModels, ClassRowsDoNotReachTheConnector) {
  // Two sequences of 3 rows, each beginning with a class row: 4 rows, 2 connector tokens, 2 * 2 * 128 FLOP.
  ModelSpec model = fixtures::small_model();
  model.architecture.emplace();
  model.architecture->front.class_row = true;
  EXPECT_EQ(connector_flop(model, {2, 6, 18}).count, 512);
  EXPECT_EQ(front_flop(model, {2, 6, 18}).first.count, 2.0 * 4 * 48 * 4);  // 48 values per patch, 4 wide
}

TEST(ReleasedModels, StagesTogetherHaveTheFlopOfTheModel) {
  for (const Released& released : kReleased) {
    const ModelSpec model = model_of(std::string("released/") + released.folder);
    const Work work{{4, 4 * 1024, 4 * 1024 * 1024}, {2, 2 * 700, 2 * 700 * 700}};
    Stage first;
    first.front = model.encoder.layers > 0;
    first.encoder_layers = model.encoder.layers / 2;
    Stage rest = whole(model);
    rest.front = false;
    rest.encoder_layers -= first.encoder_layers;
    Flop all;
    Flop without_gradient;
    for (const Stage& stage : {first, rest}) {
      all += stage_flop(model, stage, work).all();
      without_gradient += stage_flop(model, stage, work).first;
    }
    const double expected =
        model_flop(model, model.encoder.layers > 0 ? work.encoder : Workload{}, work.llm).count;
    EXPECT_NEAR(3 * all.count - without_gradient.count, expected, 1e-12 * expected) << released.folder;
  }
}

TEST(ReleasedModels, FrontsCostTimeAndMemoryOnlyOnTheFirstStage) {
  for (const Released& released : kReleased) {
    const ModelSpec model = model_of(std::string("released/") + released.folder);
    if (model.encoder.layers == 0) continue;
    const AnalyticCostModel cost(model, fixtures::a100_cluster());
    Stage stage;
    stage.encoder_layers = 1;
    const Work work{{4, 4 * 1024, 4 * 1024 * 1024}, {}};
    Stage first = stage;
    first.front = true;
    EXPECT_GT(cost.compute(Op::forward, first, work), cost.compute(Op::forward, stage, work))
        << released.folder;
    EXPECT_GT(cost.activation(first, work), cost.activation(stage, work)) << released.folder;
    EXPECT_GT(cost.model_state(first).parameters, cost.model_state(stage).parameters) << released.folder;
  }
}

}  // namespace released_models_test
}  // namespace dflop
