#include "solver/planners/planners.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/support/did_you_mean.hpp"
#include "solver/planners/disttrain/planner.hpp"
#include "solver/planners/expected/planner.hpp"
#include "solver/planners/mimo/planner.hpp"
#include "solver/planners/published/planner.hpp"
#include "solver/planners/search/planner.hpp"
#include "solver/planners/uniform/planner.hpp"

namespace dflop {
namespace {

template <typename Kind, auto... arguments>
std::unique_ptr<Planner> make() {
  return std::make_unique<Kind>(arguments...);
}

constexpr PlannerKind kPlanners[] = {
    {.name = "search", .searches = true, .make = make<SearchPlanner>},
    {.name = "dflop", .leaves_parts = true, .make = make<PublishedPlanner, PublishedReading::released>},
    {.name = "dflop-paper", .leaves_parts = true, .make = make<PublishedPlanner, PublishedReading::printed>},
    {.name = "dflop-expected",
     .leaves_parts = true,
     .plans_for_each_recomputation = true,
     .make = make<ExpectedPlanner>},
    {.name = "megatron", .make = make<UniformPlanner, UniformSplit::encoder_first>},
    {.name = "megatron-default", .make = make<HandSetPlanner>},
    {.name = "pytorch", .make = make<UniformPlanner, UniformSplit::by_count>},
    {.name = "disttrain",
     .leaves_parts = true,
     .plans_for_each_recomputation = true,
     .make = make<DistTrainPlanner>},
    {.name = "megatron-mimo", .make = make<MimoPlanner>},
};

}  // namespace

const PlannerKind& find_planner(std::string_view name) {
  for (const PlannerKind& planner : kPlanners) {
    if (planner.name == name) return planner;
  }
  throw Error(ErrorKind::usage,
              fmt::format("unknown planner '{}', expected one of {}{}", name,
                          fmt::join(planner_names(), ", "), did_you_mean(name, planner_names())));
}

std::vector<std::string_view> planner_names() {
  std::vector<std::string_view> names;
  for (const PlannerKind& planner : kPlanners) names.push_back(planner.name);
  return names;
}

}  // namespace dflop
