// A planner knows the microbatch durations of a module coarsely all at once, and exactly where it asks.
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
#include "solver/planners/dflop/module_choices.hpp"

namespace dflop {

/// A Bundle has items and, for each module, the work that stands for each of them in a lower bound.
struct Bundle {
  int items = 1;
  Workload encoder;
  Workload llm;
};

/// A BundleBy says what stands for the items of a bundle: the mean of their work where costs are convex in
/// it, else the least of each count.
enum class BundleBy : std::uint8_t { mean, least };

/// Returns one bundle for each item.
std::vector<Bundle> single_items(std::span<const Sample> items);

/// Bundles the items that have work for the same modules, each such set halved `halvings` times at the median
/// of their tokens: of the encoder, then of the LLM, and so on.
std::vector<Bundle> bundle_items(std::span<const Sample> items, int halvings, BundleBy by);

/// Returns work that is in no count more than the mean (BundleBy::mean) or the least (BundleBy::least) of
/// share_of_batch() over the items of a bundle; share_of_batch() itself for a bundle of one.
Workload share_of_bundle(const Workload& work, int items, int gbs, std::int64_t shares);

/// The grid has numbers of at most four bits, followed by zeros: 1, 2, ..., 16, 18, 20, ..., 32, 36, ...
namespace share_grid {

inline constexpr int kSteps = 8;  // an octave

/// Returns the place of the first number of the grid that is at least `shares`; 0 for 0.
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

/// CoarseDurations have, for every kind of a module's pipelines, the sum over items of the duration of a
/// microbatch, at most that of any number of shares up to the next of the grid. The table is filled at once.
class CoarseDurations {
 public:
  /// A Sum returns the sum over items at a number of shares; it does not rise with shares. It is called from
  /// several threads at once.
  using Sum = std::function<double(int kind, std::int64_t shares)>;

  /// `most_shares` has an entry for each kind.
  CoarseDurations(const std::vector<std::int64_t>& most_shares, const Sum& sum);

  /// Returns no more than the sum at any number of shares up to this one.
  double sum(int kind, std::int64_t shares) const {
    return seconds_[kind][share_grid::index_at_least(shares)];
  }

 private:
  std::vector<std::vector<double>> seconds_;  // [kind][index on the grid]
};

/// A RepeatedLoad is work that stands for each of so many items.
struct RepeatedLoad {
  int items = 1;
  Workload work;

  bool operator==(const RepeatedLoad&) const = default;
};

/// A DurationTable has the durations of microbatches that are filled with copies of one load, for every kind
/// of pipeline of a module and every number of shares (microbatches * dp) that the global batch is cut into.
/// Equal loads have one entry.
class DurationTable {
 public:
  /// A Duration returns the duration of one load on one kind of pipeline. It is called from several threads
  /// at once.
  using Duration = std::function<double(int kind, std::int64_t shares, const RepeatedLoad& load)>;

  struct Row {
    int kind = 0;
    std::int64_t shares = 0;
    std::vector<double> seconds{};  // per different load, in the order of their first ones
  };

  DurationTable(std::span<const RepeatedLoad> loads, Duration duration);

  /// Asks for the durations of all loads. They are there after fill(); the reference stays valid.
  const Row& request(int kind, std::int64_t shares);

  /// Works out, in parallel, all that has been asked for.
  void fill();

  double at(const Row& row, std::size_t load) const { return row.seconds[entry_[load]]; }

 private:
  Duration duration_;
  std::vector<RepeatedLoad> loads_;  // different ones
  std::vector<std::size_t> entry_;   // per load, into loads_
  std::unordered_map<std::uint64_t, Row> rows_;
  std::vector<Row*> unfilled_;
};

/// PlanningItems are the planning items at three resolutions.
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

  /// Returns no more than the sum over items of the duration of a microbatch, in seconds, where a global
  /// batch is cut into so many microbatches or fewer.
  double coarse_sum(const ModuleChoice& choice, int microbatches) const {
    return coarse_.sum(pipeline(choice).kind, std::int64_t{microbatches} * choice.dp);
  }

  /// These are the durations per bundle and per item, by kind of pipeline and shares.
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
