// ModuleChoices are the parallelisms that a planner considers for one module of a disaggregated plan.
// ModuleDurations are the durations of the module's microbatches: coarse ones for all choices at once, and
// exact ones on request.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/sample.hpp"

namespace dflop {

enum class Module : std::uint8_t { encoder, llm };

/// A ModulePipeline has the tp and pp of one module.
struct ModulePipeline {
  int tp = 1;
  int pp = 1;
  int kind = 0;  ///< index into ModuleChoices::kinds; pipelines of one kind have equal durations
};

/// A ModuleChoice is a pipeline with its dp.
struct ModuleChoice {
  int pipeline = 0;
  int dp = 1;
  int ranks = 1;
  Bytes model_state;  ///< max of any stage
};

struct ModuleChoices {
  /// For each kind of pipeline, these are the stages that can be the slowest. A stage is left out if another
  /// stage holds at least as much.
  std::vector<std::vector<Stage>> kinds;
  std::vector<ModulePipeline> pipelines;
  std::vector<ModuleChoice> choices;
};

/// Returns the plan of one module with its layers split as evenly as possible.
ModulePlan even_module(int layers, int tp, int pp, int dp);

/// Returns the choices for a module, sorted by tp, pp and dp: every tp that divides the GPUs of a node, every
/// pp with a layer for each stage, and every dp that leaves at least one GPU to the other module. The LLM's
/// dp is at most the global batch.
ModuleChoices module_choices(const PlanRequest& request, Module module);

/// A Bundle stands for several items. It has, for each module, the work that represents each of these items
/// in a lower bound.
struct Bundle {
  int items = 1;
  Workload encoder;
  Workload llm;
};

/// A BundleBy says what represents the items of a bundle: the mean of their work if costs are convex in it,
/// otherwise the min of each count.
enum class BundleBy : std::uint8_t { mean, least };

/// Returns one bundle for each item.
std::vector<Bundle> single_items(std::span<const Sample> items);

/// Bundles items that have work for the same modules. Each set of such items is halved `halvings` times at
/// the median of its tokens: encoder tokens first, then LLM tokens, and so on in turn.
std::vector<Bundle> bundle_items(std::span<const Sample> items, int halvings, BundleBy by);

/// Returns a module's work for gbs / shares copies of one sample: its share of a global batch that consists
/// of copies of this sample. Each count is rounded half up, and is at least one if the sample's count is not
/// 0.
Workload share_of_batch(const Workload& sample, int gbs, std::int64_t shares);

/// Returns a lower bound on share_of_batch() for the items of a bundle: no count exceeds the mean
/// (BundleBy::mean) or the min (BundleBy::least) over the items. For a bundle of one item it is
/// share_of_batch() itself.
Workload share_of_bundle(const Workload& work, int items, int gbs, std::int64_t shares);

/// Returns the time of forward and backward of `work` on the slowest of a module's stages.
Seconds slowest_stage(const CostModel& cost, std::span<const Stage> stages, const Work& work);

/// Returns slowest_stage() computed with CostModel::convex_floor().
/// @pre the cost model has convex_floor()
Seconds slowest_stage_floor(const CostModel& cost, std::span<const Stage> stages, const Work& work);

/// The share grid has all numbers that are at most four bits followed by zeros: 1, 2, ..., 16, 18, 20, ...,
/// 32, 36, ...
namespace share_grid {

inline constexpr int kSteps = 8;  // per octave

/// Returns the index of the first number in the share grid that is at least `shares`; 0 for 0.
constexpr int index_at_least(std::int64_t shares) {
  if (shares <= kSteps) return static_cast<int>(shares);
  const int zeros = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(shares - 1))) - 4;
  const std::int64_t step = std::int64_t{1} << zeros;
  return zeros * kSteps + static_cast<int>((shares + step - 1) >> zeros);
}

constexpr std::int64_t value(int index) {
  if (index <= kSteps) return index;
  const int zeros = (index - kSteps - 1) / kSteps;
  return std::int64_t{index - zeros * kSteps} << zeros;
}

}  // namespace share_grid

/// A RepeatedLoad is the work of one module that represents each of `items` items (Bundle).
struct RepeatedLoad {
  int items = 1;
  Workload work;

  bool operator==(const RepeatedLoad&) const = default;
};

/// A DurationTable has the durations of microbatches filled with copies of one load, for every kind of
/// pipeline of a module and every number of shares (microbatches * dp) into which the global batch is
/// divided. Equal loads share one entry.
class DurationTable {
 public:
  /// Returns the duration of one load on one kind of pipeline. It is called from several threads at once.
  using Duration = std::function<double(int kind, std::int64_t shares, const RepeatedLoad& load)>;

  struct Row {
    int kind = 0;
    std::int64_t shares = 0;
    std::vector<double> seconds{};  // per distinct load, in order of first occurrence
  };

  DurationTable(std::span<const RepeatedLoad> loads, Duration duration);

  /// Requests the durations of all loads. They are set after fill(); the reference stays valid.
  const Row& request(int kind, std::int64_t shares);

  /// Computes, in parallel, all requested durations.
  void fill();

  double at(const Row& row, std::size_t load) const { return row.seconds[entry_[load]]; }

 private:
  Duration duration_;
  std::vector<RepeatedLoad> loads_;  // distinct loads
  std::vector<std::size_t> entry_;   // per load, index into loads_
  std::unordered_map<std::uint64_t, Row> rows_;
  std::vector<Row*> unfilled_;
};

/// PlanningItems are the items of planning_items(), in bundles of three sizes.
struct PlanningItems {
  BundleBy by = BundleBy::mean;  ///< what represents the items of a bundle
  std::vector<Bundle> coarse;
  std::vector<Bundle> bundles;
  std::vector<Bundle> single;

  /// Uses BundleBy::mean if `cost` has a convex floor.
  PlanningItems(std::span<const Sample> items, const CostModel& cost);
};

class ModuleDurations {
 public:
  ModuleDurations(const PlanRequest& request, const PlanningItems& items, Module module);
  ModuleDurations(const ModuleDurations&) = delete;  // the duration tables call back into this object

  const ModuleChoices& all() const { return all_; }
  const ModulePipeline& pipeline(const ModuleChoice& choice) const { return all_.pipelines[choice.pipeline]; }

  /// Returns a lower bound, in seconds, on the sum over items of the duration of a microbatch filled with
  /// copies of the item, if the global batch has at most `microbatches` microbatches.
  double coarse_sum(const ModuleChoice& choice, int microbatches) const {
    return coarse_s_[pipeline(choice).kind]
                    [share_grid::index_at_least(std::int64_t{microbatches} * choice.dp)];
  }

  /// bundles() and single() return the tables of durations per bundle and per item.
  DurationTable& bundles() { return bundles_; }
  DurationTable& single() { return single_; }

 private:
  double duration(int kind, std::int64_t shares, const RepeatedLoad& load) const;
  DurationTable table(const std::vector<Bundle>& bundles);
  /// Sums the durations of all items at each number of the share grid. Sums do not increase with the number
  /// of shares.
  std::vector<std::vector<double>> coarse_sums(const std::vector<Bundle>& bundles) const;
  std::vector<RepeatedLoad> loads(const std::vector<Bundle>& bundles) const;

  const PlanRequest& request_;
  Module module_;
  BundleBy by_;
  ModuleChoices all_;
  /// These are sums of durations over items in seconds, per kind of pipeline and index on the share grid.
  /// Each is a lower bound on the sum for any number of shares after the previous grid number, up to its own.
  std::vector<std::vector<double>> coarse_s_;
  DurationTable bundles_;
  DurationTable single_;
};

}  // namespace dflop
