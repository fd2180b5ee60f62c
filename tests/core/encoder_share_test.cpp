#include "core/program/encoder_share.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"

namespace dflop {
namespace encoder_share_test {

using testing::disaggregated_plan;
using testing::random_assignment;
using testing::random_batch;
using testing::random_plan;
using testing::tiny_model;

std::vector<EncoderPiece> pieces(const Plan& plan, const Batch& batch, const SamplesOfBins& bins, int j) {
  std::vector<EncoderPiece> all;
  for_each_piece(plan, tiny_model(), batch, bins, j,
                 [&](const EncoderPiece& piece) { all.push_back(piece); });
  return all;
}

/// Four equal tiles over two LLM dp ranks. The first rank has a text-only sample before its image.
const Batch kFourTiles = {{"text", Modality::text, {}, 0, 9},
                          {"a", Modality::image, {{2, 16, 256}, {1, 16, 256}}, 31, 40},
                          {"b", Modality::image, {{1, 16, 256}}, 10, 12}};

TEST(EncoderPieces, AreTheSequencesInOrderByTheMiddleOfTheirWeight) {
  // Of a total weight of 4, the tile centers are at 0.5, 1.5, 2.5 and 3.5: two tiles for each of two encoder
  // ranks. The 31 tokens of sample 1 are cut at 31 * 16 / 48 = 10 and 31 * 32 / 48 = 20.
  const Plan plan = disaggregated_plan({1, 1, 2, {4}}, {1, 1, 2, {6}}, 1, 3);
  const std::vector<EncoderPiece> expected = {{1, 0, 0, 0, 16, 256, 0, 10},
                                              {1, 0, 0, 1, 16, 256, 10, 20},
                                              {1, 0, 1, 2, 16, 256, 20, 31},
                                              {2, 1, 1, 0, 16, 256, 0, 10}};
  EXPECT_EQ(pieces(plan, kFourTiles, samples_of_bins(plan, {1, 2, {0, 0, 1}}), 0), expected);
}

/// The tiny model merges 4 encoder tokens. Here the second encoder merges 2, so of 16 tokens of the first and
/// 7 of the second come 4 and 3 LLM tokens. A sequence weighs what all layers of its encoder compute.
TEST(EncoderPieces, OfTwoEncodersGetTheTokensThatTheirConnectorsMake) {
  ModelSpec model = tiny_model();
  model.connector.merge = 4;
  model.second = SecondEncoder{model.encoder, {{model.encoder.hidden, model.llm.hidden}, 2}};
  model.second->encoder.layers = 3 * model.encoder.layers;
  Sample sample{"a", Modality::image, {{1, 16, 256}, {1, 7, 49, true}, {1, 7, 49, true}}, 10, 12};
  std::vector<EncoderPiece> found;
  for_each_piece_of_sample(
      model, sample, {}, [](double) { return 0; },
      [&](const EncoderPiece& piece) { found.push_back(piece); });
  const std::vector<EncoderPiece> expected = {
      {0, 0, 0, 0, 16, 256, 0, 4, false}, {0, 0, 0, 1, 7, 49, 4, 7, true}, {0, 0, 0, 2, 7, 49, 7, 10, true}};
  EXPECT_EQ(found, expected);
  const EncoderSequences first{1, 7, 49};
  EXPECT_DOUBLE_EQ(sequence_weight(model, {1, 7, 49, true}), 3 * sequence_weight(model, first));
  EXPECT_EQ(sample.encoder(), (Workload{1, 16, 256, 0, {2, 14, 98}}));
}

/// The same model. No sequence is long enough for a merged token, so each counts as one: of 5 LLM tokens,
/// 5 * 1 / 3 = 1, then 5 * 2 / 3 = 3, then 5. Next to a longer sequence, which merges to 4, short ones have
/// none, as in a sound whose last part is too short.
TEST(EncoderPieces, OfTwoEncodersKeepTheTokensOfShortSequences) {
  ModelSpec model = tiny_model();
  model.connector.merge = 4;
  model.second = SecondEncoder{model.encoder, {{model.encoder.hidden, model.llm.hidden}, 2}};
  const auto ends = [&](const Sample& sample) {
    std::vector<std::int64_t> found;
    for_each_piece_of_sample(
        model, sample, {}, [](double) { return 0; },
        [&](const EncoderPiece& piece) { found.push_back(piece.output_end); });
    return found;
  };
  const std::vector<std::int64_t> shared = {1, 3, 5};
  EXPECT_EQ(ends({"a", Modality::image, {{2, 3, 9}, {1, 1, 1, true}}, 5, 9}), shared);
  const std::vector<std::int64_t> of_the_first = {4, 4};
  EXPECT_EQ(ends({"a", Modality::image, {{1, 16, 256}, {1, 1, 1, true}}, 4, 9}), of_the_first);
}

TEST(EncoderPieces, FallWhereTheirMiddleDoes) {
  // Five equal tiles over three ranks: centers at 0.5 to 4.5 of 5 are at 0.3, 0.9, 1.5, 2.1 and 2.7 of 3.
  const Plan plan = disaggregated_plan({1, 1, 3, {4}}, {1, 1, 1, {6}}, 1, 1);
  const Batch batch = {{"a", Modality::image, {{5, 16, 256}}, 20, 25}};
  std::vector<std::int32_t> ranks;
  for (const EncoderPiece& piece : pieces(plan, batch, samples_of_bins(plan, {1, 1, {0}}), 0)) {
    ranks.push_back(piece.encoder_dp);
  }
  EXPECT_EQ(ranks, (std::vector<std::int32_t>{0, 0, 1, 2, 2}));
}

TEST(EncoderPieces, StayWithTheirSampleWhereTheEncoderHasNoRanksOfItsOwn) {
  Plan plan = disaggregated_plan({1, 2, 2, {4, 0}}, {1, 2, 2, {0, 6}}, 1, 3);
  plan.layout = Layout::uniform;
  const SamplesOfBins bins = samples_of_bins(plan, {1, 2, {0, 0, 1}});
  const std::vector<EncoderPiece> expected = {{1, 0, 0, 0, 16, 256, 0, 10},
                                              {1, 0, 0, 1, 16, 256, 10, 20},
                                              {1, 0, 0, 2, 16, 256, 20, 31},
                                              {2, 1, 1, 0, 16, 256, 0, 10}};
  EXPECT_EQ(pieces(plan, kFourTiles, bins, 0), expected);
  plan.layout = Layout::colocated;
  plan.encoder = {1, 1, 4, {4}};
  EXPECT_EQ(pieces(plan, kFourTiles, bins, 0), expected);
}

TEST(EncoderPieces, AreDividedOverTheCopiesInATpGroup) {
  // Each tp group of 2 ranks has two encoders of tp 1. Dp rank 0 has three tiles, whose centers at 0.5, 1.5
  // and 2.5 of 3 are at 0.33, 1 and 1.67 of 2 copies. Dp rank 1, whose copies are 2 and 3, has one tile, with
  // its center at 1 of 2.
  Plan plan = disaggregated_plan({1, 1, 8, {4}}, {2, 2, 2, {3, 3}}, 1, 3);
  plan.layout = Layout::colocated;
  plan.order = OrderKind::three_phase;
  const SamplesOfBins bins = samples_of_bins(plan, {1, 2, {0, 0, 1}});
  std::vector<std::int32_t> copies;
  for (const EncoderPiece& piece : pieces(plan, kFourTiles, bins, 0)) copies.push_back(piece.encoder_dp);
  EXPECT_EQ(copies, (std::vector<std::int32_t>{0, 1, 1, 3}));
  // So the slowest copy of dp rank 0 encodes two tiles of 16 tokens, the one of dp rank 1 a single tile.
  const std::vector<Workload> largest = largest_shares(plan, tiny_model(), kFourTiles, bins, 0);
  EXPECT_EQ(largest, (std::vector<Workload>{{2, 32, 512}, {1, 16, 256}}));
  const Program program = lower(plan, tiny_model(), kFourTiles, {1, 2, {0, 0, 1}});
  EXPECT_EQ(program.works.front().encoder, largest.front());
  EXPECT_EQ(program.stages.front().copies, 2);
}

// One copy gets a long sequence and the other many short ones, of which the tokens are more and the pairs
// less: the work has the most of both.
TEST(EncoderPieces, TheWorkOfCopiesHasTheMostOfEachCount) {
  Plan plan = disaggregated_plan({1, 1, 2, {4}}, {2, 1, 1, {6}}, 1, 2);
  plan.layout = Layout::colocated;
  plan.order = OrderKind::three_phase;
  plan.share_rule = ShareRule::count;
  const Batch batch = {{"long", Modality::image, {{1, 64, 4096}}, 40, 50},
                       {"short", Modality::image, {{10, 8, 64}}, 40, 50}};
  EXPECT_EQ(largest_shares(plan, tiny_model(), batch, samples_of_bins(plan, {1, 1, {0, 0}}), 0),
            (std::vector<Workload>{{10, 80, 4096}}));
}

TEST(EncoderPieces, AreDividedBySamplesOnRequest) {
  // Three samples over two ranks: centers at 0.5, 1.5 and 2.5 of 3 are at 0.33, 1 and 1.67 of 2, whatever the
  // samples' numbers of tiles; the first has none.
  Plan plan = disaggregated_plan({1, 1, 2, {4}}, {1, 1, 1, {6}}, 1, 3);
  plan.share_rule = ShareRule::count;
  std::vector<std::int32_t> ranks;
  for (const EncoderPiece& piece : pieces(plan, kFourTiles, samples_of_bins(plan, {1, 1, {0, 0, 0}}), 0))
    ranks.push_back(piece.encoder_dp);
  EXPECT_EQ(ranks, (std::vector<std::int32_t>{1, 1, 1, 1}));
  // By cost, the centers of the four tiles decide.
  plan.share_rule = ShareRule::cost;
  ranks.clear();
  for (const EncoderPiece& piece : pieces(plan, kFourTiles, samples_of_bins(plan, {1, 1, {0, 0, 0}}), 0))
    ranks.push_back(piece.encoder_dp);
  EXPECT_EQ(ranks, (std::vector<std::int32_t>{0, 0, 1, 1}));
}

TEST(EncoderPieces, OfASampleWithFewOutputTokensMayHaveNone) {
  // One token from three tiles: 1 * 16 / 48 = 0, 1 * 32 / 48 = 0, 1.
  const Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 1, 1, {6}}, 1, 1);
  const Batch batch = {{"a", Modality::image, {{3, 16, 256}}, 1, 1}};
  const std::vector<EncoderPiece> all = pieces(plan, batch, samples_of_bins(plan, {1, 1, {0}}), 0);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].output_end, 0);
  EXPECT_EQ(all[1].output_end, 0);
  EXPECT_EQ(all[2].output_begin, 0);
  EXPECT_EQ(all[2].output_end, 1);
}

/// A random plan, of each layout in turn, with a batch for it.
struct Case {
  Plan plan;
  Batch batch;
  Assignment assignment;

  Case(Random& random, int round) {
    const auto layout = static_cast<Layout>(round % 4);
    plan = random_plan(
        random, layout == Layout::colocated ? OrderKind::encoder_in_bubbles : OrderKind::one_f_one_b, layout);
    batch = random_batch(random, plan.gbs);
    assignment = random_assignment(random, plan, batch.size());
  }
};

/// Checks that `piece` is the next sequence of its sample after those in `seen`, and continues their outputs.
void expect_next(const EncoderPiece& piece, const Sample& sample, std::vector<EncoderPiece>& seen) {
  ASSERT_EQ(piece.sequence, static_cast<std::int64_t>(seen.size()));
  EXPECT_EQ(piece.output_begin, seen.empty() ? 0 : seen.back().output_end);
  EXPECT_GE(piece.output_end, piece.output_begin);
  std::int64_t left = piece.sequence;
  std::size_t group = 0;
  while (left >= sample.encoder_sequences.at(group).count) left -= sample.encoder_sequences[group++].count;
  EXPECT_EQ(piece.tokens, sample.encoder_sequences[group].tokens);
  EXPECT_EQ(piece.attention_pairs, sample.encoder_sequences[group].attention_pairs);
  seen.push_back(piece);
}

TEST(EncoderPieces, CoverEverySampleOnceInOrder) {
  Random random(21);
  for (int round = 0; round < 300; ++round) {
    const Case c(random, round);
    const SamplesOfBins bins = samples_of_bins(c.plan, c.assignment);
    std::map<std::int32_t, std::vector<EncoderPiece>> of_sample;
    for (int j = 0; j < c.plan.microbatches; ++j) {
      std::int32_t rank = 0;
      for (const EncoderPiece& piece : pieces(c.plan, c.batch, bins, j)) {
        expect_next(piece, c.batch[piece.sample], of_sample[piece.sample]);
        EXPECT_EQ(c.assignment.bin[piece.sample], j * c.plan.llm.dp + piece.llm_dp);
        EXPECT_LT(piece.encoder_dp, c.plan.encoder.dp);
        EXPECT_GE(piece.encoder_dp, rank);  // the pieces of each rank are contiguous
        rank = piece.encoder_dp;
        EXPECT_TRUE(has_encoder_ranks(c.plan.layout) ||
                    piece.encoder_dp / encoder_copies(c.plan) == piece.llm_dp);
      }
    }
    for (std::size_t i = 0; i < c.batch.size(); ++i) {
      const std::vector<EncoderPiece>& found = of_sample[static_cast<std::int32_t>(i)];
      EXPECT_EQ(static_cast<std::int64_t>(found.size()), c.batch[i].encoder().sequences);
      EXPECT_EQ(found.empty() ? 0 : found.back().output_end, c.batch[i].encoder_output_tokens);
    }
  }
}

TEST(EncoderPieces, SumToTheShareAndToTheWorksOfTheProgram) {
  Random random(22);
  for (int round = 0; round < 300; ++round) {
    const Case c(random, round);
    const SamplesOfBins bins = samples_of_bins(c.plan, c.assignment);
    const Program program = lower(c.plan, tiny_model(), c.batch, c.assignment);
    for (int j = 0; j < c.plan.microbatches; ++j) {
      EncoderShare sums;
      sums.work.resize(c.plan.encoder.dp);
      sums.output_tokens.resize(static_cast<std::size_t>(c.plan.encoder.dp) * c.plan.llm.dp);
      for (const EncoderPiece& piece : pieces(c.plan, c.batch, bins, j)) {
        sums.work[piece.encoder_dp] += {1, piece.tokens, piece.attention_pairs};
        sums.output_tokens[static_cast<std::size_t>(piece.encoder_dp) * c.plan.llm.dp + piece.llm_dp] +=
            piece.output_end - piece.output_begin;
      }
      const EncoderShare share = share_encoder(c.plan, tiny_model(), c.batch, bins, j);
      EXPECT_EQ(share.work, sums.work);
      EXPECT_EQ(share.output_tokens, sums.output_tokens);
      // The works of encoder ranks come first; in other layouts the works of the LLM's ranks include the
      // encoder's work, of which each count is the largest of any copy.
      const int dp = has_encoder_ranks(c.plan.layout) ? c.plan.encoder.dp : c.plan.llm.dp;
      const int copies = encoder_copies(c.plan);
      for (int d = 0; d < dp; ++d) {
        Workload largest;
        for (int e = d * copies; e < (d + 1) * copies; ++e) {
          largest.sequences = std::max(largest.sequences, sums.work[e].sequences);
          largest.tokens = std::max(largest.tokens, sums.work[e].tokens);
          largest.attention_pairs = std::max(largest.attention_pairs, sums.work[e].attention_pairs);
        }
        EXPECT_EQ(program.works[static_cast<std::size_t>(d) * c.plan.microbatches + j].encoder, largest);
      }
    }
  }
}

}  // namespace encoder_share_test
}  // namespace dflop
