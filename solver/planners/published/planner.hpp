// These planners choose as the published optimizer does, in two readings of it.
#pragma once

#include "core/iteration/planner.hpp"

namespace dflop {

/// A PublishedReading says which of the two published optimizers is meant.
enum class PublishedReading : std::uint8_t {
  released,  ///< the code that was released
  printed,   ///< Algorithm 1 of the paper
};

/// A PublishedPlanner makes a disaggregated plan by released_choice() or printed_choice(), on the profile
/// that published_profile() takes of the request. The optimizer's own rule says what fits the memory, so that
/// a plan may need more in a run. PlanResult::objective is the optimizer's own estimate T.
class PublishedPlanner final : public Planner {
 public:
  explicit PublishedPlanner(PublishedReading reading) : reading_(reading) {}
  std::string_view name() const override {
    return reading_ == PublishedReading::released ? "dflop" : "dflop-paper";
  }

  /// @throws Error (usage) for orders of several chunks; Error (input) unless there are profile samples, at
  /// least one batch, and gbs samples in each batch.
  PlanResult plan(const PlanRequest& request) const override;

 private:
  PublishedReading reading_;
};

}  // namespace dflop
