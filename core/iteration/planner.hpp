// A Planner chooses a Plan for a model, a cluster and the data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/iteration/iteration.hpp"
#include "core/iteration/plan_wish.hpp"
#include "core/plan.hpp"

namespace dflop {

/// A Batch has the samples of one iteration.
using Batch = std::vector<Sample>;

/// A PlanObjective says how the durations of a plan's iterations are summarized in one number.
enum class PlanObjective : std::uint8_t {
  mean,
  p95,   ///< nearest rank
  cvar,  ///< mean of the slowest quarter, at least one iteration
};

template <>
inline constexpr NameTable<PlanObjective, 3> kNames<PlanObjective> = {
    {{PlanObjective::mean, "mean"}, {PlanObjective::p95, "p95"}, {PlanObjective::cvar, "cvar"}}};

/// Returns the objective of a plan whose iterations took these durations.
/// @pre there is at least one
Seconds objective_value(PlanObjective objective, std::span<const Seconds> iterations);

/// Marks a seed plan supplied by the user. The search never returns a worse plan.
inline constexpr const char* kGivenSeed = "seed";

/// SearchOptions say which choices planners have in addition to tp, pp, dp and microbatches, and how they
/// search. An empty list permits everything that a planner knows; a list of one fixes the choice.
struct SearchOptions {
  std::vector<Layout> layouts;
  /// If `layouts` is empty, shared plans are permitted only if this is true. Live training sets it to false,
  /// because it shares GPUs only on request.
  bool shared = true;
  std::vector<OrderKind> orders;
  std::vector<Recomputation> recomputations;
  std::vector<RankOrder> placements;
  std::vector<Bytes> gradient_buckets;
  PlanWish wish = {};  ///< fixed numbers; only searches read it
  /// A search, or a planner of uniform plans, chooses only pairs of tp for encoder and LLM for which this
  /// returns true. Null: it may choose any pair.
  std::function<bool(int encoder_tp, int llm_tp)> can_split = {};
  PlanObjective objective = PlanObjective::mean;
  /// This scheduler makes the final microbatches of the best plans, within memory.
  std::string scheduler = "auto";
  std::int64_t budget = 0;  ///< instructions to simulate, not counting seeds; 0: the planner's own budget
  /// The search ends after this time; its result then depends on the machine.
  std::optional<Seconds> time_limit = {};
  int listed = 10;  ///< max plans in PlanResult::best
  /// Schedulers keep the plans of a search within memory; otherwise they may exceed it.
  bool respect_memory = true;
  /// A search tries these plans of other planners first, if they are in its search space. It does not run the
  /// planners that made them.
  std::vector<Plan> seeds = {};
};

/// Returns whether a list of SearchOptions permits a value.
template <typename T>
bool may_be(const std::vector<T>& list, const T& value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

/// A chosen plan must fit all batches of PlanRequest::further. A search checks each good plan with this many
/// of the hardest batches, and the plan that it returns with all of them.
inline constexpr std::size_t kHardestBatches = 16;
inline std::span<const Batch> hardest(std::span<const Batch> further) {
  return further.first(std::min(further.size(), kHardestBatches));
}

struct PlanRequest : Problem {
  const Executor& executor;
  int gbs = 0;
  std::span<const Sample> profile;  ///< drawn from the data, for objectives that are means over the data
  std::span<const Batch> batches;   ///< whole iterations, on which candidates are run
  std::uint64_t seed = 0;
  PlanOptions options;
  /// The planner calls this from time to time with done and total, from several threads but never
  /// concurrently. May be empty.
  std::function<void(std::int64_t, std::int64_t)> progress;
  SearchOptions search = {};
  /// A planner that proves bounds calls this whenever its best objective or its bound improves. Arguments:
  /// the best objective and, once known, the lower bound over all plans that it may choose. May be empty.
  std::function<void(Seconds, std::optional<Seconds>)> improved = {};
  /// These are further batches of the data, the hardest to fit first, on which no plan is timed. Planners
  /// that run plans choose one that also fits these batches, because a run would otherwise run out of memory
  /// when it reaches them.
  std::span<const Batch> further = {};
};

/// RankShares divide the time of the mean rank into parts that add up to the duration of the iteration.
struct RankShares {
  Seconds busy{0};
  Seconds imbalance{0};      ///< compute of the busiest rank minus compute of the mean rank
  Seconds bubble{0};         ///< other idle time with nothing in flight
  Seconds communication{0};  ///< idle time while an awaited message or collective is in flight

  RankShares& operator+=(const RankShares& other) {
    busy += other.busy;
    imbalance += other.imbalance;
    bubble += other.bubble;
    communication += other.communication;
    return *this;
  }
  RankShares operator/(double count) const {
    return {busy / count, imbalance / count, bubble / count, communication / count};
  }
};

/// Returns the RankShares of one iteration.
RankShares rank_shares(const Timeline& timeline);

/// A RankedPlan is one of the best plans among those that a search has simulated.
struct RankedPlan {
  Plan plan;
  /// This is the requested scheduler, or "lpt" or "random" if its microbatches do not fit or are no better.
  std::string scheduler;
  std::optional<std::int64_t> steps = {};  ///< steps of that scheduler; none: its default
  Seconds objective{0};
  std::optional<Seconds> lpt = {};  ///< the objective with scheduler lpt, if it was computed
  Seconds bound{0};                 ///< no assignment of the iterations' samples has a smaller objective
  Bytes peak_memory;
  RankShares shares;  ///< of the mean iteration
};

struct PlanResult {
  std::optional<Plan> plan;       ///< absent: nothing is feasible
  Seconds objective{0};           ///< defined by the planner; see its header
  std::string infeasible_reason;  ///< the constraint that fails, and by how much at best
  std::int64_t candidates = 0;    ///< configurations considered
  /// This bound is proven: no plan of the planner's search space that fits has a smaller objective, whatever
  /// the assignment of the iterations' samples. Absent if the planner or the cost model proves nothing.
  std::optional<Seconds> bound = {};
  bool exhausted = true;  ///< false: a budget or time limit ended the search
  /// The first entry is `plan`; the others follow in increasing order of objective. If another entry has a
  /// smaller objective than the first, it leaves less memory to spare for further batches.
  std::vector<RankedPlan> best = {};
  int seeds_outside = 0;  ///< seed plans that are outside the search space

  /// Returns (objective - bound) / bound, the proven gap; 0 if there is no bound.
  double gap() const { return bound && bound->count() > 0 ? (objective - *bound) / *bound : 0.0; }
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;

  /// Returns the best plan that it finds. The result does not depend on the number of threads.
  virtual PlanResult plan(const PlanRequest& request) const = 0;
};

}  // namespace dflop
