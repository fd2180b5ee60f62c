// Tests of combining several profiles into one.
#include "experiments/checks/runs/study.hpp"

#include <gtest/gtest.h>

#include "tests/traces/profile_fixtures.hpp"

namespace dflop {
namespace profile_median_test {

/// All times are the known profile's times multiplied by 1, 5 and 2. The middle value counts, whatever the
/// order.
TEST(MedianProfile, IsPointByPoint) {
  std::vector<ProfileTables> profiles;
  for (const double factor : {1.0, 5.0, 2.0}) {
    ProfileTables profile = fixtures::known_profile();
    for (UnitPoints& points : profile.tp[0].units) {
      for (ProfilePoint& p : points) p.forward_s *= factor;
    }
    for (ProfilePoint& p : profile.tp[0].of(ProfileUnit::patches)) p.host_s = p.forward_s / 2;
    profile.optimizer.s_per_unit *= factor;
    profile.norm.start_s = factor;
    profile.all_reduce.at(4).start_s *= factor;
    profiles.push_back(profile);
  }
  const ProfileTables known = fixtures::known_profile();
  const ProfileTables result = median_profile(profiles);
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    for (std::size_t i = 0; i < known.tp[0].units[u].size(); ++i) {
      EXPECT_EQ(result.tp[0].units[u][i].forward_s, 2 * known.tp[0].units[u][i].forward_s);
      EXPECT_EQ(result.tp[0].units[u][i].backward_input_s, known.tp[0].units[u][i].backward_input_s);
    }
  }
  for (const ProfilePoint& p : result.tp[0].of(ProfileUnit::patches)) EXPECT_EQ(p.host_s, p.forward_s / 2);
  EXPECT_EQ(result.norm.start_s, 2);
  EXPECT_EQ(result.optimizer.s_per_unit, 2 * known.optimizer.s_per_unit);
  EXPECT_EQ(result.all_reduce.at(4).start_s, 2 * known.all_reduce.at(4).start_s);
  EXPECT_EQ(median_profile({known}), known);
}

/// A budget may have ended before the largest point.
TEST(MedianProfile, HasThePointsThatAllProfilesShare) {
  ProfileTables shorter = fixtures::known_profile();
  shorter.tp[0].of(ProfileUnit::head).pop_back();
  const ProfileTables result = median_profile({fixtures::known_profile(), shorter});
  EXPECT_EQ(result.tp[0].of(ProfileUnit::head), shorter.tp[0].of(ProfileUnit::head));
  EXPECT_EQ(result.tp[0].of(ProfileUnit::patches).size(), 3U);
}

}  // namespace profile_median_test
}  // namespace dflop
