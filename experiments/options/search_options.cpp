#include "experiments/options/search_options.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/refuse.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/plan_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/studies/planning.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

const std::vector<const char*>& search_only_options() {
  static const std::vector<const char*> names = {
      "plan-objective", "layout",     "no-shared",  "budget",      "seed-plans", "tp", "pp", "dp",
      "encoder-tp",     "encoder-pp", "encoder-dp", "microbatches"};
  return names;
}

SearchOptions read_search_options(const Values& values) {
  SearchOptions options;
  options.objective = read_named<PlanObjective>(values, "plan-objective");
  if (values.count("layout") > 0) options.layouts = {read_named<Layout>(values, "layout")};
  options.shared = !is_set(values, "no-shared") && !(asks_for_parts(values) && options.layouts.empty());
  if (is_set(values, "no-shared") && options.layouts == std::vector{Layout::shared})
    refuse_option("no-shared", "cannot be combined with '--layout shared'");
  if (values.count("budget") > 0) options.budget = read_integer(values, "budget", 1, INT64_MAX);
  options.respect_memory = read_respect_memory(values).value_or(options.respect_memory);
  const PlanOptions fixed = read_plan_options(values, true);
  if (traits(fixed.order).spreads_encoder) {
    if (!may_be(options.layouts, Layout::colocated))
      refuse_option("layout", fmt::format("'{}' needs a colocated plan, found '{}'", to_string(fixed.order),
                                          to_string(options.layouts.front())));
    options.layouts = {Layout::colocated};
  }
  if (is_fixed(values, "pipeline-schedule")) options.orders = {fixed.order};
  if (is_fixed(values, "recompute")) options.recomputations = {fixed.recomputation};
  if (is_fixed(values, "placement")) options.placements = {fixed.placement};
  if (is_fixed(values, "gradient-bucket")) options.gradient_buckets = {fixed.gradient_bucket};
  return options;
}

void read_padding(const Values& values, const ModelSpec& model, SearchOptions& search) {
  if (!is_set(values, "no-padded-heads")) return;
  search.can_split = [of = search.can_split, model](int encoder_tp, int llm_tp) {
    return divides_heads(model.encoder, encoder_tp) && divides_heads(model.llm, llm_tp) &&
           (!model.second || divides_heads(model.second->encoder, encoder_tp)) &&
           (!of || of(encoder_tp, llm_tp));
  };
}

std::vector<Plan> read_seed_plans(const Values& values, const Target& target, int gbs) {
  std::vector<Plan> seeds;
  for (const std::string& file : read_texts(values, "seed-plans")) {
    Plan plan = parse_plan(read_text_file(file), file);
    if (plan.model != target.model.name) {
      refuse_input(file, "expected a plan for '{}', found one for '{}'", target.model.name, plan.model);
    }
    plan.planner = kGivenSeed;  // regardless of who made it: the search runs all planners itself
    plan.cluster = target.cluster.name;
    plan.gbs = gbs;
    try {
      validate(plan, target.model, target.cluster, file);
      seeds.push_back(std::move(plan));
    } catch (const Error& error) {
      say("dflop: note: seed plan ignored: {}\n", error.what());
    }
  }
  return seeds;
}

}  // namespace dflop
