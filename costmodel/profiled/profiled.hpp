// A ProfiledCostModel gives costs of a model on a device from what its parts took there.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/measured/profile.hpp"

namespace dflop {

/// A ProfileCurve does not fall and is piecewise linear. Points that fall below one before them are noise:
/// neighbours are joined into one knot, the mean of their places and of their values, until none falls
/// (isotonic regression by pooling adjacent violators, Barlow et al. 1972; means of places are ours, so that
/// no piece is flat). Points that rise are met exactly.
class ProfileCurve {
 public:
  /// Below is the rule for places below the first point.
  enum class Below {
    proportional,  ///< the line to the origin
    constant,      ///< the first value
  };

  /// Joins the points: x are the places of the points, rising and positive; y the values there, not negative;
  /// as many of both, at least one.
  /// @throws Error (internal) for another number of values than places, or none
  ProfileCurve(const std::vector<double>& x, const std::vector<double>& y, Below below);

  /// Returns the duration at x. Beyond the last knot it goes on by the slope of the last piece; with one knot
  /// by that of the line to the origin.
  /// @pre x >= 0
  double at(double x) const;

 private:
  struct Knot {
    double x;
    double y;
  };
  std::vector<Knot> knots_;
  Below below_;
};

/// A ProfiledCostModel adds up the durations of a profile's units. It has no state and is safe to use from
/// several threads.
///
/// A Stage does not say whether pixels come in there: the time of the patches is spread over all encoder
/// layers. What only one rank was busy with is not what it takes where many ranks share one processor.
///
/// A stage of a shared plan computes on some of its device's quanta (core/quanta.hpp). Between the
/// nearest numbers of them that were measured, m < k < n, a time is a + b / k through both: what is divided
/// among quanta, and what is not.
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
  /// @throws Error (input) for a mode of tp that was not measured, a part of a device that is smaller than
  /// all that were, or a stage with an encoder where the profile is of a text model, (internal) for an op
  /// that is not compute
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
  /// Goes by the fitted line over the parameters whose states the rank owns; of a part of a device @throws as
  /// compute()
  Seconds optimizer_step(const Stage& stage) const override;

  /// Returns whether parts of devices were measured.
  bool knows_shares() const override;
  int share_quanta() const override { return knows_shares() ? profile_.quanta : 0; }
  /// Returns half of s, by which passes were slowed down beside a busy neighbour on the rest of the device,
  /// within [1/2, 1]; of several units s is their mean by time. Two that share bandwidth max-min go at the
  /// rate (1/2) / fraction where both ask for half or more, and so this one, beside any such, at 1 / s: as it
  /// did. Where s is 1 the fraction may be any below 1/2 as well, under which such a unit would not be slowed
  /// down either, but others less. 1/2 of a rank that has its device alone. @throws as compute()
  double bandwidth(Op op, const Stage& stage, const Work& work) const override;
  /// @throws as compute()
  double optimizer_bandwidth(const Stage& stage) const override;

  /// Returns the state, which is counted, not measured: weights, gradients, two moments, and master weights
  /// where sums are more precise than weights.
  /// @throws Error (input) for optimizer states in bf16, of which nothing is measured
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
  struct UnitCurves {
    ProfileCurve forward;
    ProfileCurve backward_input;
    ProfileCurve backward_weight;
    ProfileCurve recompute;  ///< before backward_input, under full recomputation
    double last = 0;         ///< where its points end
  };

  struct Tables {
    std::array<std::optional<UnitCurves>, kProfileUnits> curves;  ///< by ProfileUnit; none of absent ones
    BytesPerToken activation;
    BytesPerToken forward_buffers;
    BytesPerToken backward_buffers;
    ProfileLine optimizer;
    PartProfile part;  ///< without slowing down where these are of whole devices
  };
  /// Between are the tables of the nearest numbers of quanta, and the weight of those of more.
  struct Between {
    const Tables& fewer;
    const Tables& more;
    double weight;  ///< 0: both are the same
  };

  static UnitCurves curves_of(ProfileUnit unit, const UnitPoints& points);
  Between between(const Stage& stage) const;
  /// Returns a unit's curves. @throws Error (input) where the model that was measured has no such unit
  const UnitCurves& curves_of(const Tables& tables, ProfileUnit unit) const;
  /// Returns tables of what does not depend on the part of a device: memory, and where points end.
  const Tables& tables(const Stage& stage) const { return between(stage).fewer; }
  /// Adds up the passes of a stage, as they are alone or beside a busy neighbour.
  PassTimes passes(const Tables& tables, const Stage& stage, const Work& work, bool beside) const;
  /// Calls visit(unit, x, times), where the unit's curve at x counts so many times.
  template <typename Visit>
  void for_each_unit(const Stage& stage, const Work& work, const Visit& visit) const;

  ProfileTables profile_;
  std::map<TpMode, std::map<int, Tables>> by_mode_;  ///< and by quanta
};

}  // namespace dflop
