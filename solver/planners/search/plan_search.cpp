#include "solver/planners/search/plan_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/support/clock.hpp"
#include "core/support/parallel.hpp"
#include "core/support/take_least.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/expected/planner.hpp"
#include "solver/planners/published/planner.hpp"
#include "solver/planners/search/bound.hpp"
#include "solver/planners/search/cuts.hpp"
#include "solver/planners/search/experience.hpp"
#include "solver/planners/search/families.hpp"
#include "solver/planners/search/finish.hpp"
#include "solver/planners/search/in_the_way.hpp"
#include "solver/planners/search/leaves.hpp"
#include "solver/planners/search/score.hpp"
#include "solver/planners/search/space.hpp"
#include "solver/planners/trials/candidates.hpp"
#include "solver/planners/uniform/planner.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kBudgetOfRace = 200'000;  // for the seeds on many GPUs
constexpr std::size_t kOpenedAtOnce = 32;        // families with the smallest estimates, per round
constexpr std::size_t kOpenedOfEach = 4;         // additional families of each layout and recomputation
constexpr std::size_t kRunAtOnce = 12;           // most promising plans, per round
constexpr std::size_t kRunOfEach = 2;            // additional plans of each layout and recomputation
constexpr std::size_t kRunForMemory = 4;         // additional plans with the least memory, until one fits
constexpr std::size_t kRunForProof = 6;          // additional plans with the smallest bounds
constexpr std::size_t kOpenedForProof = 1024;    // families with the smallest bounds
constexpr std::size_t kOpenedInAnyCase = 8;      // families, even if time is short
constexpr std::size_t kTriedInFull = 2;          // of each round's plans, and as many that probably fit
constexpr int kTriesInFull = 2;                  // if none of the first fits
constexpr std::size_t kCompletedAtOnce = 4;      // families whose other variants are made
constexpr std::size_t kFinalists = 4;            // of as many families, for the requested scheduler
// 1 / kPartOfBudgetToFinish of the budget is added for finishing more plans, and the same again for moving
// layers.
constexpr std::int64_t kPartOfBudgetToFinish = 2;
constexpr int kPartsOfBudget = 8;  // at most one for moving layers of a plan, and one for its variations
constexpr int kPatience = 5;       // factor on the limits while nothing fits
constexpr int kMaxRefits = 8;      // cuts of a group for less memory than those that did not fit
constexpr double kRoom = 0.99;     // of the memory that such a cut is made for
constexpr std::size_t kClimbedAtOnce = 2;  // plans whose layers are moved, per round
constexpr std::size_t kMovedInFull = 2;    // such plans, and variations, of which all iterations are run
constexpr std::size_t kVariedAtOnce = 1;   // plans that are varied, per round
constexpr double kWorthClimbing = 1.1;     // of the best objective

class PlanSearch {
 public:
  /// Plans that take `known_s` or longer are ignored.
  PlanSearch(const PlanRequest& request, SpacePart part, double known_s)
      : request_(request),
        part_(part),
        quiet_(request),
        space_(request, part),
        bounds_(request),
        families_(request, space_, bounds_, closest_),
        leaf_maker_(request, space_, bounds_),
        finisher_(request, bounds_),
        is_second_(part == SpacePart::shared && !looks_for_shared_alone(request)),
        budget_(is_second_ ? search_budget(request) / kBudgetOfShared + 1 : search_budget(request)),
        incumbent_s_(known_s) {
    quiet_.progress = [this](std::int64_t, std::int64_t) {
      if (request_.progress) request_.progress(spent_, budget_);
    };
    quiet_.improved = {};
  }

  PlanResult run() {
    if (families_.count() == 0 && space_.is_empty()) return result();
    TrialProgress progress(request_, budget_);
    for (const Plan& seed : request_.search.seeds) {
      const std::size_t before = seeds_.size();
      add_seed(seed);
      if (seed.planner != kGivenSeed) continue;
      if (seeds_.size() > before) given_.push_back(seeds_.back());
      if (!space_.allows(seed)) ++given_outside_;
    }
    add_seeds(planners_of_parts(), true);
    run_round(progress);  // its results end the trials of the baselines early
    add_seeds(baselines(), false);
    bool done = false;
    do done = !run_round(progress);
    while (!done && !ended());
    PlanResult found = result();
    found.exhausted = done;
    found.seeds_outside = given_outside_;
    if (!found.plan && (!done || found.bound)) {  // according to the bound, some may fit
      found.infeasible_reason = fmt::format("no plan that fits was found{}; of the plans examined, {}",
                                            done ? "" : " before the search ended", found.infeasible_reason);
    }
    return found;
  }

 private:
  /// Tells the request's callback about a better plan or bound.
  void tell_improvement() {
    if (!request_.improved || !bounds_.known() || !any_fits()) return;
    const std::pair now(incumbent_s_, open_bound());
    if (std::exchange(told_, now) != now) request_.improved(Seconds(now.first), Seconds(now.second));
  }

  /// Examines more families, runs more plans, and returns whether there were any.
  bool run_round(TrialProgress& progress) {
    const std::int64_t before = spent_;
    const bool fitted_before = any_fits();
    const std::size_t leaves = leaves_.size();
    const auto looked_at = families_.looked_at();
    open_families();
    run_first_iterations();
    run_all_iterations();
    climb_from_best();
    vary_best();
    if (!fitted_before) in_vain_ = spent_;
    progress.add(spent_ - before);
    tell_improvement();
    return spent_ != before || leaves != leaves_.size() || looked_at != families_.looked_at();
  }

  /// Adds the plans of other planners that are in the search space. So the search is never worse than these
  /// planners, and has a plan if one of them has. A plan given by the request replaces a planner's own. With
  /// `leave_parts`, on few GPUs, with_best_parts() chooses the settings that these planners do not choose.
  void add_seeds(const std::vector<std::unique_ptr<Planner>>& planners, bool leave_parts) {
    for (const std::unique_ptr<Planner>& planner : planners) {
      const auto given = std::ranges::find(request_.search.seeds, planner->name(), &Plan::planner);
      if (given != request_.search.seeds.end()) continue;
      if (request_.search.time_limit && ended()) return;
      if (request_.search.time_limit)
        quiet_.search.time_limit = std::max(*request_.search.time_limit - watch_.elapsed(), Seconds{0.1});
      const bool looks_for_parts = leave_parts && !many_gpus();
      const PlanResult found =
          looks_for_parts ? with_best_parts(*planner, quiet_, false) : planner->plan(quiet_);
      if (found.plan) add_seed(*found.plan);
    }
  }

  /// Returns the planners that choose separate parallelism for encoder and LLM, if their plans are in the
  /// search space.
  std::vector<std::unique_ptr<Planner>> planners_of_parts() const {
    std::vector<std::unique_ptr<Planner>> planners;
    if (!space_.has(Layout::disaggregated) || request_.profile.empty() || has_chunks(request_.options.order))
      return planners;
    planners.push_back(std::make_unique<PublishedPlanner>(PublishedReading::released));
    planners.push_back(std::make_unique<PublishedPlanner>(PublishedReading::printed));
    planners.push_back(std::make_unique<ExpectedPlanner>());
    return planners;
  }

  /// Returns the planners of uniform plans, if these are in the search space.
  std::vector<std::unique_ptr<Planner>> baselines() const {
    std::vector<std::unique_ptr<Planner>> planners;
    if (!space_.has(Layout::uniform)) return planners;
    const CandidateFilter promising = [this](std::vector<Plan>& candidates) { keep_promising(candidates); };
    planners.push_back(std::make_unique<UniformPlanner>(UniformSplit::by_count, promising));
    planners.push_back(std::make_unique<UniformPlanner>(UniformSplit::encoder_first, promising));
    if (!many_gpus()) planners.push_back(std::make_unique<HandSetPlanner>(promising));
    return planners;
  }

  bool many_gpus() const { return request_.cluster.gpus() > kManyGpus; }

  /// Removes plans that, with their current cut of layers, cannot be better than the best so far. On many
  /// GPUs it keeps only the plans with the smallest estimates, at least one. The search's own families cover
  /// plans whose chunks are cut more evenly.
  void keep_promising(std::vector<Plan>& candidates) const {
    struct Estimate {
      double seconds;
      std::size_t candidate;
      auto operator<=>(const Estimate&) const = default;
    };
    std::vector<Estimate> estimates(candidates.size());
    parallel_for(candidates.size(), [&](std::size_t c) {
      const Plan& plan = candidates[c];
      const PlanFloor floor = bounds_.plan_floor(plan);
      // Chunks shorten the pipeline's fill and drain, but not the time of the microbatches.
      const double steady = plan.microbatches / (plan.microbatches + plan.llm.pp - 1.0);
      const bool hopeless = floor.bound_s * steady >= incumbent_s_;
      estimates[c] = {hopeless ? std::numeric_limits<double>::max() : promise({plan, 0, 0, floor}), c};
    });
    std::ranges::sort(estimates);
    std::vector<Plan> kept;
    std::int64_t left = many_gpus() ? kBudgetOfRace : std::numeric_limits<std::int64_t>::max();
    for (const auto& [seconds, c] : estimates) {
      if (seconds == std::numeric_limits<double>::max()) break;
      const std::int64_t cost =
          instructions_of(candidates[c]) + instructions_of_buckets(candidates[c], request_.model);
      if (cost > left && !kept.empty()) continue;
      left -= cost;
      kept.push_back(std::move(candidates[c]));
    }
    candidates = std::move(kept);
  }

  /// Adds a plan of the search space; does nothing if it is outside, or already a seed.
  void add_seed(Plan plan) {
    if (!space_.allows(plan)) return;
    plan.planner = "search";
    plan.objective.reset();  // schedulers use their own objectives for plans that are tried
    if (std::ranges::any_of(seeds_, [&](std::size_t seed) { return leaves_[seed].plan == plan; })) return;
    PlanFloor floor = bounds_.plan_floor(plan);
    floor.estimate_s = 0;  // so that it is run first
    seeds_.push_back(leaves_.size());
    add_leaf_of_its_own({std::move(plan), 0, 0, floor});
  }

  /// Adds a leaf in a new family and group of its own.
  void add_leaf_of_its_own(Leaf leaf) {
    const Plan& plan = leaf.plan;
    leaf.family =
        families_.add({leaf.floor.bound_s, 0, 0, plan.recomputation, plan.microbatches, true, true});
    groups_.push_back({.family = leaf.family, .bound_s = leaf.floor.bound_s, .whole = true});
    leaf.group = groups_.size() - 1;
    add_leaf(std::move(leaf));
  }

  /// Makes the plainest plans of the families with the smallest estimates, and all plans of the families that
  /// did best or have the smallest bounds.
  void open_families() {
    add_leaves(families_.next_by_estimate(kOpenedAtOnce, kOpenedOfEach, incumbent_s_), true);
    std::vector<std::size_t> completed = best_families();
    const double least = std::min(settled_bound(groups_, leaves_), incumbent_s_);
    const std::vector<std::size_t> smallest = families_.next_by_bound(kOpenedForProof, least);
    completed.insert(completed.end(), smallest.begin(), smallest.end());
    std::sort(completed.begin(), completed.end());
    completed.erase(std::unique(completed.begin(), completed.end()), completed.end());
    std::erase_if(completed, [&](std::size_t f) { return families_[f].whole; });
    add_leaves(completed, true);
    add_leaves(completed, false);
  }

  /// Makes and bounds the groups of the plainest variants of families that are not begun, or of all others.
  void add_leaves(const std::vector<std::size_t>& families, bool plainest) {
    std::vector<std::vector<MadeGroup>> made(families.size());
    std::vector<char> left_out(families.size(), 0);
    parallel_for(families.size(), [&](std::size_t f) {
      const PlanFamily& family = families_[families[f]];
      if (plainest && family.begun) return;
      left_out[f] = f >= kOpenedInAnyCase && is_late();
      if (left_out[f]) return;
      const SearchShape& shape = space_.shapes()[family.shape];
      std::vector<SearchVariant> variants = space_.variants(shape, family.microbatches);
      if (variants.empty()) return;
      const auto first = variants.begin();
      plainest ? variants.erase(first + 1, variants.end()) : variants.erase(first);
      std::vector<Plan> plans;
      for (const SearchVariant& variant : variants) {
        if (auto plan = space_.plan(shape, family.recomputation, family.microbatches, variant))
          plans.push_back(*std::move(plan));
      }
      made[f] = leaf_maker_.groups_of(plans, families[f], family.bound_s);
    });
    for (const std::vector<MadeGroup>& of_family : made) {
      for (const MadeGroup& one : of_family) add_group(one);
    }
    for (std::size_t f = 0; f < families.size(); ++f) {
      PlanFamily& family = families_[families[f]];
      if (left_out[f]) {
        left_out_s_ = std::min(left_out_s_, family.bound_s);
      } else {
        (plainest ? family.begun : family.whole) = true;
      }
    }
  }

  void add_group(const MadeGroup& made) {
    groups_.push_back(made.group);
    for (Leaf leaf : made.leaves) {
      if (leaf.floor.memory > request_.cluster.gpu.usable_memory()) {
        closest_.add(leaf.plan, leaf.floor.memory);
      } else {
        leaf.group = groups_.size() - 1;
        add_leaf(std::move(leaf));
      }
    }
  }

  void add_leaf(Leaf leaf) {
    groups_[leaf.group].leaves.push_back(leaves_.size());
    leaves_.push_back(std::move(leaf));
  }

  /// Returns the leaf of a plan in a group; null if the group has none.
  const Leaf* find_leaf(const CutGroup& group, const Plan& plan) const {
    const auto found =
        std::ranges::find_if(group.leaves, [&](std::size_t i) { return leaves_[i].plan == plan; });
    return found == group.leaves.end() ? nullptr : &leaves_[*found];
  }

  /// Adds one more cut to a leaf's group, by bisection of the memory that cuts are made for. The cut is made
  /// for less memory than a cut that does not fit, and for more than a cut that fits or is too uneven to beat
  /// the best plan.
  void refit(std::size_t of) {
    constexpr double kMinGap = 0.01;  // min gap between limits, relative to the usable memory
    CutGroup& group = groups_[leaves_[of].group];
    if (group.whole || (leaves_[of].fits() && !group.has_overrun())) return;
    const double usable = static_cast<double>(request_.cluster.gpu.usable_memory().count);
    group.narrow_limits(leaves_[of], usable);
    const auto between = [&] { return (group.fitting_limit + group.overrun_limit) / 2; };
    double limit = between();
    if (group.fitting_limit == 0)
      limit = kRoom * group.overrun_limit * usable /
              std::max(usable, static_cast<double>(leaves_[of].floor.memory.count));
    while (group.refits < kMaxRefits && group.overrun_limit - group.fitting_limit > kMinGap * usable) {
      ++group.refits;
      const auto bytes = static_cast<std::int64_t>(limit);
      std::optional<Plan> plan = leaf_maker_.cut_within(leaves_[of].plan, Bytes{bytes}, false);
      const Leaf* known = plan ? find_leaf(group, *plan) : nullptr;
      bool is_large = known != nullptr && !known->fits();
      if (plan && known == nullptr) {
        Leaf leaf = leaf_maker_.leaf_of(*std::move(plan), group.family, families_[group.family].bound_s);
        leaf.group = leaves_[of].group;
        leaf.limit = limit;
        is_large = leaf.floor.memory > request_.cluster.gpu.usable_memory();
        if (!is_large && leaf.floor.bound_s < incumbent_s_) return add_leaf(std::move(leaf));
      }
      (is_large ? group.overrun_limit : group.fitting_limit) = limit;
      limit = group.fitting_limit > 0 ? between() : limit * kRoom;
    }
  }

  /// Moves layers of the best plans whose groups have cuts not yet made.
  void climb_from_best() {
    std::vector<std::size_t> open = leaves_that([&](const Leaf& leaf) {
      const CutGroup& group = groups_[leaf.group];
      if (group.whole && group.leaves.size() > 1) return false;  // all cuts are leaves
      return leaf.objective_s && !group.climbed && *leaf.objective_s < kWorthClimbing * incumbent_s_ &&
             !has_one_cut(leaf.plan, request_.model);
    });
    for (const std::size_t i :
         take_least(open, kClimbedAtOnce, [&](std::size_t i) { return *leaves_[i].objective_s; })) {
      if (std::exchange(groups_[leaves_[i].group].climbed, true)) continue;
      const std::int64_t most = spent_ + budget_ / kPartsOfBudget;
      for (std::optional<std::size_t> at = i; at && spent_ < most && !ended();) at = climb(*at);
    }
  }

  /// Runs the plans that differ from a leaf by one moved layer, and returns the one with the smallest
  /// objective if that is smaller than the leaf's. It runs all iterations only for moves that shorten the
  /// first iteration.
  std::optional<std::size_t> climb(std::size_t from) {
    const Leaf& start = leaves_[from];
    std::vector<Leaf> moved;
    for (Plan& plan : moved_by_one_layer(start.plan, request_.model)) {
      if (find_leaf(groups_[start.group], plan) != nullptr) continue;
      const PlanFloor floor = bounds_.plan_floor(plan);
      if (floor.memory <= request_.cluster.gpu.usable_memory() && floor.bound_s < *start.objective_s)
        moved.push_back({std::move(plan), start.family, start.group, floor});
    }
    run_shorter(moved, start.first_s());
    std::optional<std::size_t> best;
    double best_s = *start.objective_s;
    for (Leaf& leaf : moved) {
      if (leaf.objective_s && *leaf.objective_s < best_s) {
        best_s = *leaf.objective_s;
        best = leaves_.size();
      }
      add_leaf(std::move(leaf));
    }
    incumbent_s_ = std::min(incumbent_s_, best_s);
    return best;
  }

  /// Runs the first iteration of new leaves. Of those that are shorter than `first_s`, runs all iterations of
  /// the few shortest, and returns these.
  std::vector<std::size_t> run_shorter(std::vector<Leaf>& leaves, double first_s) {
    parallel_for(leaves.size(), [&](std::size_t k) { extend(leaves[k], 1); });
    std::vector<std::size_t> shorter;
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      spent_ += instructions_of(leaves[k].plan);
      if (leaves[k].fits() && leaves[k].first_s() < first_s) shorter.push_back(k);
    }
    shorter = take_least(shorter, kMovedInFull, [&](std::size_t k) { return leaves[k].first_s(); });
    complete_all(leaves, shorter);
    return shorter;
  }

  /// Runs variations of the best plans. A good plan's neighbors may be in families with poor estimates,
  /// because estimates ignore bubbles and slow links.
  void vary_best() {
    std::vector<std::size_t> open = leaves_that([&](const Leaf& leaf) {
      return leaf.objective_s && !leaf.varied && *leaf.objective_s < kWorthClimbing * incumbent_s_;
    });
    for (const std::size_t i :
         take_least(open, kVariedAtOnce, [&](std::size_t i) { return *leaves_[i].objective_s; })) {
      const std::int64_t most = spent_ + budget_ / kPartsOfBudget;
      for (std::optional<std::size_t> at = i; at && spent_ < most && !ended();) at = vary(*at);
    }
  }

  /// Runs a leaf's variations(), and returns the one with the smallest objective if that is smaller than the
  /// leaf's.
  std::optional<std::size_t> vary(std::size_t from) {
    if (std::exchange(leaves_[from].varied, true)) return {};
    std::vector<Leaf> others;
    for (Plan& plan : space_.variations(leaves_[from].plan)) {
      const PlanFloor floor = bounds_.plan_floor(plan);
      if (floor.memory > request_.cluster.gpu.usable_memory() || floor.bound_s >= *leaves_[from].objective_s)
        continue;
      const auto is_same = [&](const Plan& known) { return known == plan; };
      if (std::ranges::any_of(varied_, is_same)) continue;
      varied_.push_back(plan);
      others.push_back({std::move(plan), 0, 0, floor});
    }
    std::optional<std::size_t> best;
    double best_s = *leaves_[from].objective_s;
    for (const std::size_t k : run_shorter(others, leaves_[from].first_s())) {
      if (!others[k].objective_s) continue;
      if (*others[k].objective_s < best_s) {
        best_s = *others[k].objective_s;
        best = leaves_.size();
      }
      add_leaf_of_its_own(std::move(others[k]));
    }
    incumbent_s_ = std::min(incumbent_s_, best_s);
    return best;
  }

  /// Checks whether a leaf fits the hardest further batches, which needs no run, and runs all iterations. If
  /// the leaf would be the best so far, also checks all other further batches, because the best plan must fit
  /// in the end. Returns about the number of simulated instructions.
  std::int64_t complete(Leaf& leaf) const {
    const std::span<const Batch> hard = hardest(request_.further);
    const auto fits = [&](std::span<const Batch> further) {
      const std::optional<Bytes> needed = finisher_.overrun_of(leaf.plan, finisher_.lpt(), further);
      leaf.floor.memory = std::max(leaf.floor.memory, needed.value_or(Bytes{}));
      return leaf.score.fits = !needed;
    };
    if (!fits(hard)) return instructions_of(leaf.plan);
    const std::size_t known = leaf.score.iterations.size();
    extend(leaf, request_.batches.size());
    const Seconds objective = objective_value(request_.search.objective, leaf.score.iterations);
    const bool is_best = objective.count() < incumbent_s_;
    if (leaf.fits() && (!is_best || fits(request_.further.subspan(hard.size()))))
      leaf.objective_s = objective.count();
    return instructions_of(leaf.plan) * static_cast<std::int64_t>(request_.batches.size() - known);
  }

  void complete_all(std::vector<Leaf>& leaves, const std::vector<std::size_t>& which) {
    std::vector<std::int64_t> spent(which.size());
    parallel_for(which.size(), [&](std::size_t n) {
      if (n == 0 || !is_late()) spent[n] = complete(leaves[which[n]]);
    });
    spent_ = std::reduce(spent.begin(), spent.end(), spent_);
  }

  /// Returns the leaves for which a condition is true.
  template <typename Condition>
  std::vector<std::size_t> leaves_that(const Condition& holds) const {
    std::vector<std::size_t> leaves;
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (holds(leaves_[i])) leaves.push_back(i);
    }
    return leaves;
  }

  /// Returns the families that are not whole and whose plainest plan did best.
  std::vector<std::size_t> best_families() const {
    std::vector<std::size_t> open = leaves_that(
        [&](const Leaf& leaf) { return !leaf.score.iterations.empty() && !families_[leaf.family].whole; });
    std::vector<std::size_t> best = take_least(open, kCompletedAtOnce, [&](std::size_t i) {
      return std::pair(leaves_[i].first_s(), leaves_[i].family);
    });
    for (std::size_t& i : best) i = leaves_[i].family;
    return best;
  }

  double promise(const Leaf& leaf) const {
    return experience_.promise(leaf, request_.cluster.gpu.usable_memory());
  }

  /// Returns the most promising plans, overall and of each stratum, and those with the smallest bounds.
  std::vector<std::size_t> next_to_run() const {
    std::vector<std::size_t> waiting =
        leaves_that([&](const Leaf& leaf) { return !leaf.run() && leaf.floor.bound_s < incumbent_s_; });
    const auto promise_of = [&](std::size_t i) { return promise(leaves_[i]); };
    std::vector<std::size_t> next = take_least(waiting, kRunAtOnce, promise_of);
    if (!any_fits()) {
      const auto memory_of = [&](std::size_t i) {
        return std::pair(leaves_[i].floor.expected_memory, promise_of(i));
      };
      for (const std::size_t i : take_least(waiting, kRunForMemory, memory_of)) next.push_back(i);
    }
    std::array<std::vector<std::size_t>, kStrata> of_each;
    for (const std::size_t i : waiting) {
      of_each[stratum_of(leaves_[i].plan.layout, leaves_[i].plan.recomputation)].push_back(i);
    }
    std::vector<std::size_t> rest;
    for (std::vector<std::size_t>& stratum : of_each) {
      for (const std::size_t i : take_least(stratum, kRunOfEach, promise_of)) next.push_back(i);
      rest.insert(rest.end(), stratum.begin(), stratum.end());
    }
    const double known = settled_bound(groups_, leaves_);
    const auto bound_s = [&](std::size_t i) { return leaves_[i].floor.bound_s; };
    for (const std::size_t i : take_least(rest, kRunForProof, bound_s)) {
      if (bound_s(i) < known) next.push_back(i);
    }
    return next;
  }

  void run_first_iterations() {
    const std::vector<std::size_t> next = next_to_run();
    parallel_for(next.size(), [&](std::size_t n) {
      if (n == 0 || !is_late()) extend(leaves_[next[n]], 1);
    });
    for (const std::size_t i : next) {
      const Leaf& leaf = leaves_[i];
      if (!leaf.run()) continue;  // there was no time
      // A plan that does not fit is mostly recognized without a run.
      spent_ +=
          leaf.score.iterations.empty() ? instructions_of(leaf.plan) / 8 + 1 : instructions_of(leaf.plan);
      experience_.learn(leaf);
      if (!leaf.fits()) closest_.add(leaf.plan, leaf.floor.memory);
      if (!leaf.fits() || leaf.limit > 0) refit(i);
    }
  }

  /// Runs all iterations of the plans with the shortest first iteration. If none of these fits, continues
  /// with the next plans, because the first iteration may lack the longest samples.
  void run_all_iterations() {
    bool has_fitted = false;
    for (int tries = 0; tries < kTriesInFull && !has_fitted && (tries == 0 || !is_late()); ++tries) {
      const std::vector<std::size_t> best = next_in_full();
      complete_all(leaves_, best);
      for (const std::size_t i : best) {
        const Leaf& leaf = leaves_[i];
        has_fitted |= leaf.objective_s.has_value();
        incumbent_s_ = std::min(incumbent_s_, leaf.objective_s.value_or(incumbent_s_));
        if (leaf.fits()) continue;
        closest_.add(leaf.plan, leaf.floor.memory);
        experience_.learn(leaf);
        refit(i);
      }
    }
  }

  /// Returns a few plans with the shortest first iteration and, if some of these probably cannot hold the
  /// longest samples, a few that can.
  std::vector<std::size_t> next_in_full() const {
    std::vector<std::size_t> open = leaves_that([&](const Leaf& leaf) {
      return leaf.run() && leaf.fits() && !leaf.objective_s && leaf.floor.bound_s < incumbent_s_;
    });
    const auto first_s = [&](std::size_t i) { return leaves_[i].first_s(); };
    const auto is_large = [&](std::size_t i) {
      return leaves_[i].floor.hard_memory > request_.cluster.gpu.usable_memory();
    };
    std::vector<std::size_t> best = take_least(open, kTriedInFull, first_s);
    if (std::ranges::none_of(best, is_large)) return best;
    std::erase_if(open, [&](std::size_t i) { return is_large(i) || std::ranges::count(best, i) > 0; });
    for (const std::size_t i : take_least(open, kTriedInFull, first_s)) best.push_back(i);
    return best;
  }

  bool any_fits() const { return incumbent_s_ < std::numeric_limits<double>::max(); }

  /// Returns whether a limit ends the search. Until a plan fits, limits are kPatience times wider; the first
  /// plan that fits gets the whole budget.
  bool ended() const {
    const int wider = any_fits() ? 1 : kPatience;
    const std::int64_t spent = any_fits() ? spent_ - in_vain_ : spent_;
    if (spent / wider >= budget_) return true;
    return request_.search.time_limit && watch_.elapsed() >= wider * *request_.search.time_limit;
  }

  bool is_late() const { return request_.search.time_limit && ended(); }

  /// Returns the smallest bound of all plans except those known not to fit.
  double open_bound() const {
    return std::min({incumbent_s_, families_.open_bound(), left_out_s_, smallest_bound(groups_, leaves_)});
  }

  void extend(Leaf& leaf, std::size_t iterations) const {
    extend_score(leaf.score, request_, leaf.plan, finisher_.lpt(), iterations);
    leaf.floor.memory = std::max(leaf.floor.memory, leaf.score.peak_memory);
  }

  /// Runs all iterations of the user's seeds, even if the search ended before it reached them or preferred
  /// other plans, because the result must not be worse than the seeds.
  void run_given() {
    parallel_for(given_.size(), [&](std::size_t n) {
      Leaf& leaf = leaves_[given_[n]];
      if (!leaf.objective_s) complete(leaf);
    });
  }

  /// Finishes other plans that may become better than the best, as far as a part of the budget permits; in
  /// small problems, all of them. A scheduler that looks further than LPT removes part of the gap between a
  /// plan's time with LPT and its bound. Plans with the smallest expected time after that come first.
  void add_more_finalists(std::vector<RankedPlan>& best, const std::vector<std::size_t>& finished) const {
    constexpr double kRest = 0.4;  // fraction of this gap that usually remains
    if (best.empty()) return;
    const double best_s = std::ranges::min(best, {}, &RankedPlan::objective).objective.count();
    std::vector<std::size_t> open = leaves_that(
        [&](const Leaf& leaf) { return leaf.objective_s.has_value() && leaf.floor.bound_s < best_s; });
    std::set<std::size_t> families;
    for (const std::size_t i : finished) families.insert(leaves_[i].family);
    std::vector<std::size_t> more;
    std::int64_t left = budget_ / kPartOfBudgetToFinish;
    const auto hoped_for = [&](std::size_t i) {
      return leaves_[i].floor.bound_s + kRest * (*leaves_[i].objective_s - leaves_[i].floor.bound_s);
    };
    for (const std::size_t i : take_least(open, open.size(), hoped_for)) {
      if (!families.insert(leaves_[i].family).second) continue;
      left -= finisher_.instructions_to_finish(leaves_[i].plan);
      if (left < 0) break;
      more.push_back(i);
    }
    std::vector<RankedPlan> found(more.size());
    parallel_for(more.size(), [&](std::size_t n) {
      found[n] = is_late() ? finisher_.as_run(leaves_[more[n]]) : finisher_.finished(leaves_[more[n]]);
    });
    std::ranges::move(found, std::back_inserter(best));
  }

  /// Returns plans that may fit when the requested scheduler fills them. First come the seeds that were not
  /// run in all iterations. Then come the plans that do not fit with LPT's microbatches, in increasing order
  /// of bound, each followed by the plans that differ by one moved layer. A part of the budget limits their
  /// number.
  std::vector<Plan> close_misses(const std::vector<RankedPlan>& best) const {
    std::vector<Plan> misses;
    for (const std::size_t i : seeds_) {
      if (!leaves_[i].objective_s) misses.push_back(leaves_[i].plan);
    }
    if (!request_.search.respect_memory || !finisher_.looks_further_than_lpt()) return misses;
    const double best_s =
        best.empty() ? incumbent_s_ : std::ranges::min(best, {}, &RankedPlan::objective).objective.count();
    const Bytes usable = request_.cluster.gpu.usable_memory();
    std::vector<std::size_t> others = leaves_that([&](const Leaf& leaf) {
      return leaf.run() && !leaf.fits() && leaf.floor.bound_s < best_s &&
             leaf.floor.expected_memory <= usable;
    });
    std::int64_t left = budget_ / kPartsOfBudget;
    const auto add = [&](const Plan& plan) {
      const PlanFloor floor = bounds_.plan_floor(plan);
      if (floor.bound_s >= best_s || floor.expected_memory > usable || std::ranges::count(misses, plan) > 0)
        return;
      left -= finisher_.instructions_to_finish(plan);
      if (left >= 0) misses.push_back(plan);
    };
    const auto bound_s = [&](std::size_t i) { return leaves_[i].floor.bound_s; };
    for (const std::size_t i : take_least(others, others.size(), bound_s)) {
      if (left <= 0 || is_late()) break;
      add(leaves_[i].plan);
      for (const Plan& other : moved_by_one_layer(leaves_[i].plan, request_.model)) add(other);
    }
    return misses;
  }

  /// Adds the given plans for which `fill` finds microbatches that fit. The user's plans are always filled.
  template <typename Fill>
  void add_filled(std::vector<RankedPlan>& best, const std::vector<Plan>& plans, const Fill& fill) const {
    std::vector<std::optional<RankedPlan>> filled(plans.size());
    parallel_for(plans.size(), [&](std::size_t n) {
      const auto is_it = [&](std::size_t given) { return leaves_[given].plan == plans[n]; };
      if (!is_late() || std::ranges::any_of(given_, is_it)) filled[n] = fill(plans[n]);
    });
    for (std::optional<RankedPlan>& plan : filled) {
      if (plan) best.push_back(*std::move(plan));
    }
    std::ranges::stable_sort(best, {}, &RankedPlan::objective);
  }

  /// Moves layers of the best plan until no move improves it. Then does the same for the next plans, as far
  /// as a part of the budget permits.
  void move_layers(std::vector<RankedPlan>& best) const {
    std::int64_t left = budget_ / kPartOfBudgetToFinish;
    std::vector<RankedPlan> moved;
    for (std::size_t n = 0; n < best.size() && (n == 0 || left > 0); ++n) {
      auto better = finisher_.with_layers_moved_twice(
          best[n], [this] { return is_late(); }, left);
      if (better) moved.push_back(*std::move(better));
    }
    std::ranges::move(moved, std::back_inserter(best));
    std::ranges::stable_sort(best, {}, &RankedPlan::objective);
  }

  PlanResult result() {
    PlanResult result;
    result.candidates = space_.size();
    run_given();
    std::vector<std::size_t> complete =
        leaves_that([](const Leaf& leaf) { return leaf.objective_s.has_value(); });
    std::vector<std::size_t> finalists =
        take_least(complete, request_.search.listed, [&](std::size_t i) { return *leaves_[i].objective_s; });
    for (const std::size_t i : given_) {
      if (leaves_[i].objective_s && std::ranges::count(finalists, i) == 0) finalists.push_back(i);
    }
    // Variants of a family mostly differ too little to measure, so the best one represents all.
    std::set<std::size_t> families;
    std::vector<char> is_finalist;
    for (const std::size_t i : finalists) {
      const bool first = families.size() < kFinalists && families.insert(leaves_[i].family).second;
      is_finalist.push_back(first || std::ranges::count(given_, i) > 0);
    }
    result.best.resize(finalists.size());
    parallel_for(finalists.size(), [&](std::size_t n) {
      const Leaf& leaf = leaves_[finalists[n]];
      const bool is_finished = is_finalist[n] && (n == 0 || !is_late());
      result.best[n] = is_finished ? finisher_.finished(leaf) : finisher_.as_run(leaf);
    });
    std::vector<std::size_t> finished;
    for (std::size_t n = 0; n < finalists.size(); ++n) {
      if (is_finalist[n]) finished.push_back(finalists[n]);
    }
    add_more_finalists(result.best, finished);
    add_filled(result.best, close_misses(result.best),
               [&](const Plan& plan) { return finisher_.filled(plan); });
    move_layers(result.best);
    // The search may find the user's seeds again, and moves of layers may end in the same plan.
    std::vector<RankedPlan> once;
    for (RankedPlan& ranked : result.best) {
      const auto is_again = [&](const RankedPlan& other) {
        return other.plan == ranked.plan && other.scheduler == ranked.scheduler &&
               other.objective == ranked.objective;
      };
      if (std::ranges::none_of(once, is_again)) once.push_back(std::move(ranked));
    }
    result.best = std::move(once);
    finisher_.put_choice_first(result.best, [this] { return is_late(); });
    if (result.best.empty()) {
      std::vector<Plan> seeds;
      for (const std::size_t i : seeds_) seeds.push_back(leaves_[i].plan);
      add_filled(result.best, seeds, [&](const Plan& plan) { return finisher_.filled_at_random(plan); });
      finisher_.put_choice_first(result.best, [this] { return is_late(); });
    }
    if (result.best.size() > static_cast<std::size_t>(request_.search.listed))
      result.best.resize(request_.search.listed);
    if (result.best.empty()) {
      // This part may have a bound even without a plan. It may not have beaten a known plan of the other
      // part, and some of its plans may fit with cuts of layers or microbatches that were not tried.
      const double open_s = open_bound();
      const bool may_fit = open_s < std::numeric_limits<double>::max();
      if (bounds_.known() && may_fit) result.bound = Seconds(open_s);
      result.infeasible_reason = closest_.reason(request_.cluster);
      if (result.infeasible_reason.empty()) result.infeasible_reason = space_.empty_reason();
      if (!is_second_)
        result.infeasible_reason += in_the_way(quiet_, part_);  // joined() uses the first part's reason
      return result;
    }
    for (RankedPlan& ranked : result.best) ranked.plan.objective = Objective::makespan;
    result.plan = result.best.front().plan;
    result.objective = result.best.front().objective;
    if (bounds_.known()) result.bound = std::min(result.objective, Seconds(open_bound()));
    return result;
  }

  Stopwatch watch_;
  const PlanRequest& request_;
  SpacePart part_;
  PlanRequest quiet_;  ///< the same with the remaining time, for other planners, which report no improvements
  SearchSpace space_;
  SearchBounds bounds_;
  ClosestMiss closest_;
  PlanFamilies families_;
  LeafMaker leaf_maker_;
  PlanFinisher finisher_;
  bool is_second_;  ///< all other plans were searched before
  std::int64_t budget_;
  std::int64_t spent_ = 0;
  std::int64_t in_vain_ = 0;  ///< the part of spent_ before any plan fit
  std::vector<Leaf> leaves_;
  std::vector<CutGroup> groups_;
  std::vector<std::size_t> seeds_;  ///< indices into leaves_
  std::vector<Plan> varied_;        ///< all variations that vary_best() has run
  std::vector<std::size_t> given_;  ///< the user's seeds
  int given_outside_ = 0;
  PlanExperience experience_;
  double incumbent_s_;
  double left_out_s_ = std::numeric_limits<double>::max();  ///< smallest bound of families that came too late
  std::pair<double, double> told_;  ///< objective and bound of the last call of PlanRequest::improved
};

}  // namespace

PlanResult search_part(const PlanRequest& request, SpacePart part, double known_s) {
  return PlanSearch(request, part, known_s).run();
}

}  // namespace dflop
