// These planners reproduce two versions of the published optimizer.
#pragma once

#include "core/iteration/planner.hpp"

namespace dflop {

/// A PublishedReading selects one of the two published optimizers.
enum class PublishedReading : std::uint8_t {
  released,  ///< the released code
  printed,   ///< Algorithm 1 of the paper
};

/// A PublishedPlanner makes a disaggregated plan by released_choice() or printed_choice(), from the
/// published_profile() of the request. The optimizer's own rule decides whether a plan fits into memory, so a
/// plan may need more memory in a run than a GPU has. PlanResult::objective is the optimizer's own estimate
/// T.
class PublishedPlanner final : public Planner {
 public:
  explicit PublishedPlanner(PublishedReading reading) : reading_(reading) {}
  std::string_view name() const override {
    return reading_ == PublishedReading::released ? "dflop" : "dflop-paper";
  }

  /// @throws Error (usage) for orders of several chunks or that spread the encoder; Error (input) unless
  /// there are profile samples, at least one batch, and gbs samples in each batch.
  PlanResult plan(const PlanRequest& request) const override;

 private:
  PublishedReading reading_;
};

}  // namespace dflop
