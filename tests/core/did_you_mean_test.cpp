#include "core/support/did_you_mean.hpp"

#include <gtest/gtest.h>

namespace dflop {
namespace {

// Each input is one mistake away: an extra, missing or wrong letter, or two swapped letters.
TEST(DidYouMean, OffersNamesOneTypoAway) {
  for (const char* found : {"plaan", "pla", "plon", "paln"}) {
    EXPECT_EQ(did_you_mean(found, {"schedule", "plan", "simulate"}), "; did you mean 'plan'?") << found;
  }
}

// "a100" is one mistake away from "h100" and four from "a100-80g", but a typed prefix means the shortest name
// that begins with it.
TEST(DidYouMean, OffersTheShortestWithThePrefix) {
  EXPECT_EQ(did_you_mean("a100", {"a100-80g-vtrain", "a100-80g", "h100"}), "; did you mean 'a100-80g'?");
  EXPECT_EQ(did_you_mean("a1", {"a100-80g", "a2"}), "") << "two letters are too few";
}

// "compare" has 7 letters, so two mistakes lead to an offer and three do not.
TEST(DidYouMean, OffersNothingFarAway) {
  EXPECT_EQ(did_you_mean("cmopaer", {"compare"}), "; did you mean 'compare'?");
  EXPECT_EQ(did_you_mean("kumpere", {"compare"}), "");
  EXPECT_EQ(did_you_mean("x", {"h100", "compare"}), "");
  EXPECT_EQ(did_you_mean("", {"a"}), "");
  EXPECT_EQ(did_you_mean(std::string(100'000, 'a'), {std::string(50, 'a')}), "");
}

TEST(DidYouMean, OffersTheNearestAndOfEqualOnesTheFirst) {
  EXPECT_EQ(did_you_mean("llava-70b", {"llava-72b", "llava-70c", "llava-700b"}),
            "; did you mean 'llava-72b'?");
  EXPECT_EQ(did_you_mean("b1", {"a1", "b12", "b2"}), "");  // one mistake in two letters is more than a third
  EXPECT_EQ(did_you_mean("b10", {"a10", "b12"}), "; did you mean 'a10'?");
}

}  // namespace
}  // namespace dflop
