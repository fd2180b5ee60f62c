// The global batches of a run.
#include "experiments/studies/study.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/support/random.hpp"

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

/// Whatever the batches are, each pass over the samples has each of them once.
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

/// A run that goes on has the batches that it would have had.
TEST(BatchStream, SkippingIsDrawing) {
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

TEST(BatchStream, ACopyGoesOnByItself) {
  BatchStream first(samples(100), 10, 3);
  first.skip(4);
  BatchStream second = first;
  const std::vector<std::string> drawn = draw(first, 10);
  EXPECT_EQ(draw(second, 10), drawn);
  BatchStream other(samples(100), 10, 4);
  other.skip(4);
  EXPECT_NE(draw(other, 10), drawn) << "another seed";
}

}  // namespace batch_stream_test
}  // namespace dflop
