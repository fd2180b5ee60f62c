// What a planner knows of the microbatch durations of one module: coarsely all of it at once, exactly what it
// asks for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/dflop/coarse_durations.hpp"
#include "solver/planners/dflop/duration_table.hpp"
#include "solver/planners/dflop/item_bundles.hpp"
#include "solver/planners/dflop/module_choices.hpp"

namespace dflop {

/// The planning items at three resolutions.
struct PlanningItems {
  BundleBy by = BundleBy::mean;  ///< what stands for several items
  std::vector<Bundle> coarse;
  std::vector<Bundle> bundles;
  std::vector<Bundle> single;

  /// Means stand for items where `cost` has a convex floor, which is then their duration.
  PlanningItems(std::span<const Sample> items, const CostModel& cost);
};

class ModuleDurations {
 public:
  ModuleDurations(const PlanRequest& request, const PlanningItems& items, Module module);
  ModuleDurations(const ModuleDurations&) = delete;
  ModuleDurations& operator=(const ModuleDurations&) = delete;

  const ModuleChoices& all() const { return all_; }
  const ModulePipeline& pipeline(const ModuleChoice& choice) const { return all_.pipelines[choice.pipeline]; }

  /// No more than the sum over items of the duration of a microbatch, in seconds, where a global batch is cut
  /// into so many microbatches or fewer.
  double coarse_sum(const ModuleChoice& choice, int microbatches) const {
    return coarse_.sum(pipeline(choice).kind, std::int64_t{microbatches} * choice.dp);
  }

  /// Durations per bundle and per item, by kind of pipeline and shares.
  DurationTable& bundles() { return bundles_; }
  DurationTable& single() { return single_; }

 private:
  double duration(int kind, std::int64_t shares, const RepeatedLoad& load) const;
  DurationTable table(const std::vector<Bundle>& bundles);
  CoarseDurations coarse_durations(const std::vector<Bundle>& bundles) const;
  std::vector<RepeatedLoad> loads(const std::vector<Bundle>& bundles) const;

  const PlanRequest& request_;
  Module module_;
  BundleBy by_;
  ModuleChoices all_;
  CoarseDurations coarse_;
  DurationTable bundles_;
  DurationTable single_;
};

}  // namespace dflop
