// The global batches of a run.
#include "experiments/studies/batches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <cmath>
#include <numeric>

#include "core/support/random.hpp"
#include "experiments/presets/presets.hpp"

namespace dflop {
namespace batch_stream_test {

std::shared_ptr<const std::vector<Sample>> samples(std::size_t count) {
  std::vector<Sample> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i].id = std::to_string(i);
  return std::make_shared<const std::vector<Sample>>(std::move(all));
}

std::vector<std::string> ids(const Batch& batch) {
  std::vector<std::string> all;
  for (const Sample& sample : batch) all.push_back(sample.id);
  return all;
}

std::vector<std::string> draw(BatchStream& stream, int batches) {
  std::vector<std::string> all;
  for (int b = 0; b < batches; ++b) {
    for (const std::string& id : ids(stream.next())) all.push_back(id);
  }
  return all;
}

/// Whatever the batches are, each pass over the samples contains each sample once.
TEST(BatchStream, PassesHaveEachSampleOnce) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    const std::size_t count = 1 + random.below(20);
    const int gbs = static_cast<int>(1 + random.below(30));
    BatchStream stream(samples(count), gbs, random.bits());
    const std::vector<std::string> drawn = draw(stream, 20);
    ASSERT_EQ(drawn.size(), static_cast<std::size_t>(20 * gbs));
    for (std::size_t pass = 0; (pass + 1) * count <= drawn.size(); ++pass) {
      const auto begin = drawn.begin() + static_cast<std::ptrdiff_t>(pass * count);
      std::vector<std::string> each(begin, begin + static_cast<std::ptrdiff_t>(count));
      std::sort(each.begin(), each.end());
      EXPECT_EQ(std::unique(each.begin(), each.end()), each.end()) << "pass " << pass;
    }
  }
}

/// A resumed run has the same batches as an uninterrupted one.
TEST(BatchStream, SkippingEqualsDrawing) {
  Random random(8);
  for (int round = 0; round < 50; ++round) {
    BatchStream whole(samples(1 + random.below(20)), static_cast<int>(1 + random.below(30)), random.bits());
    BatchStream rest = whole;
    const int skipped = static_cast<int>(random.below(10));
    draw(whole, skipped);
    rest.skip(skipped);
    EXPECT_EQ(draw(rest, 5), draw(whole, 5));
  }
}

TEST(BatchStream, ACopyContinuesIndependently) {
  BatchStream first(samples(100), 10, 3);
  first.skip(4);
  BatchStream second = first;
  const std::vector<std::string> drawn = draw(first, 10);
  EXPECT_EQ(draw(second, 10), drawn);
  BatchStream other(samples(100), 10, 4);
  other.skip(4);
  EXPECT_NE(draw(other, 10), drawn) << "another seed";
}

/// Returns samples of text whose lengths have a heavy tail.
std::shared_ptr<const std::vector<Sample>> long_tailed(std::size_t count, Random& random) {
  std::vector<Sample> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i].id = std::to_string(i);
    all[i].llm_tokens = std::llround(std::min(1e5, 20 * std::pow(1 - random.uniform(), -1.5)));
  }
  return std::make_shared<const std::vector<Sample>>(std::move(all));
}

/// A DelayedCase is a stream with a delay and the same stream without it.
struct DelayedCase {
  std::size_t count;
  OutlierDelay delay;
  int gbs;
  BatchStream delayed;
  BatchStream plain;
};

DelayedCase delayed_case(Random& random) {
  const ModelSpec model = find_model("tiny-vlm");
  const std::size_t count = 1 + random.below(120);
  const OutlierDelay delay{static_cast<int>(2 + random.below(6)), static_cast<int>(1 + random.below(3)),
                           static_cast<int>(1 + random.below(3))};
  const int gbs = delay.microbatches * delay.dp + static_cast<int>(random.below(10));
  const auto all = long_tailed(count, random);
  const std::uint64_t seed = random.bits();
  return {count, delay, gbs, {all, gbs, seed, delay, model}, {all, gbs, seed}};
}

/// Within one pass, the drawn positions hold the same samples with and without a delay, so each sample comes
/// once per pass. It moves by fewer batches than a window.
TEST(BatchStream, DelayedPassesHaveEachSampleOnce) {
  Random random(9);
  std::int64_t moved = 0;
  for (int round = 0; round < 200; ++round) {
    DelayedCase c = delayed_case(random);
    const std::vector<std::string> drawn = draw(c.plain, 30);
    const std::vector<std::string> given = draw(c.delayed, 30);
    ASSERT_EQ(given.size(), drawn.size());
    for (std::size_t begin = 0; begin < drawn.size(); begin += c.count) {
      const std::size_t end = std::min(begin + c.count, drawn.size());
      for (std::size_t i = begin; i < end; ++i) {
        const auto pass_end = given.begin() + static_cast<std::ptrdiff_t>(end);
        const auto at = std::find(given.begin() + static_cast<std::ptrdiff_t>(begin), pass_end, drawn[i]);
        if (at == pass_end) {
          // A window that the last batch cuts off still holds the sample back.
          EXPECT_GT(i + static_cast<std::size_t>(c.delay.window * c.gbs), drawn.size());
          continue;
        }
        const auto gbs = static_cast<std::int64_t>(c.gbs);
        const std::int64_t distance = (at - given.begin()) / gbs - static_cast<std::int64_t>(i) / gbs;
        EXPECT_LT(std::abs(distance), c.delay.window);
        moved += distance != 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(moved, 1000) << "the cases show nothing";
}

/// However many batches a run has drawn when it ends, a resumed run has the rest.
TEST(BatchStream, SkippingEqualsDrawingWithADelay) {
  Random random(10);
  for (int round = 0; round < 100; ++round) {
    const DelayedCase c = delayed_case(random);
    BatchStream whole = c.delayed;
    const std::vector<std::string> all = draw(whole, 12);
    for (int skipped = 0; skipped < 12; ++skipped) {
      BatchStream rest = c.delayed;
      rest.skip(skipped);
      EXPECT_EQ(
          draw(rest, 12 - skipped),
          std::vector<std::string>(all.begin() + static_cast<std::ptrdiff_t>(skipped) * c.gbs, all.end()));
    }
  }
}

TEST(BatchStream, AWindowOfOneOrNoneChangesNothing) {
  Random random(11);
  const auto all = long_tailed(50, random);
  for (const int window : {0, 1}) {
    BatchStream plain(all, 12, 3);
    BatchStream delayed(all, 12, 3, {window, 2, 2}, find_model("tiny-vlm"));
    EXPECT_EQ(draw(delayed, 20), draw(plain, 20));
    EXPECT_EQ(delayed.delayed(), DelayCount{});
  }
}

/// Two of ten samples are far longer than the rest of two batches of four with two bins each. If both are in
/// the window, one batch has both and the other none.
TEST(BatchStream, LargestOfAPassShareABatch) {
  std::vector<Sample> ten(10);
  for (std::size_t i = 0; i < 10; ++i) {
    ten[i].id = std::to_string(i);
    ten[i].llm_tokens = i < 2 ? 5000 : 10;
  }
  const auto all = std::make_shared<const std::vector<Sample>>(ten);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    BatchStream plain(all, 4, seed);
    BatchStream delayed(all, 4, seed, {2, 1, 2}, find_model("tiny-vlm"));
    const std::vector<std::string> drawn = draw(plain, 2);
    if (std::ranges::count(drawn, "0") + std::ranges::count(drawn, "1") < 2) continue;
    const std::vector<std::string> first = ids(delayed.next());
    const auto large = std::ranges::count(first, "0") + std::ranges::count(first, "1");
    EXPECT_NE(large, 1) << seed;
  }
}

}  // namespace batch_stream_test
}  // namespace dflop
