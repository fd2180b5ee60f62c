#include "solver/planners/planners.hpp"

#include <string>

#include "core/error.hpp"
#include "solver/planners/dflop/planner.hpp"
#include "solver/planners/search/planner.hpp"
#include "solver/planners/uniform/planner.hpp"

namespace dflop {
namespace {

template <UniformSplit split>
std::unique_ptr<Planner> make_uniform() {
  return std::make_unique<UniformPlanner>(split);
}

template <typename Kind>
std::unique_ptr<Planner> make() {
  return std::make_unique<Kind>();
}

constexpr PlannerKind kPlanners[] = {
    {.name = "search", .searches = true, .make = make<SearchPlanner>},
    {.name = "dflop", .make = make<DflopPlanner>},
    {.name = "megatron", .make = make_uniform<UniformSplit::encoder_first>},
    {.name = "pytorch", .make = make_uniform<UniformSplit::by_count>},
};

}  // namespace

const PlannerKind& find_planner(std::string_view name) {
  for (const PlannerKind& planner : kPlanners) {
    if (planner.name == name) return planner;
  }
  std::string known;
  for (const std::string_view other : planner_names()) {
    known += (known.empty() ? "" : ", ") + std::string(other);
  }
  throw Error(ErrorKind::usage, "unknown planner '" + std::string(name) + "', expected one of " + known);
}

std::vector<std::string_view> planner_names() {
  std::vector<std::string_view> names;
  for (const PlannerKind& planner : kPlanners) names.push_back(planner.name);
  return names;
}

}  // namespace dflop
