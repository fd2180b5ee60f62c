// A ProfiledCostModel gives costs of a model on a device from what its parts took there.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/measured/profile.hpp"
#include "costmodel/profiled/curve.hpp"

namespace dflop {

/// A ProfiledCostModel adds up the durations of a profile's units. It has no state and is safe to use from
/// several threads.
///
/// A Stage does not say whether pixels come in there: the time of the patches is spread over all encoder
/// layers. What only one rank was busy with is not what it takes where many ranks share one processor.
///
/// convex_floor() is none, since measured curves need not be convex, and sample_excess() zero.
class ProfiledCostModel final : public SumCostModel {
 public:
  explicit ProfiledCostModel(ProfileTables profile);

  const ProfileTables& profile() const { return profile_; }

  /// Prices linear units by a ProfileCurve over tokens, attention as tokens times a ProfileCurve over the
  /// mean length attention pairs / tokens. Full recomputation adds what the profile says of it, or else a
  /// layer's forward, to its backward_input, selective the forward of its attention. Communication of tensor
  /// parallelism is in the tables, but for the sum of norms' gradients that sequence parallelism takes once
  /// an iteration.
  /// @throws Error (input) for a mode of tp that was not measured, (internal) for an op that is not compute
  Seconds compute(Op op, const Stage& stage, const Work& work) const override;

  /// Tells whether compute() goes beyond the last point of a unit that it asks. @throws as compute()
  bool extrapolates(const Stage& stage, const Work& work) const;

  /// Goes by the fitted line over the bytes that the profile's values have (a program counts two for each).
  /// All of a message goes to each rank of the destination, as live runs send it, but under sequence
  /// parallelism between stages of one module, where each rank sends its shard.
  Seconds message(const Message& message, const Program& program) const override;
  /// Goes by the line of so many ranks; between two measured numbers of ranks in proportion, outside of them
  /// as ranks - 1. The gathering of parameters after a ZeRO-1 step was not measured.
  /// @throws Error (input) where no all-reduce was measured
  Seconds all_reduce(const Collective& collective, const Program& program) const override;
  /// Goes by the fitted line over the parameters whose states the rank owns.
  Seconds optimizer_step(const Stage& stage) const override;

  /// Returns the state, which is counted, not measured: weights, gradients, two moments, and master weights
  /// where sums are more precise than weights.
  ModelState model_state(const Stage& stage) const override;
  /// Returns what was measured in the stage's mode. @throws as compute()
  Bytes activation(const Stage& stage, const Work& work) const override;
  /// Returns what the same stage keeps without recomputation. @throws as compute()
  Bytes split_activation(const Stage& stage, const Work& work) const override;
  /// Returns what the stage's parts, one after the other, need at most beside all that the stage keeps; none
  /// is counted of passes that make weights' gradients alone, and in profiles of version 1. While weights'
  /// gradients are left for later, parts that were computed again stay so.
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override;

 private:
  struct Passes {
    double forward = 0;
    double backward_input = 0;
    double backward_weight = 0;
    double recompute = 0;  ///< before backward_input, under full recomputation

    Passes& add(const Passes& other, double times);
  };
  struct UnitCurves {
    ProfileCurve forward;
    ProfileCurve backward_input;
    ProfileCurve backward_weight;
    std::optional<ProfileCurve> recompute;  ///< none: as long as the forward
    double last = 0;                        ///< where its points end

    Passes at(double x, double times) const;
  };

  struct Tables {
    std::vector<UnitCurves> curves;  ///< by ProfileUnit
    BytesPerToken activation;
    BytesPerToken forward_buffers;
    BytesPerToken backward_buffers;
  };

  static UnitCurves curves_of(ProfileUnit unit, const UnitPoints& points);
  const Tables& tables(const Stage& stage) const;
  /// Calls visit(unit, x, times), where the unit's curve at x counts so many times.
  template <typename Visit>
  void for_each_unit(const Stage& stage, const Work& work, const Visit& visit) const;

  ProfileTables profile_;
  std::map<TpMode, Tables> by_mode_;
};

}  // namespace dflop
