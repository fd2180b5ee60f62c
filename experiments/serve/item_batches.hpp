// ItemBatches allows a SchedulingService, which works on the samples of a model, to schedule items that are
// known only by their costs.
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

/// ItemCosts holds the costs of the items of one batch, in any common unit, and their numbers of tokens.
struct ItemCosts {
  std::vector<double> encoder;
  std::vector<double> llm;
  std::vector<double> tokens;  ///< empty if not given
  /// Number of the random stream; none: the iteration's number is used.
  std::optional<std::uint64_t> stream = {};
};

/// Reads {"llm": [...], "encoder": [...], "tokens": [...], "stream": 5}; only "llm" is required.
/// @throws Error (input) naming the key, for a cost that is not a finite number >= 0, for lists of different
/// lengths, and if there are no items
ItemCosts read_item_costs(const JsonValue& json);

/// ItemBins describes the bins: bin = microbatch * dp + dp rank.
struct ItemBins {
  int bins = 1;
  int dp = 1;
  /// Dp ranks of an encoder on its own GPUs, which share each microbatch's work; 0: no such encoder.
  int encoder_dp = 0;
  Objective objective = Objective::bins;
  std::optional<std::int64_t> token_cap = {};
  bool allow_empty = false;
};

/// Reads "bins" and the optional keys "dp", "encoder_dp", "objective" (bins, published), "token_cap" and
/// "allow_empty". @throws Error (input) naming the key.
ItemBins read_item_bins(const JsonValue& json);

/// Assigns the items of a batch to bins.
/// @throws Error (input) if there are fewer items than bins and empty bins are not allowed, or if there is a
/// token cap but no tokens; Error (usage) for an unknown method
ScheduleResult schedule_items(const ItemCosts& costs, const ItemBins& bins, std::string_view method,
                              const SolveLimits& limits);

/// ItemBatches stores the items' costs of batches, by iteration, until the batches are scheduled.
class ItemBatches {
 public:
  void add(std::uint64_t iteration, std::shared_ptr<const ItemCosts> costs);
  std::shared_ptr<const ItemCosts> of(std::uint64_t iteration) const;
  void forget_before(std::uint64_t iteration);

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<const ItemCosts>> costs_;
};

/// Makes a scheduler that runs a method on the items of a batch. It gets their costs from `batches`, and
/// ignores samples and model.
std::shared_ptr<const Scheduler> item_scheduler(std::string method, const ItemBins& bins,
                                                std::shared_ptr<const ItemBatches> batches);

}  // namespace dflop
