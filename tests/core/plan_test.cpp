#include "core/plan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.hpp"
#include "tests/core/fixtures.hpp"

namespace dflop {
namespace plan_test {

TEST(SplitLayers, IsEvenWithTheLargerPartsFirst) {
  EXPECT_EQ(split_layers(27, 2), (std::vector<int>{14, 13}));
  EXPECT_EQ(split_layers(5, 5), (std::vector<int>{1, 1, 1, 1, 1}));
  for (int layers = 1; layers < 50; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const std::vector<int> split = split_layers(layers, stages);
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), 0), layers);
      EXPECT_LE(split.front() - split.back(), 1);
    }
  }
}

TEST(Plan, RejectsContradictionsNamingTheKey) {
  const Plan good = testing::disaggregated_plan({2, 1, 2, {4}}, {4, 2, 2, {3, 3}}, 4, 16);
  const auto refused = [&](const std::string& key, const std::function<void(Plan&)>& damage) {
    Plan plan = good;
    damage(plan);
    try {
      validate(plan, testing::tiny_model(), testing::tiny_cluster());
      ADD_FAILURE() << "accepted a bad " << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_NE(error.context().find("'" + key + "'"), std::string::npos) << error.what();
    }
  };
  validate(good, testing::tiny_model(), testing::tiny_cluster());  // 4 + 16 of 32 GPUs
  refused("encoder.tp", [](Plan& p) { p.encoder.tp = 16; });
  refused("llm.dp", [](Plan& p) { p.llm.dp = 0; });
  refused("llm.pp", [](Plan& p) { p.llm.pp = 2000000000; });
  refused("llm.layers", [](Plan& p) { p.llm.layers = {6}; });
  refused("llm.layers", [](Plan& p) { p.llm.layers = {3, 2}; });
  refused("encoder.layers", [](Plan& p) { p.encoder = {2, 2, 1, {4, 0}}; });
  refused("llm", [](Plan& p) { p.llm.dp = 4; });  // 4 + 32 GPUs
  refused("llm.tp", [](Plan& p) {
    p.encoder.dp = 1, p.encoder.tp = 6;
  });                                          // LLM groups 6-9, 10-13, 14-17: across GPUs 8 and 16
  refused("gbs", [](Plan& p) { p.gbs = 7; });  // 2 x 4 bins
  refused("microbatches", [](Plan& p) { p.microbatches = 0; });
  refused("encoder", [](Plan& p) { p.layout = Layout::uniform; });
}

TEST(Plan, RejectsScheduleLayoutAndChunksThatDoNotGoTogether) {
  const ModelSpec model = testing::tiny_model();
  Plan chunked = testing::disaggregated_plan({2, 1, 2, {4}}, {1, 2, 2, {1, 1, 1, 3}}, 4, 16);
  chunked.order = OrderKind::interleaved;
  chunked.chunks = 2;
  Plan colocated = testing::disaggregated_plan({2, 1, 6, {4}}, {2, 3, 2, {2, 2, 2}}, 4, 16);
  colocated.layout = Layout::colocated;
  colocated.order = OrderKind::encoder_in_bubbles;
  for (const Plan& good : {chunked, colocated}) validate(good, model, testing::tiny_cluster());
  EXPECT_EQ(colocated.ranks(), 12);  // the LLM's ranks
  EXPECT_EQ(describe(colocated), "tp2 pp3 dp2 mb4 encoder-in-bubbles");
  Plan with_copies = colocated;
  with_copies.encoder = {1, 1, 12, {4}};  // on each of the 12 ranks
  validate(with_copies, model, testing::tiny_cluster());
  EXPECT_EQ(encoder_copies(with_copies), 2);
  EXPECT_EQ(describe(with_copies), "tp2 pp3 dp2 mb4 encoder-in-bubbles encoder tp1");
  EXPECT_EQ(describe(chunked), "E tp2 pp1 dp2 | L tp1 pp2 dp2 mb4 interleaved x2");

  const auto refused = [&](Plan plan, const std::string& key, const std::string& words,
                           const std::function<void(Plan&)>& damage) {
    damage(plan);
    try {
      validate(plan, model, testing::tiny_cluster());
      ADD_FAILURE() << "accepted a bad " << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.context(), "plan: key '" + key + "'") << error.what();
      EXPECT_NE(error.message().find(words), std::string::npos) << error.what();
    }
  };
  refused(chunked, "chunks", "expected at least 1, found 0", [](Plan& p) { p.chunks = 0; });
  refused(chunked, "chunks", "expected 1 for 1f1b, found 2",
          [](Plan& p) { p.order = OrderKind::one_f_one_b; });
  refused(chunked, "chunks", "expected 2 for zb-v, found 3", [](Plan& p) {
    p.order = OrderKind::zb_v;
    p.chunks = 3;
  });
  refused(chunked, "llm.layers", "each of 6 stages, found 4", [](Plan& p) { p.chunks = 3; });
  refused(chunked, "llm.layers", "at least 1 in each stage", [](Plan& p) { p.llm.layers = {0, 2, 2, 2}; });
  refused(chunked, "schedule", "found encoder-in-bubbles in a disaggregated plan",
          [](Plan& p) { p.order = OrderKind::encoder_in_bubbles; });
  refused(colocated, "schedule", "found zb-h1 in a colocated plan",
          [](Plan& p) { p.order = OrderKind::zb_h1; });
  refused(colocated, "encoder.tp", "expected a divisor of the tp of llm, 2, in a colocated plan, found 3",
          [](Plan& p) { p.encoder.tp = 3; });
  Plan uniform = testing::disaggregated_plan({1, 2, 2, {4, 0}}, {1, 2, 2, {0, 6}}, 4, 16);
  uniform.layout = Layout::uniform;
  refused(uniform, "encoder_recomputation", "the encoder has stages of its own, found a uniform plan",
          [](Plan& p) { p.encoder_recomputation = Recomputation::none; });
  refused(colocated, "encoder.pp", "one stage", [](Plan& p) { p.encoder = {2, 2, 6, {2, 2}}; });
  refused(colocated, "encoder.dp", "the ranks of llm over encoder.tp, which is 6",
          [](Plan& p) { p.encoder.dp = 2; });
  refused(colocated, "encoder.dp", "which is 12", [](Plan& p) { p.encoder.tp = 1; });
}

/// Encoder and LLM on the same 8 GPUs: 2 x 1 x 4 encoder ranks and 4 x 2 x 1 LLM ranks.
Plan shared_plan() {
  Plan plan = testing::disaggregated_plan({2, 1, 4, {4}}, {4, 2, 1, {3, 3}}, 4, 16);
  plan.layout = Layout::shared;
  plan.encoder_share = 0.25;
  return plan;
}

TEST(Plan, ASharedOneHasTwoRanksOnEachGpu) {
  const Plan plan = shared_plan();
  validate(plan, testing::tiny_model(), testing::tiny_cluster(1, 8));  // 16 ranks on 8 GPUs
  EXPECT_EQ(plan.ranks(), 16);
  EXPECT_EQ(plan.gpus(), 8);
  EXPECT_EQ(describe(plan), "E tp2 pp1 dp4 | L tp4 pp2 dp1 mb4 shared 0.25");
  // The encoder's groups of 2 ranks begin at 0, 2, 4 and 6. The LLM's groups of 4 follow, on the GPUs from 0
  // and 4.
  EXPECT_EQ(first_ranks(plan), (std::vector<std::int32_t>{0, 2, 4, 6, 8, 12}));
  EXPECT_EQ(device_of(12, plan.gpus()), 4);
  const std::vector<Stage> stages = plan_stages(plan, testing::tiny_model());
  EXPECT_EQ(stages[0].share, 0.25);
  EXPECT_EQ(stages[1].share, 0.75);
  EXPECT_EQ(stages[2].share, 0.75);
}

TEST(Plan, RejectsSharesThatCannotBe) {
  ClusterSpec cluster = testing::tiny_cluster(1, 8);
  cluster.gpu.name = "h";
  const auto refused = [&](const std::string& key, const std::string& words,
                           const std::function<void(Plan&)>& damage) {
    Plan plan = shared_plan();
    damage(plan);
    try {
      validate(plan, testing::tiny_model(), cluster);
      ADD_FAILURE() << "accepted a bad " << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.context(), "plan: key '" + key + "'") << error.what();
      EXPECT_NE(error.message().find(words), std::string::npos) << error.what();
    }
  };
  refused("encoder", "in a shared plan, expected the same number of ranks as llm, 8, found 6",
          [](Plan& p) { p.encoder.dp = 3; });
  for (const double share : {0.0, 1.0, -0.5, std::nan("")})
    refused("encoder_share", "above 0 and below 1", [&](Plan& p) { p.encoder_share = share; });
  refused("encoder_share", "only in shared plans, found 0.25 in a disaggregated plan", [](Plan& p) {
    p.layout = Layout::disaggregated;
    p.encoder.dp = p.llm.pp = 1;
    p.llm.layers = {6};
  });
  refused("llm", "needs 16 GPUs", [](Plan& p) { p.llm.dp = 2; });
  cluster.nodes = 2;
  refused("llm.tp", "the tp group of ranks 18 to 23 spans two nodes", [](Plan& p) {  // GPUs 6 to 11
    p.encoder = {2, 1, 6, {4}};
    p.llm.tp = 6;
  });
  // 132 multiprocessors hold 16 quanta of 8: a share of 0.02 is 0.32 quanta, so none, and 0.97 is 15.52, so
  // all of them.
  cluster.gpu.multiprocessors = 132;
  validate(shared_plan(), testing::tiny_model(), cluster);
  for (const double share : {0.02, 0.97}) {
    refused("encoder_share", "at least 8 of the 132 multiprocessors of h",
            [&](Plan& p) { p.encoder_share = share; });
  }
}

// 132 multiprocessors are 16 quanta of 8 plus 4 that are left over and granted to nobody.
TEST(Cluster, SharesAreGrantedInQuanta) {
  GpuSpec gpu;
  EXPECT_EQ(granted_shares(gpu, 0.25).encoder, 0.25);  // unknown multiprocessors
  EXPECT_EQ(granted_shares(gpu, 0.25).llm, 0.75);
  const auto expect_eights = [&](double share, int encoder, int llm) {
    EXPECT_DOUBLE_EQ(granted_shares(gpu, share).encoder, 8.0 * encoder / 132) << share;
    EXPECT_DOUBLE_EQ(granted_shares(gpu, share).llm, 8.0 * llm / 132) << share;
  };
  gpu.multiprocessors = 132;
  expect_eights(0.5, 8, 8);
  expect_eights(0.125, 2, 14);
  expect_eights(0.03, 0, 16);  // 0.48
  expect_eights(0.9, 14, 2);   // 14.4
  expect_eights(0.97, 16, 0);  // 15.52
  // The LLM's share is computed as 1 - (1 - share) of the encoder's, which must round to the same quanta: 40
  // x 0.1 is half a quantum, and 1 - 0.9 is a little less than 0.1.
  gpu.multiprocessors = 40;
  EXPECT_EQ(granted_shares(gpu, 0.1).encoder, granted_shares(gpu, 1 - 0.9).encoder);
  gpu.multiprocessors = 132;
  gpu.share_quantum = 4;
  EXPECT_DOUBLE_EQ(granted_shares(gpu, 0.95).encoder, 124.0 / 132);  // 31.35
}

/// The Error for a plan read from a file.
Error refusal(const Plan& plan) {
  try {
    validate(plan, testing::tiny_model(), testing::tiny_cluster(), "p.json");
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return Error(ErrorKind::internal, "");
}

TEST(Plan, ErrorsNameWhereThePlanIs) {
  Plan plan = testing::disaggregated_plan({2, 1, 2, {4}}, {4, 2, 2, {3, 3}}, 4, 16);
  plan.encoder.layers = {3};
  EXPECT_STREQ(refusal(plan).what(), "p.json: key 'encoder.layers': expected a sum of 4 layers, found 3");
}

TEST(Plan, TooManyRanksAreTheModulesThatNeedThem) {
  // The cluster has 32 GPUs. The plans need: encoder 4, LLM 64; encoder 40, LLM 16; encoder 4, LLM 32.
  const Plan llm = testing::disaggregated_plan({2, 1, 2, {4}}, {4, 2, 8, {3, 3}}, 1, 16);
  EXPECT_EQ(refusal(llm).context(), "p.json: key 'llm'");
  EXPECT_EQ(refusal(llm).message(), "needs 64 GPUs, expected at most the 32 GPUs of cluster 'tiny'");
  const Plan encoder = testing::disaggregated_plan({2, 1, 20, {4}}, {4, 2, 2, {3, 3}}, 1, 16);
  EXPECT_EQ(refusal(encoder).context(), "p.json: key 'encoder'");
  EXPECT_EQ(refusal(encoder).message(), "needs 40 GPUs, expected at most the 32 GPUs of cluster 'tiny'");
  const Plan both = testing::disaggregated_plan({2, 1, 2, {4}}, {4, 2, 4, {3, 3}}, 1, 16);
  EXPECT_EQ(refusal(both).context(), "p.json: key 'llm'");
  EXPECT_EQ(refusal(both).message(),
            "encoder and llm together need 36 GPUs, expected at most the 32 GPUs of cluster 'tiny'");
}

TEST(Assignment, ErrorsNameWhereItIs) {
  const Plan plan = testing::disaggregated_plan({1, 1, 1, {4}}, {1, 1, 1, {6}}, 2, 2);
  try {
    validate(Assignment{2, 1, {0, 0}}, plan, 2, "s.json: key 'iterations[3]'");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "s.json: key 'iterations[3]': bin 1 has no sample");
  }
}

TEST(Plan, UniformEncoderLayersComeFirst) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.gbs = 4;
  plan.encoder = {1, 2, 1, {2, 2}};
  plan.llm = {1, 2, 1, {3, 3}};
  EXPECT_THROW(validate(plan, testing::tiny_model(), testing::tiny_cluster()),
               Error);  // encoder after LLM layers
  plan.encoder.layers = {4, 0};
  EXPECT_NO_THROW(validate(plan, testing::tiny_model(), testing::tiny_cluster()));
}

TEST(Names, RoundTrip) {
  for (const OrderKind order : all_order_kinds()) {
    EXPECT_EQ(order_kind_from_string(to_string(order)), order);
  }
  for (const auto r : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    EXPECT_EQ(from_string<Recomputation>(to_string(r)), r);
  }
  for (const auto order : {RankOrder::stage_major, RankOrder::replica_major}) {
    EXPECT_EQ(from_string<RankOrder>(to_string(order)), order);
  }
  for (const auto layout : all_of<Layout>()) {
    EXPECT_EQ(from_string<Layout>(to_string(layout)), layout);
  }
  EXPECT_EQ(order_kind_from_string("2f2b"), std::nullopt);
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a"}), "a");
  EXPECT_EQ(listed({"a", "b", "c"}), "a, b or c");
  for (int m = 0; m < kModalities; ++m) {
    EXPECT_EQ(from_string<Modality>(to_string(static_cast<Modality>(m))), static_cast<Modality>(m));
  }
  EXPECT_EQ(from_string<Modality>("picture"), std::nullopt);
}

TEST(TrainedParts, AreOfTheModelAndNotNothing) {
  const ModelSpec model = testing::tiny_model();
  validate(TrainedParts{}, model);
  validate(TrainedParts{false, false, false, 4}, model);
  validate(TrainedParts{false, true, false, 0}, model);
  const auto refused = [&](const TrainedParts& trained, const ModelSpec& of, const std::string& key) {
    try {
      validate(trained, of, "p.json");
      ADD_FAILURE() << describe(trained);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_EQ(error.context(), "p.json: key '" + key + "'") << error.what();
    }
  };
  refused({false, false, false, 0}, model, "frozen");
  refused({true, true, true, 4}, model, "lora_rank");
  ModelSpec text = model;
  text.encoder.layers = 0;
  refused({false, true, true, 0}, text, "frozen");
  refused({true, true, false, 0}, text, "frozen");  // there is no encoder to train
  validate(TrainedParts{true, true, false, 4}, text);
}

TEST(TrainedParts, AreSaidInWords) {
  EXPECT_EQ(describe(TrainedParts{}), "encoder, connector, LLM");
  EXPECT_EQ(describe(TrainedParts{false, true, false, 16}), "connector, LoRA of rank 16 on the LLM");
}

}  // namespace plan_test
}  // namespace dflop
