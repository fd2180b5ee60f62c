#include "costmodel/correction/correction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <set>

#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace correction_test {

constexpr StageKind kKind = StageKind::llm;
constexpr Op kOp = Op::forward;

ShapeBucket bucket(int tokens) {
  return {false, tokens, 20};
}

double normal(Random& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(2 * std::numbers::pi * random.uniform());
}

/// Microbatches of four samples, each from a bucket of 0 to 19, in units of 2 s. A sample of bucket b takes
/// 0.5 s x level plus penalty(b) units; every duration has relative noise.
class World {
 public:
  double level = 1;
  std::map<int, double> penalty;
  double noise = 0.02;
  Random random{7};

  std::vector<CorrectionRow> rows(int count) {
    std::vector<CorrectionRow> rows;
    for (int r = 0; r < count; ++r) {
      CorrectionRow row{kKind, kOp, 0, 4 * 0.5, 2, {}};
      std::map<int, double> counts;
      double extra = 0;
      for (int s = 0; s < 4; ++s) {
        const int b = static_cast<int>(random.below(20));
        counts[b] += 1;
        const auto found = penalty.find(b);
        if (found != penalty.end()) extra += 2 * found->second;
      }
      for (const auto& [b, n] : counts) row.samples.emplace_back(bucket(b), n);
      row.observed_s = (level * row.predicted_s + extra) * (1 + noise * normal(random));
      rows.push_back(row);
    }
    return rows;
  }
};

/// The effect of a sample of a bucket on its microbatch. With four samples each, a quarter of the level's
/// change belongs to each sample, whichever of the two terms the fit assigns it to.
double effect(const Correction& correction, int b) {
  return correction.penalty(kKind, kOp, bucket(b)) + (correction.level(kKind, kOp) - 1) / 4;
}

TEST(Correction, KnowsNothingAtFirst) {
  const Correction correction;
  EXPECT_EQ(correction.level(kKind, kOp), 1);
  EXPECT_EQ(correction.penalty(kKind, kOp, bucket(3)), 0);
  EXPECT_EQ(correction.reference(kKind, kOp), Work{});
  EXPECT_FALSE(correction.knows(kKind, kOp));
}

TEST(Correction, FindsWhichSamplesAreSlowThoughItSeesOnlyMicrobatches) {
  // Random worlds: a level from 0.7 to 1.5 and three slow buckets with penalties from 0.1 to 1 units. 30
  // iterations x 64 rows contain each bucket about 380 times, half of them remembered (0.98^30 = 0.55). The
  // noise of 2 % leaves about 0.02 / sqrt(280) = 0.001, and the prior of one in 280 less than 0.4 %, so 0.02
  // is a generous tolerance.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world;
    world.random = Random(seed);
    world.level = 0.7 + 0.8 * world.random.uniform();
    while (world.penalty.size() < 3) {
      world.penalty[static_cast<int>(world.random.below(20))] = 0.1 + 0.9 * world.random.uniform();
    }
    Correction correction;
    for (int k = 0; k < 30; ++k) correction.learn(world.rows(64));
    for (int b = 0; b < 20; ++b) {
      const double extra = world.penalty.count(b) > 0 ? world.penalty[b] : 0;
      EXPECT_NEAR(effect(correction, b), extra + (world.level - 1) / 4, 0.02) << "seed " << seed << " " << b;
    }
    EXPECT_EQ(correction.changes(), 0) << seed;
  }
}

TEST(Correction, ShrinksWithFewObservations) {
  // One row, one sample, prediction = unit = 1 s, observed 1.2 s: level and bucket share the residual of 0.2,
  // both with x = 1 and a prior of 1, so each is 0.2 / 3. After n equal rows each is 0.2 n / (2 n + 1), which
  // approaches 0.1: together the whole residual.
  const CorrectionRow row{kKind, kOp, 1.2, 1, 1, {{bucket(5), 1}}};
  Correction once(CorrectionOptions{.prior = 1});
  once.learn(std::vector<CorrectionRow>{row});
  EXPECT_NEAR(once.penalty(kKind, kOp, bucket(5)), 0.2 / 3, 1e-12);
  EXPECT_NEAR(once.level(kKind, kOp), 1 + 0.2 / 3, 1e-12);
  EXPECT_EQ(once.penalty(kKind, kOp, bucket(6)), 0);
  Correction often(CorrectionOptions{.prior = 1});
  often.learn(std::vector<CorrectionRow>(9, row));
  EXPECT_NEAR(often.penalty(kKind, kOp, bucket(5)), 0.2 * 9 / 19, 1e-12);
  // A stronger prior of 8: 0.2 / (2 + 8).
  Correction careful(CorrectionOptions{.prior = 8});
  careful.learn(std::vector<CorrectionRow>{row});
  EXPECT_NEAR(careful.penalty(kKind, kOp, bucket(5)), 0.02, 1e-12);
}

TEST(Correction, LevelScalesWithThePredictedTime) {
  // Microbatches of 1 to 3 units, all 1.3 times as long as predicted, with samples of a single bucket. Only
  // the size separates level from penalty, and penalties have a stronger prior to overcome.
  Correction correction;
  for (int k = 0; k < 50; ++k) {
    std::vector<CorrectionRow> rows;
    for (int r = 0; r < 30; ++r) {
      const double predicted = 1 + r % 3;
      rows.push_back({kKind, kOp, 1.3 * predicted, predicted, 1, {{bucket(r % 7), 1}}});
    }
    correction.learn(rows);
  }
  EXPECT_NEAR(correction.level(kKind, kOp), 1.3, 0.01);
  for (int b = 0; b < 7; ++b) EXPECT_NEAR(correction.penalty(kKind, kOp, bucket(b)), 0, 0.02);
}

TEST(Correction, AHiccupHasBoundedInfluence) {
  // One microbatch in 64 x 20 takes a hundred times as long. A plain mean would move the effect of each of
  // its buckets by 0.39 (99 / 256 of the bucket's observations); bounded, the shift is 0.25 / 256 = 0.001 on
  // top of the noise.
  World world;
  Correction correction;
  for (int k = 0; k < 20; ++k) {
    std::vector<CorrectionRow> rows = world.rows(64);
    if (k == 15) rows[10].observed_s *= 100;
    correction.learn(rows);
  }
  for (int b = 0; b < 20; ++b) EXPECT_NEAR(effect(correction, b), 0, 0.015) << b;
  EXPECT_EQ(correction.changes(), 0);
}

TEST(Correction, ForgetsOldObservations) {
  // Bucket 4 becomes slower by half a unit and later recovers. A coefficient's deviations are clipped at 8
  // and reduced by 1 each, so two iterations pass the limit of 10. Both times, the change is detected within
  // four iterations, old knowledge is forgotten and the new value learned. Plain forgetting of 2 % per
  // iteration would retain 0.5 x 0.98^4 = 0.46 after the second change.
  World world;
  Correction correction;
  for (int k = 0; k < 40; ++k) correction.learn(world.rows(64));
  EXPECT_NEAR(effect(correction, 4), 0, 0.02);
  world.penalty[4] = 0.5;
  for (int k = 0; k < 4; ++k) correction.learn(world.rows(64));
  EXPECT_GE(correction.changes(), 1);
  EXPECT_NEAR(effect(correction, 4), 0.5, 0.1);
  for (int k = 0; k < 36; ++k) correction.learn(world.rows(64));
  const std::int64_t changes = correction.changes();
  world.penalty.clear();
  for (int k = 0; k < 4; ++k) correction.learn(world.rows(64));
  EXPECT_GT(correction.changes(), changes);
  EXPECT_NEAR(effect(correction, 4), 0, 0.1);
  for (int b = 5; b < 20; ++b) EXPECT_NEAR(effect(correction, b), 0, 0.05) << b;
}

TEST(Correction, NoiseIsNoChange) {
  // 21 coefficients over 20 seeds of 200 iterations: 84,000 chances of a false alarm, at 1 % and 10 % noise.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world;
    world.random = Random(seed);
    world.noise = seed % 2 == 0 ? 0.01 : 0.1;
    world.penalty[3] = 0.4;
    Correction correction;
    for (int k = 0; k < 200; ++k) correction.learn(world.rows(40));
    EXPECT_EQ(correction.changes(), 0) << seed;
  }
}

TEST(Correction, KindsAndOpsAreApart) {
  Correction correction;
  const CorrectionRow row{StageKind::llm, Op::forward, 2, 1, 1, {{bucket(1), 1}}};
  correction.learn(std::vector<CorrectionRow>(10, row));
  EXPECT_GT(correction.level(StageKind::llm, Op::forward), 1.3);
  EXPECT_EQ(correction.level(StageKind::llm, Op::backward), 1);
  EXPECT_EQ(correction.level(StageKind::encoder, Op::forward), 1);
}

TEST(Correction, ResumesFromItsSums) {
  World world;
  world.penalty[2] = 0.3;
  Correction whole;
  for (int k = 0; k < 5; ++k) whole.learn(world.rows(30));
  Correction resumed(whole.fits());
  for (int k = 0; k < 5; ++k) {
    const std::vector<CorrectionRow> rows = world.rows(30);
    whole.learn(rows);
    resumed.learn(rows);
  }
  EXPECT_EQ(resumed.fits(), whole.fits());
  for (int b = 0; b < 20; ++b) {
    EXPECT_EQ(resumed.penalty(kKind, kOp, bucket(b)), whole.penalty(kKind, kOp, bucket(b)));
  }
}

TEST(Correction, RejectsSumsOfNoObservations) {
  CorrectionFit fit;
  fit.kind = kKind;
  fit.op = kOp;
  fit.buckets = {bucket(1), bucket(2)};
  fit.information = {1, 0.5, 1, 0, 0.5, 1};
  fit.moment = fit.rise = fit.fall = {0, 0, 0};
  EXPECT_NO_THROW(Correction({fit}));
  const auto refused = [](const CorrectionFit& bad, const std::string& words) {
    try {
      Correction correction({bad});
      ADD_FAILURE() << "expected an error: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  // Eigenvalues 1 and 1 -+ 0.9 sqrt(2): the smallest, -0.27, is more than the prior of 0.1 compensates for.
  CorrectionFit bad = fit;
  bad.information = {1, 0.9, 1, 0, 0.9, 1};
  refused(bad, "expected observations for the sums of llm forward, found none");
  bad = fit;
  bad.information.pop_back();
  refused(bad, "expected sums of 3 columns of llm forward, found 5 elements of information, 3 of moment");
  for (auto* sums : {&bad.moment, &bad.rise, &bad.fall}) {
    bad = fit;
    sums->push_back(0);
    refused(bad, "expected sums of 3 columns");
  }
}

TEST(Correction, RejectsInvalidTimes) {
  Correction correction;
  const auto refused = [&](CorrectionRow row) {
    EXPECT_THROW(correction.learn(std::vector<CorrectionRow>{row}), Error);
  };
  refused({kKind, kOp, -1, 1, 1, {}});
  refused({kKind, kOp, 1, std::numeric_limits<double>::quiet_NaN(), 1, {}});
  refused({kKind, kOp, 1, 1, 0, {}});
  EXPECT_FALSE(correction.knows(kKind, kOp));
}

TEST(ShapeBucket, SixteenthsOfAnOctaveAndHalvesOfTheLength) {
  // 16 log2(1000) = 159.45. In the LLM the length equals the tokens: 2 log2(1000) = 19.93.
  EXPECT_EQ(bucket_of(false, {1, 1000, 1000 * 1000}), (ShapeBucket{false, 159, 19}));
  // 10 tiles of 729: 16 log2(7290) = 205.31, 2 log2(729) = 19.02.
  EXPECT_EQ(bucket_of(true, {10, 7290, 10 * 729 * 729}), (ShapeBucket{true, 205, 19}));
  EXPECT_EQ(bucket_of(true, {1, 1, 1}), (ShapeBucket{true, 0, 0}));
  Sample text;
  text.llm_tokens = 1000;
  EXPECT_TRUE(buckets_of(StageKind::encoder, text).empty());
  EXPECT_EQ(buckets_of(StageKind::both, text), (std::vector<ShapeBucket>{{false, 159, 19}}));
  text.encoder_sequences = {{10, 729, 729 * 729}};
  EXPECT_EQ(buckets_of(StageKind::both, text), (std::vector<ShapeBucket>{{true, 205, 19}, {false, 159, 19}}));
  EXPECT_EQ(buckets_of(StageKind::llm, text), (std::vector<ShapeBucket>{{false, 159, 19}}));
}

}  // namespace correction_test
}  // namespace dflop
