#include "solver/bins/exchange_kernel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/support/random.hpp"

namespace dflop {
namespace exchange_kernel_test {

struct RandomOffers {
  std::vector<float> encoder;
  std::vector<float> llm;
  std::vector<float> weight;

  RandomOffers(Random& random, int count) {
    for (int i = 0; i < count; ++i) {
      encoder.push_back(static_cast<float>(random.uniform()));
      llm.push_back(static_cast<float>(random.uniform()));
      weight.push_back(static_cast<float>(random.below(100)));
    }
    const std::size_t padded = (count + kLanes - 1) / kLanes * kLanes;
    encoder.resize(padded, kFar);
    llm.resize(padded, kFar);
    weight.resize(padded, 0);
  }
  Offers offers(int count) const { return {encoder.data(), llm.data(), {weight.data()}, count}; }
};

// Checks one exchange after the other, by the definition.
TEST(ExchangeKernel, FindsTheBestOfAll) {
  Random random(1);
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    const int nx = 1 + static_cast<int>(random.below(40));
    const int ny = 1 + static_cast<int>(random.below(40));
    const RandomOffers x(random, nx);
    const RandomOffers y(random, ny);
    ExchangeQuery q;
    q.x = x.offers(nx);
    q.y = y.offers(ny);
    q.encoder_x = static_cast<float>(4 * random.uniform());
    q.llm_x = static_cast<float>(4 * random.uniform());
    q.encoder_y = static_cast<float>(4 * random.uniform());
    q.llm_y = static_cast<float>(4 * random.uniform());
    q.caps = static_cast<int>(random.below(2));
    q.least[0] = -static_cast<float>(random.below(30));
    q.most[0] = static_cast<float>(random.below(30));
    const float below = std::max({q.encoder_x, q.llm_x, q.encoder_y, q.llm_y});
    Exchange expected{below};
    for (int i = 0; i < nx; ++i) {
      for (int j = 0; j < ny; ++j) {
        const float change = y.weight[j] - x.weight[i];
        if (q.caps == 1 && (change < q.least[0] || change > q.most[0])) continue;
        const float load =
            std::max({(q.encoder_x - x.encoder[i]) + y.encoder[j], (q.llm_x - x.llm[i]) + y.llm[j],
                      (q.encoder_y + x.encoder[i]) - y.encoder[j], (q.llm_y + x.llm[i]) - y.llm[j]});
        if (load < expected.load) expected = {load, i, j};
      }
    }
    Exchange best{below};
    EXPECT_EQ(best_exchange(q, best), expected.x >= 0);
    EXPECT_EQ(best.load, expected.load);
    EXPECT_EQ(best.x, expected.x);
    EXPECT_EQ(best.y, expected.y);
    if (expected.x >= 0) ++found;
  }
  EXPECT_GT(found, 500);
  EXPECT_LT(found, 2000);
}

}  // namespace exchange_kernel_test
}  // namespace dflop
