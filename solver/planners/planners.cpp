#include "solver/planners/planners.hpp"

#include <string>

#include "core/error.hpp"
#include "solver/planners/dflop/planner.hpp"
#include "solver/planners/search/planner.hpp"
#include "solver/planners/uniform/planner.hpp"

namespace dflop {

std::unique_ptr<Planner> make_planner(std::string_view name) {
  if (name == "dflop") return std::make_unique<DflopPlanner>();
  if (name == "search") return std::make_unique<SearchPlanner>();
  if (name == "megatron") return std::make_unique<UniformPlanner>(UniformSplit::encoder_first);
  if (name == "pytorch") return std::make_unique<UniformPlanner>(UniformSplit::by_count);
  std::string known;
  for (const std::string_view other : planner_names())
    known += (known.empty() ? "" : ", ") + std::string(other);
  throw Error(ErrorKind::usage, "unknown planner '" + std::string(name) + "', expected one of " + known);
}

std::vector<std::string_view> planner_names() {
  return {"search", "dflop", "megatron", "pytorch"};
}

}  // namespace dflop
