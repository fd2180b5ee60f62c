// ItemBatches have batches of items that are known by their costs alone, for a SchedulingService, which works
// on samples of a model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/scheduler.hpp"
#include "solver/assignment_problem.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// ItemCosts are what the items of one batch cost, in any one unit, and how many tokens they have.
struct ItemCosts {
  std::vector<double> encoder;
  std::vector<double> llm;
  std::vector<double> tokens;                ///< empty where nobody has said
  std::optional<std::uint64_t> stream = {};  ///< of random choices; none: that of the iteration
};

/// Reads {"llm": [...], "encoder": [...], "tokens": [...], "stream": 5}, of which only the first is needed.
/// @throws Error (input) naming the key, for a cost that is no finite number from 0 up, lists of different
/// lengths, and no items.
ItemCosts read_item_costs(const JsonValue& json);

/// ItemBins are what items are put into: bin = microbatch * dp + dp rank.
struct ItemBins {
  int bins = 1;
  int dp = 1;
  int encoder_dp = 0;  ///< ranks of an encoder of its own, that share a microbatch's work; 0: none
  Objective objective = Objective::bins;
  std::optional<std::int64_t> token_cap = {};
  bool allow_empty = false;
};

/// Reads "bins", and if they are there "dp", "encoder_dp", "objective" (bins, published), "token_cap" and
/// "allow_empty". @throws Error (input) naming the key.
ItemBins read_item_bins(const JsonValue& json);

/// Puts the items of a batch into bins.
/// @throws Error (input) for fewer items than bins, if none may be empty, and for a cap without tokens;
/// Error (usage) for a method that there is not.
ScheduleResult schedule_items(const ItemCosts& costs, const ItemBins& bins, std::string_view method,
                              const SolveLimits& limits);

/// ItemBatches hold the costs of batches from when they come until they are scheduled.
class ItemBatches {
 public:
  void add(std::uint64_t iteration, std::shared_ptr<const ItemCosts> costs);
  std::shared_ptr<const ItemCosts> of(std::uint64_t iteration) const;
  void forget_before(std::uint64_t iteration);

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<const ItemCosts>> costs_;
};

/// Makes the scheduler that runs a method on the items of a batch, and looks neither at samples nor at model.
std::shared_ptr<const Scheduler> item_scheduler(std::string method, const ItemBins& bins,
                                                std::shared_ptr<const ItemBatches> batches);

}  // namespace dflop
