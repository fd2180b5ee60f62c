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

/// A PlanObjective says which number stands for a plan's iterations.
enum class PlanObjective : std::uint8_t {
  mean,
  p95,   ///< nearest rank
  cvar,  ///< mean of the slowest quarter, of at least one
};

template <>
inline constexpr NameTable<PlanObjective, 3> kNames<PlanObjective> = {
    {{PlanObjective::mean, "mean"}, {PlanObjective::p95, "p95"}, {PlanObjective::cvar, "cvar"}}};

/// Returns the objective of a plan whose iterations took these durations.
/// @pre there is at least one
Seconds objective_value(PlanObjective objective, std::span<const Seconds> iterations);

/// A seed of this planner is the user's: the search is no worse than it is.
inline constexpr const char* kGivenSeed = "seed";

/// SearchOptions say what planners may choose from beside tp, pp, dp and microbatches, and how. An empty list
/// stands for everything that a planner knows; a list of one fixes it.
struct SearchOptions {
  std::vector<Layout> layouts;
  /// Shared plans are among the layouts that are open. What runs elsewhere than in a simulation may have
  /// none.
  bool shared = true;
  std::vector<OrderKind> orders;
  std::vector<Recomputation> recomputations;
  std::vector<RankOrder> placements;
  std::vector<Bytes> gradient_buckets;
  PlanWish wish = {};  ///< of a search
  /// Says whether a search, or a planner of uniform plans, may choose these tp of encoder and LLM; null: any
  /// may be.
  std::function<bool(int encoder_tp, int llm_tp)> can_split = {};
  PlanObjective objective = PlanObjective::mean;
  /// This scheduler makes the microbatches of the best plans in the end, within memory.
  std::string scheduler = "auto";
  std::int64_t budget = 0;  ///< instructions to simulate beside those of seeds; 0: the planner's own
  /// The search ends after this time; its result then depends on the machine.
  std::optional<Seconds> time_limit = {};
  int listed = 10;  ///< plans in PlanResult::best
  /// Schedulers keep the plans of a search within memory; else they may fill them as they like.
  bool respect_memory = true;
  /// A search looks at these plans of other planners first, where they are of its space. It asks planners
  /// that made none of them itself.
  std::vector<Plan> seeds = {};
};

/// Returns whether a list of SearchOptions leaves a value open.
template <typename T>
bool may_be(const std::vector<T>& list, const T& value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

/// A plan that is chosen fits all further batches. A search tries so many of the hardest on each good plan,
/// and all on the one that it returns.
inline constexpr std::size_t kHardestBatches = 16;
inline std::span<const Batch> hardest(std::span<const Batch> further) {
  return further.first(std::min(further.size(), kHardestBatches));
}

struct PlanRequest : Problem {
  const Executor& executor;
  int gbs = 0;
  std::span<const Sample> profile;  ///< sampled items, for objectives that are means over the data
  std::span<const Batch> batches;   ///< whole iterations, for candidates that are run
  std::uint64_t seed = 0;
  PlanOptions options;
  /// The planner calls this now and then with done and total, from several threads but never at once. It may
  /// be empty.
  std::function<void(std::int64_t, std::int64_t)> progress;
  SearchOptions search = {};
  /// A planner that proves bounds calls this with its best objective and, once it has one, the bound on all
  /// plans that it may choose, whenever one of them is better than before. It may be empty.
  std::function<void(Seconds, std::optional<Seconds>)> improved = {};
  /// Further batches of the data, on which no plan is timed, the hardest to fit first: planners that run
  /// plans choose one that fits them as well, as a run that meets them ends out of memory else.
  std::span<const Batch> further = {};
};

/// RankShares say where the time of the mean rank goes; together they are the iteration.
struct RankShares {
  Seconds busy{0};
  Seconds imbalance{0};      ///< what the mean rank computes less than the busiest
  Seconds bubble{0};         ///< other idle time with nothing in flight
  Seconds communication{0};  ///< idle while an awaited message or collective is in flight

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

/// Returns where the time of the mean rank of one iteration goes.
RankShares rank_shares(const Timeline& timeline);

/// A RankedPlan is one of the best plans that a search has run.
struct RankedPlan {
  Plan plan;
  /// The one asked for, or "lpt" or "random" where its microbatches do not fit or are no better.
  std::string scheduler;
  std::optional<std::int64_t> steps = {};  ///< of that scheduler; none: its own
  Seconds objective{0};
  std::optional<Seconds> lpt = {};  ///< the objective with lpt, by which all that have it can be compared
  Seconds bound{0};  ///< under no assignment of the iterations' samples is its objective smaller
  Bytes peak_memory;
  RankShares shares;  ///< of the mean iteration
};

struct PlanResult {
  std::optional<Plan> plan;       ///< absent: nothing is feasible
  Seconds objective{0};           ///< in the planner's own terms; see its header
  std::string infeasible_reason;  ///< which constraint fails, and by how much it is missed at best
  std::int64_t candidates = 0;    ///< configurations looked at
  /// This is proven: no plan of the planner's space that fits has a smaller objective, whatever the
  /// assignment of the iterations' samples. It is absent where the planner or the cost model proves nothing.
  std::optional<Seconds> bound = {};
  bool exhausted = true;  ///< false: a budget or time limit ended the search
  /// The plan, and after it others from the smallest objective on. One with a smaller objective than the plan
  /// fits further batches with less memory to spare.
  std::vector<RankedPlan> best = {};
  int seeds_outside = 0;  ///< plans that were given to start from and are none that the search may find

  /// Returns (objective - bound) / bound, which is proven; 0 without a bound.
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
