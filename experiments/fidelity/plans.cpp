#include "experiments/fidelity/plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "backend/model/parameter_list.hpp"
#include "core/error.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

Plan read_plan(const PlanGrid& grid, const std::string& path) {
  Plan plan = parse_plan(read_text_file(path), path);
  if (plan.model == grid.model && plan.cluster == grid.cluster) return plan;
  throw Error(ErrorKind::input,
              fmt::format("expected a plan for the grid's model '{}' on '{}', found one for '{}' on '{}'",
                          grid.model, grid.cluster, plan.model, plan.cluster),
              path);
}

/// More stages than layers leave some empty, which validate() refuses.
void give_layers(Plan& plan, const ModelSpec& model) {
  if (plan.layout == Layout::disaggregated) {
    plan.encoder.layers = split_layers(model.encoder.layers, plan.encoder.pp);
    plan.llm.layers = split_layers(model.llm.layers, plan.llm.pp);
    return;
  }
  int encoder_left = model.encoder.layers;
  for (const int layers : split_layers(model.encoder.layers + model.llm.layers, plan.llm.pp)) {
    const int encoder = std::min(layers, encoder_left);
    encoder_left -= encoder;
    plan.encoder.layers.push_back(encoder);
    plan.llm.layers.push_back(layers - encoder);
  }
}

}  // namespace

std::vector<NamedPlan> complete_plans(const PlanGrid& grid, const std::string& file, int gbs,
                                      const ModelSpec& model, const ClusterSpec& cluster) {
  require_live(model);
  std::vector<NamedPlan> plans;
  for (const GridPlan& from : grid.plans) {
    const std::string where = fmt::format("{}: plan '{}'", file, from.name);
    Plan plan = from.plan;
    if (from.file.empty()) {
      give_layers(plan, model);
    } else {
      plan = read_plan(grid, (std::filesystem::path(file).parent_path() / from.file).string());
    }
    plan.gbs = gbs;
    validate(plan, model, cluster, where);
    require_trainable(plan, model, where);
    plans.push_back({from.name, std::move(plan)});
  }
  return plans;
}

}  // namespace dflop
