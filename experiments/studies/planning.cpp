#include "experiments/studies/planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

#include "experiments/cli/say.hpp"
#include "experiments/studies/batches.hpp"
#include "solver/planners/planners.hpp"
#include "solver/planners/trials/candidates.hpp"

namespace dflop {

std::string marked(const Plan& plan) {
  return describe(plan) + std::string(is_unconfirmed(plan.layout) ? kUnconfirmed : "");
}

bool divides_heads(const TransformerSpec& module, int tp) {
  if (module.layers == 0 || tp == 1) return true;
  const bool divides_kv = module.kv_heads < tp ? tp % module.kv_heads == 0 : module.kv_heads % tp == 0;
  return module.heads % tp == 0 && divides_kv;
}

namespace {

/// Discards a plan whose tp is not allowed. Only planners that check this themselves avoid such plans.
void refuse_split(const SearchOptions& search, PlanResult& result) {
  if (!search.can_split || !result.plan) return;
  const Plan& plan = *result.plan;
  if (search.can_split(plan.encoder.tp, plan.llm.tp)) return;
  result.infeasible_reason = fmt::format(
      "its plan {} has a tp over which the model can be split only with padding (--no-padded-heads)",
      describe(plan));
  result.best.clear();
  result.plan.reset();
}

}  // namespace

PlanResult make_plan(const std::string& planner, const PlanningInput& input) {
  constexpr double kWorthALine = 0.8;           // of the gap shown last
  constexpr double kWorthALineOfItsOwn = 0.97;  // of the objective shown last
  Seconds shown{std::numeric_limits<double>::max()};
  validate(input.options.trained, input.target.model);
  double shown_gap = std::numeric_limits<double>::max();
  Progress progress("planning " + planner);
  const std::vector<Batch> further = batches_to_fit(input.samples, input.gbs, input.seed);
  PlanRequest request{input.target.problem(),
                      input.target.executor,
                      input.gbs,
                      input.samples,
                      input.batches,
                      input.seed,
                      input.options,
                      [&](std::int64_t done, std::int64_t total) { progress.update(done, total); },
                      input.search,
                      [&](Seconds objective, std::optional<Seconds> bound) {
                        if (!bound && objective < kWorthALineOfItsOwn * shown) {
                          shown = objective;
                          progress.note(fmt::format("dflop: {}: best {:.3f} s", planner, objective.count()));
                        }
                        const double gap = bound ? (objective - *bound) / *bound : shown_gap;
                        if (gap > kWorthALine * shown_gap || !bound) return;
                        shown_gap = gap;
                        progress.note(fmt::format("dflop: {}: best {:.3f} s, bound {:.3f} s, gap {:.2f} %",
                                                  planner, objective.count(), bound->count(), 100 * gap));
                      },
                      further};
  const PlannerKind& kind = find_planner(planner);
  const std::unique_ptr<Planner> made = kind.make();
  const auto plan = [&] {
    return input.best_parts && kind.leaves_parts
               ? with_best_parts(*made, request, kind.plans_for_each_recomputation)
               : made->plan(request);
  };
  const auto start = std::chrono::steady_clock::now();
  PlanResult result = plan();
  if (!result.plan && result.candidates > 0) {
    request.further = {};  // a plan that does not fit some batch is better than none, if this is reported
    if (request.search.time_limit) {
      const Seconds left = *request.search.time_limit - Seconds(std::chrono::steady_clock::now() - start);
      request.search.time_limit = std::max(left, Seconds{0.1});
    }
    PlanResult of_batches = plan();
    const Sample& longest = *std::ranges::max_element(input.samples, {}, &Sample::llm_tokens);
    if (of_batches.plan) {
      progress.note(fmt::format(
          "dflop: note: {}: no plan was found that fits further batches with the longest sample, of {} "
          "LLM tokens (--max-tokens cuts it); the plan fits only the planned batches",
          planner, longest.llm_tokens));
    }
    result = std::move(of_batches);
  }
  const bool respects_memory = kind.searches && input.search.respect_memory;
  if (result.plan) result.plan->respect_memory = respects_memory;
  for (RankedPlan& ranked : result.best) ranked.plan.respect_memory = respects_memory;
  refuse_split(input.search, result);
  return result;
}

}  // namespace dflop
