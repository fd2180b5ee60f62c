#include "solver/schedulers/schedulers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/iteration/iteration.hpp"
#include "core/refuse.hpp"
#include "core/support/clock.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/bins/heuristics.hpp"
#include "solver/plan_problem/makespan.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/schedulers/command.hpp"

namespace dflop {
namespace {

/// A BatchProblem is a method's problem made from a batch, with everything that it refers to.
struct BatchProblem {
  SampleCosts costs;
  CapSet caps;
  std::vector<std::string> names;
  AssignmentProblem problem;

  BatchProblem(const ScheduleRequest& request, Objective objective)
      : costs(sample_costs(request.cost, request.plan, request.model, request.samples)),
        caps(token_caps(request)) {
    for (const Sample& sample : request.samples) names.push_back(sample.id);
    // In other layouts each dp rank encodes its own samples.
    const bool shared = objective != Objective::published && has_encoder_ranks(request.plan.layout);
    problem.bins = {.encoder_s = costs.encoder_s,
                    .llm_s = costs.llm_s,
                    .bins = request.plan.bins(),
                    .dp = request.plan.llm.dp,
                    .shared_encoder = shared,
                    .caps = caps.caps,
                    .names = names};
  }
  BatchProblem(const BatchProblem&) = delete;  // the problem refers to the members

  void set_caps(CapSet other) {
    caps = std::move(other);
    problem.bins.caps = caps.caps;
  }
};

/// A MemoryCheck computes the exact memory of one request's assignments, which caps only approximate.
class MemoryCheck {
 public:
  explicit MemoryCheck(const ScheduleRequest& request) : request_(request) {
    if (request.limits.memory && memory_needs_no_run(request.plan)) order_ = plan_order(request.plan);
  }

  /// Returns the peak memory of an assignment if it exceeds the request's memory; nullopt if the assignment
  /// fits, if there is none, or if memory is not checked.
  std::optional<MemoryPeak> overrun(std::span<const std::int32_t> bin) const {
    if (!request_.limits.memory || bin.empty()) return std::nullopt;
    const Bytes usable = *request_.limits.memory;
    const Plan& plan = request_.plan;
    const Assignment assignment{plan.microbatches, plan.llm.dp, {bin.begin(), bin.end()}};
    std::optional<PipelineOrder> own;
    if (!order_)
      own = order_for_batch(plan, request_.model, request_.cost, request_.samples, assignment,
                            request_.limits.memory_of_order());
    const MemoryPeak peak = memory_peak(plan, request_.model, request_.cost, request_.samples, assignment,
                                        order_ ? *order_ : *own);
    return usable < peak.bytes ? std::optional(peak) : std::nullopt;
  }

 private:
  const ScheduleRequest& request_;
  std::optional<PipelineOrder> order_;  // if it is the same for all assignments
};

/// Returns the objective of a method for a request.
Objective objective_of(const Method& method, const ScheduleRequest& request) {
  if (request.limits.objective) return *request.limits.objective;
  if (request.plan.objective && !method.keeps_objective) return *request.plan.objective;
  return method.objective;
}

/// Returns an error message about a method's microbatches that do not fit.
std::string needs(const Method& method, const MemoryPeak& peak, const ScheduleRequest& request) {
  return fmt::format("the microbatches of {} need {:.1f} GiB on rank {}, {:.1f} GiB are usable", method.name,
                     in_gib(peak.bytes), peak.rank, in_gib(*request.limits.memory));
}

/// Removes the proof from a solution that was found under memory caps. These caps are not part of the
/// request, and only approximate what fits.
void forget_proof_under_caps(const BinProblem& bins, AssignmentSolution& solution) {
  if (solution.bound_kind != BoundKind::integer_program) return;
  solution.bound = std::min(Seconds(lower_bound(bins)), solution.value);
  solution.bound_kind = BoundKind::simple;
  if (!solution.met() && solution.status == ScheduleStatus::optimal)
    solution.status = ScheduleStatus::heuristic;
}

/// A schedule within this fraction of its bound is good enough: times of a run vary more.
constexpr double kEnoughGap = 1e-3;
/// A search takes at most this part of the iteration.
constexpr double kPartOfIteration = 0.1;

/// Caps are lowered at most this many times for an assignment that needs too much memory.
constexpr int kMaxRepairs = 3;

class AssignmentScheduler final : public Scheduler {
 public:
  AssignmentScheduler(const Method& method, const SchedulerOptions& options)
      : method_(method), options_(options) {}
  std::string_view name() const override { return method_.name; }

  ScheduleResult schedule(const ScheduleRequest& request) const override {
    require_enough_samples(request.samples.size(), request.plan);
    const Objective objective = objective_of(method_, request);
    BatchProblem batch(request, objective);
    std::optional<PlanMakespan> makespan;
    bool to_prove = false;  // after the search
    if (objective == Objective::makespan) {
      makespan.emplace(request);
      // Without a time limit, prove this batch, so that the same request has the same bound. With one, the
      // time is for the search, and known paths of the plan are enough.
      if (options_.prove && !request.limits.time_limit) makespan->prove();
      if (options_.prove && request.limits.time_limit) to_prove = !makespan->recall(request.plan, known_);
      makespan->describe(batch.problem);
    }
    const auto result = [&](const Solution& solution, std::span<const std::int32_t> bin) {
      ScheduleResult made{solution, {}, objective};
      if (!bin.empty())
        made.assignment = {request.plan.microbatches, request.plan.llm.dp, {bin.begin(), bin.end()}};
      return made;
    };
    SolveLimits limits{request.seed, budget(request.limits), request.limits.time_limit, request.stop};
    limits.stream = request.iteration;
    limits.bin_order = request.limits.bin_order;
    if (!request.limits.steps && !request.limits.node_budget && !request.limits.time_limit)
      limits.worth = SearchWorth{kEnoughGap, kPartOfIteration};
    const MemoryCheck memory(request);
    double least = std::numeric_limits<double>::infinity();
    if (request.improved) {
      limits.improved = [&](std::span<const std::int32_t> bin, double seconds) {
        if (seconds >= least || memory.overrun(bin)) return;  // a repair starts with worse assignments again
        least = seconds;
        request.improved(result({.value = Seconds(seconds), .bound_kind = BoundKind::none}, bin));
      };
    }
    AssignmentSolution solution = solve(request, batch, memory, limits);
    if (makespan && reads_tables(request.plan.order)) settle_order(request, batch, memory, limits, solution);
    ScheduleResult out = result(solution, solution.bin);
    if (to_prove && !solution.bin.empty() && !request.stop.stop_requested()) {
      makespan->prove();
      makespan->remember(request.plan, known_);
      const MakespanBound bound = makespan->bounds.bound(makespan->pipeline.features());
      out.bound = std::min(Seconds(bound.seconds), out.value);
      out.bound_kind = bound.kind;
    }
    return out;
  }

 private:
  /// If the order of steps depends on the assignment, sets a solution's value to its value in its own order.
  /// A search for the makespan has only used the order of LPT's assignment, so LPT's assignment is returned
  /// if it is faster.
  void settle_order(const ScheduleRequest& request, BatchProblem& batch, const MemoryCheck& memory,
                    SolveLimits limits, AssignmentSolution& solution) const {
    if (solution.bin.empty()) return;
    const Plan& plan = request.plan;
    const auto makespan_of = [&](const std::vector<std::int32_t>& bin) {
      const PipelineOrder order =
          order_for_batch(plan, request.model, request.cost, request.samples,
                          {plan.microbatches, plan.llm.dp, bin}, request.limits.memory_of_order());
      const PlanPipeline own = plan_pipeline(plan, request.model, request.cost, request.samples, order);
      AssignmentProblem problem = batch.problem;
      problem.pipeline = &own.pipeline;
      problem.features = own.features();
      return problem.objective(bin);
    };
    double least = makespan_of(solution.bin);
    if (method_.find_makespan != nullptr) {
      batch.set_caps(token_caps(request));
      limits.improved = nullptr;
      AssignmentSolution lpt = find_method("lpt").solve(batch.problem, limits);
      const double of_lpt = lpt.feasible() && !memory.overrun(lpt.bin) ? makespan_of(lpt.bin) : least;
      if (of_lpt < least) {
        least = of_lpt;
        solution.bin = std::move(lpt.bin);
      }
    }
    solution.value = Seconds(least);
    solution.bound = std::min(solution.bound, solution.value);
    if (!meets_bound(least, solution.bound.count()) && solution.status == ScheduleStatus::optimal)
      solution.status = ScheduleStatus::heuristic;
  }

  /// Solves within the request's memory, if there is a limit. Caps only approximate the limit, and may reject
  /// assignments that fit. So if LPT's assignment without memory caps fits, the method is also tried without
  /// them. If an assignment under caps needs too much memory, it is made again a few times with a lower cap
  /// on the rank that is too full. If that does not help, or no assignment obeys the caps, LPT's assignment
  /// without memory caps is used if it fits. A time limit applies to all of this together.
  AssignmentSolution solve(const ScheduleRequest& request, BatchProblem& batch, const MemoryCheck& memory,
                           SolveLimits limits) const {
    if (!request.limits.memory) return method_.solve(batch.problem, limits);
    const Stopwatch watch;
    const CapSet asked = token_caps(request);
    AssignmentSolution solution;
    std::optional<MemoryPeak> peak;
    const auto fits = [&](const Method& method, CapSet caps) {
      const bool has_more = caps.caps.size() > asked.caps.size();
      batch.set_caps(std::move(caps));
      if (limits.time) limits.time = std::max(*request.limits.time_limit - watch.elapsed(), Seconds(0));
      solution = method.solve(batch.problem, limits);
      if (has_more) forget_proof_under_caps(batch.problem.bins, solution);
      peak = memory.overrun(solution.bin);
      return solution.feasible() && !peak;
    };
    const Method& lpt = find_method("lpt");
    const bool lpt_fits = fits(lpt, asked);
    const std::optional<MemoryPeak> lpt_peak = peak;
    if (lpt_fits && (&method_ == &lpt || fits(method_, asked))) return solution;
    std::vector<Bytes> spare(plan_shape(request.plan).all_ranks());
    std::string reason;
    bool obeys_caps = false;
    for (int repair = 0; repair <= kMaxRepairs; ++repair) {
      if (fits(method_, plan_caps(request, spare))) return solution;
      if (repair == 0) {
        obeys_caps = peak.has_value();
        reason = peak ? needs(method_, *peak, request) : solution.reason;
      }
      if (!peak) break;
      spare[peak->pipeline_rank] += peak->bytes - *request.limits.memory;
    }
    if (!lpt_fits && fits(method_, asked)) return solution;
    // If one long sample is the problem, no cap helps. But in LPT's own order of bins, this sample is not
    // next to the other largest samples.
    const bool may_reorder = !lpt_fits && !request.limits.bin_order;
    if (may_reorder) limits.bin_order = BinOrder::solver;
    if ((lpt_fits || may_reorder) && fits(lpt, asked)) {
      solution.status = ScheduleStatus::fallback;
      solution.reason = std::move(reason);
      return solution;
    }
    if (lpt_peak && !obeys_caps) reason += "; " + needs(lpt, *lpt_peak, request);
    return {{.status = ScheduleStatus::infeasible, .reason = std::move(reason)}};
  }

  /// Returns the limit on the method's work, in its own unit; 0: the method decides.
  std::int64_t budget(const ScheduleLimits& limits) const {
    if (method_.budget != Budget::nodes) return limits.steps.value_or(0);
    return limits.node_budget ? std::max<std::int64_t>(*limits.node_budget, 1) : 0;
  }

  const Method& method_;
  SchedulerOptions options_;
  mutable KnownPaths known_;  // for the makespan's bounds
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options) {
  return std::make_unique<AssignmentScheduler>(find_method(name), options);
}

std::string_view filler_for(std::string_view name) {
  // A user's command may be slow, and may count the batches that it gets.
  const Method& method = find_method(name);
  return method.minimizes || name == kCommandMethod ? "lpt" : method.name;
}

std::vector<std::string_view> scheduler_names(std::optional<Budget> budget) {
  std::vector<std::string_view> names;
  for (const Method& method : methods()) {
    if (!budget || method.budget == *budget) names.push_back(method.name);
  }
  return names;
}

void require_enough_samples(std::size_t samples, const Plan& plan) {
  if (samples >= static_cast<std::size_t>(plan.bins())) return;
  refuse_input("", "global batch of {} samples cannot fill {} bins (dp {} x {} microbatches)", samples,
               plan.bins(), plan.llm.dp, plan.microbatches);
}

Assignment random_assignment(std::size_t samples, const Plan& plan, std::uint64_t seed,
                             std::uint64_t iteration) {
  require_enough_samples(samples, plan);
  const BinProblem problem{{}, {}, plan.bins(), plan.llm.dp};
  return {plan.microbatches, plan.llm.dp, place_in_order(problem, shuffled_items(samples, seed, iteration))};
}

}  // namespace dflop
