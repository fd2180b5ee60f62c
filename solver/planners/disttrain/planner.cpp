#include "solver/planners/disttrain/planner.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/support/clock.hpp"
#include "solver/plan_problem/module_seconds.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/disttrain/split.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

constexpr int kMostTp = 8;

/// A SplitSearch finds the best rounded GPUs of one choice of tp, dp and microbatches.
struct SplitSearch {
  const PlanRequest& request;
  const std::vector<int>& encoder_dps;  ///< in increasing order
  GpuSplit split;
  int encoder_tp = 1;
  int llm_tp = 1;
  int llm_dp = 1;
  std::optional<DistTrainChoice> best = {};

  /// Considers the number of LLM stages below and above the best one that is not rounded. T is convex in the
  /// LLM's GPUs if the encoder has all others, so no other number is better unless the encoder's dp is
  /// rounded, too. For that case, also considers the dp below and above the encoder's best.
  void run() {
    const int gpus = request.cluster.gpus();
    const double encoder_gpus = split.best_encoder_gpus(gpus);
    const int replica = llm_tp * llm_dp;
    const int stages = static_cast<int>((gpus - encoder_gpus) / replica);
    for (const int pp : {stages, stages + 1}) {
      consider(largest_dp((gpus - std::clamp(pp, 1, most_pp()) * replica) / encoder_tp), pp);
    }
    const int below = largest_dp(static_cast<int>(encoder_gpus / encoder_tp));
    const auto above =
        std::ranges::find_if(encoder_dps, [&](int dp) { return dp > below && is_aligned(dp); });
    for (const int dp : {below, above == encoder_dps.end() ? 0 : *above}) {
      consider(dp, (gpus - dp * encoder_tp) / replica);
    }
  }

  int most_pp() const { return request.model.llm.layers; }

  /// Returns the largest encoder dp that is at most `most` and leaves the LLM's tp groups inside nodes; 0 if
  /// there is none.
  int largest_dp(int most) const {
    int largest = 0;
    for (const int dp : encoder_dps) {
      if (dp <= most && is_aligned(dp)) largest = dp;
    }
    return largest;
  }

  /// Returns whether the LLM's tp groups, which follow the encoder's ranks, start at multiples of their tp.
  bool is_aligned(int encoder_dp) const { return encoder_dp * encoder_tp % llm_tp == 0; }

  void consider(int encoder_dp, int pp) {
    pp = std::clamp(pp, 1, most_pp());
    const int encoder_gpus = encoder_dp * encoder_tp;
    const int llm_gpus = llm_tp * llm_dp * pp;
    if (encoder_dp == 0 || !is_aligned(encoder_dp) || encoder_gpus + llm_gpus > request.cluster.gpus())
      return;
    const double seconds = split.seconds(encoder_gpus, llm_gpus);
    if (best && best->seconds <= seconds) return;
    Plan plan = blank_plan(request, DistTrainPlanner().name());
    plan.layout = Layout::disaggregated;
    plan.encoder = {encoder_tp, 1, encoder_dp, {request.model.encoder.layers}};
    plan.llm = {llm_tp, pp, llm_dp, split_layers(request.model.llm.layers, pp)};
    plan.microbatches = split.microbatches;
    best = {std::move(plan), seconds};
  }
};

}  // namespace

std::vector<DistTrainChoice> disttrain_choices(const PlanRequest& request) {
  std::vector<int> tps;
  for (int tp = 1; tp <= std::min(kMostTp, request.cluster.gpus_per_node); tp *= 2) {
    if (request.cluster.gpus_per_node % tp == 0) tps.push_back(tp);
  }
  const std::vector<int> dps = divisors(request.gbs);
  std::vector<DistTrainChoice> choices;
  const auto add = [&](int encoder_tp, int llm_tp, int llm_dp, int microbatches, const GpuSplit& split) {
    const auto& can_split = request.search.can_split;
    if (can_split && !can_split(encoder_tp, llm_tp)) return;
    SplitSearch search{request, dps, split, encoder_tp, llm_tp, llm_dp};
    search.split.microbatches = microbatches;
    search.run();
    if (search.best) choices.push_back(std::move(*search.best));
  };
  for (const int samples : dps) {      // of a microbatch
    std::vector<ModuleSeconds> times;  // per tp
    for (const int tp : tps) times.push_back(mean_module_seconds(request, request.profile, tp, samples));
    for (std::size_t e = 0; e < tps.size(); ++e) {
      for (std::size_t l = 0; l < tps.size(); ++l) {
        for (const int dp : dps) {
          if (request.gbs / samples % dp != 0 || tps[l] * dp >= request.cluster.gpus()) continue;
          const double llm_s = times[l].llm;
          add(tps[e], tps[l], dp, request.gbs / samples / dp,
              {tps[e] * dp * times[e].encoder, tps[l] * dp * llm_s, llm_s});
        }
      }
    }
  }
  std::ranges::stable_sort(choices, {}, [](const DistTrainChoice& choice) {
    const Plan& plan = choice.plan;
    return std::tuple(choice.seconds, plan.encoder.tp, plan.llm.tp, plan.llm.dp, plan.microbatches);
  });
  return choices;
}

PlanResult DistTrainPlanner::plan(const PlanRequest& request) const {
  check_disaggregated_request(request, name());
  PlanResult result;
  result.infeasible_reason = reason_against_apart(request);
  if (!result.infeasible_reason.empty()) return result;
  const Stopwatch watch;
  const std::vector<DistTrainChoice> choices = disttrain_choices(request);
  result.candidates = static_cast<std::int64_t>(choices.size());
  const Bytes usable = request.cluster.gpu.usable_memory();
  const auto lpt = make_scheduler("lpt");
  ClosestMiss closest;
  for (const DistTrainChoice& choice : choices) {
    if (request.search.time_limit && watch.elapsed() >= *request.search.time_limit) {
      result.infeasible_reason = "the time limit ended the search for a plan";
      return result;
    }
    std::optional<Bytes> needed = largest_model_state(request, choice.plan);
    if (*needed <= usable)
      needed = overrun(request, choice.plan, request.batches, *lpt, request.seed, false, usable);
    if (needed) {
      closest.add(choice.plan, *needed);
      continue;
    }
    result.plan = choice.plan;
    result.objective = Seconds(choice.seconds);
    return result;
  }
  result.infeasible_reason = closest.reason(request.cluster);
  if (choices.empty()) {
    result.infeasible_reason =
        "no tp of 1, 2, 4 or 8 and no dp that divides the global batch leave GPUs to both modules";
  }
  return result;
}

}  // namespace dflop
