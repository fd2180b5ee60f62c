#include "solver/planners/search/cuts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "core/program/lowering.hpp"
#include "tests/solver/search_fixtures.hpp"

namespace dflop {
namespace search_cuts_test {

using testing::SmallSearch;

double largest_piece(const std::vector<double>& items, const std::vector<int>& counts) {
  double largest = 0;
  for (auto item = items.begin(); const int count : counts) {
    largest = std::max(largest, std::accumulate(item, item + count, 0.0));
    item += count;
  }
  return largest;
}

/// Every way to cut `items` into `parts` pieces of at least one.
std::vector<std::vector<int>> every_cut(int items, int parts) {
  if (parts == 1) return {{items}};
  std::vector<std::vector<int>> cuts;
  for (int first = 1; first <= items - (parts - 1); ++first) {
    for (std::vector<int> rest : every_cut(items - first, parts - 1)) {
      rest.insert(rest.begin(), first);
      cuts.push_back(std::move(rest));
    }
  }
  return cuts;
}

// Compares with all cuts. In half of the rounds pieces have a limited capacity, in the others they can hold
// all items.
TEST(SearchCuts, AreAsEvenAsCapacityAllows) {
  Random random(3);
  int none = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<double> items(1 + random.below(9));
    for (double& item : items) item = random.below(4) == 0 ? 0.0 : random.uniform();
    const int parts = 1 + static_cast<int>(random.below(items.size()));
    std::vector<int> room(parts, static_cast<int>(items.size()));
    if (round % 2 == 0) {
      for (int& of : room) of = 1 + static_cast<int>(random.below(items.size()));
    }
    const PieceFits fits = [&](int piece, int first, int last) { return last - first <= room[piece]; };
    double best = std::numeric_limits<double>::infinity();
    for (const std::vector<int>& cut : every_cut(static_cast<int>(items.size()), parts)) {
      if (std::ranges::equal(cut, room, std::ranges::less_equal()))
        best = std::min(best, largest_piece(items, cut));
    }
    const std::optional<std::vector<int>> found =
        round % 2 == 0 ? cut_evenly(items, parts, fits) : cut_evenly(items, parts);
    ASSERT_EQ(found.has_value(), best < std::numeric_limits<double>::infinity());
    none += found ? 0 : 1;
    if (!found) continue;
    ASSERT_EQ(std::accumulate(found->begin(), found->end(), 0), static_cast<int>(items.size()));
    EXPECT_GE(*std::ranges::min_element(*found), 1);
    EXPECT_TRUE(std::ranges::equal(*found, room, std::ranges::less_equal()));
    EXPECT_NEAR(largest_piece(items, *found), best, 1e-7);
  }
  EXPECT_GT(none, 10);
}

TEST(SearchCuts, HaveTheLargerPiecesLast) {
  EXPECT_EQ(cut_evenly({1, 1, 1, 1, 1, 1, 1}, 3), (std::vector<int>{1, 3, 3}));
}

// All cuts of all plans of a small space are valid and distinct, their number equals the count, and one is
// the plan's own. Plans one layer apart are the cuts whose layers differ by one in two neighboring stages.
TEST(SearchCuts, AreCountedAndListedWithTheirNeighbors) {
  const SmallSearch c(3, 4, 1, 4, 8, 1, 1);
  const PlanRequest request = c.request();
  const SearchSpace space(request);
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const auto drawn = testing::draw_plan(space, c.model, random);
    if (!drawn) continue;
    const Plan& plan = drawn->second;
    const std::vector<Plan> all = all_cuts(plan, c.model);
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), count_cuts(plan, c.model, 1'000'000));
    EXPECT_EQ(std::ranges::count(all, plan), 1);
    EXPECT_EQ(all.size() == 1, has_one_cut(plan, c.model));
    int apart = 0;
    std::set<std::vector<int>> different;
    for (const Plan& cut : all) {
      EXPECT_NO_THROW(validate(cut, c.model, c.cluster));
      std::vector<int> layers = cut.encoder.layers;
      layers.insert(layers.end(), cut.llm.layers.begin(), cut.llm.layers.end());
      different.insert(layers);
      const std::vector<Stage> ours = plan_stages(plan, c.model);
      const std::vector<Stage> its = plan_stages(cut, c.model);
      int changed = 0;
      std::size_t first = 0;
      for (std::size_t s = 0; s < ours.size(); ++s) {
        const auto count = [](const Stage& stage) { return stage.encoder_layers + stage.llm_layers; };
        if (count(ours[s]) == count(its[s])) continue;
        if (changed == 0) first = s;
        changed += std::abs(count(ours[s]) - count(its[s]));
        if (s > first + 1) changed = 100;  // not adjacent to the first
      }
      apart += changed == 2 ? 1 : 0;
    }
    EXPECT_EQ(different.size(), all.size());
    const std::vector<Plan> moved = moved_by_one_layer(plan, c.model);
    EXPECT_EQ(static_cast<int>(moved.size()), apart) << describe(plan);
    for (const Plan& one : moved) EXPECT_EQ(std::ranges::count(all, one), 1);
  }
}

// C(99, 49) is about 5e28.
TEST(SearchCuts, AreCountedUpToALimit) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.llm.pp = plan.encoder.pp = 50;
  EXPECT_EQ(count_cuts(plan, testing::small_model(40, 60), 33), 33);
  EXPECT_EQ(count_cuts(plan, testing::small_model(20, 30), 33), 1);
  EXPECT_EQ(count_cuts(plan, testing::small_model(20, 31), 33), 33);  // there are 50
  EXPECT_EQ(count_cuts(plan, testing::small_model(20, 31), 66), 50);
}

// Pieces equal the stages that lowering makes from the same cut.
TEST(SearchCuts, HaveTheStagesOfThePlan) {
  for (const bool architecture : {false, true}) {
    SmallSearch c(3, 5, 2, 2, 12, 1, 2);
    c.cost.arithmetic = 0.5;
    c.model.connector.widths = {8, 8};
    if (architecture) c.model.architecture.emplace();
    const PlanRequest request = c.request();
    Random random(7);
    for (const SpacePart part : {SpacePart::unshared, SpacePart::shared}) {
      const SearchSpace space(request, part);
      for (int round = 0; round < 100; ++round) {
        const auto drawn = testing::draw_plan(space, c.model, random);
        if (!drawn) continue;
        const std::vector<Stage> stages = plan_stages(drawn->second, c.model);
        for (const LayerChain& chain : layer_chains(drawn->second, c.model)) {
          for (int begin = 0, s = chain.first_stage; s < chain.first_stage + chain.pieces; ++s) {
            const int end = begin + stages[s].encoder_layers + stages[s].llm_layers;
            EXPECT_EQ(piece_stage(drawn->second, c.model, chain, begin, end), stages[s])
                << describe(drawn->second);
            begin = end;
          }
        }
      }
    }
  }
}

}  // namespace search_cuts_test
}  // namespace dflop
