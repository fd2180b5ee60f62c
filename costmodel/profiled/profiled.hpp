// A ProfiledCostModel gives costs of a model on a device from what its parts took there.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/measured/profile.hpp"
#include "costmodel/profiled/curves.hpp"

namespace dflop {

/// A ProfileReach says what a unit is asked for, and up to what it was measured: tokens, of attention the
/// length of a sequence.
struct ProfileReach {
  ProfileUnit unit = ProfileUnit::patches;
  double asked = 0;
  double last = 1;

  double times() const { return asked / last; }
  /// Becomes the other one where that goes farther.
  void extend(const ProfileReach& other) {
    if (other.times() > times()) *this = other;
  }
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

  /// Prices units by their PassCurves: linear ones by tokens, the head by those that are trained where logits
  /// are made of these alone, attention by tokens and the mean length attention pairs / tokens. Layers with
  /// attention windows have the length of a window, and the others what the mean over all layers leaves them.
  /// What the host does for a forward is not in it. Full recomputation adds what the profile says of it, or
  /// else a layer's forward, to its backward_input, selective the forward of its attention. Communication of
  /// tensor parallelism is in the tables, but for the sum of norms' gradients that sequence parallelism takes
  /// once an iteration.
  /// @throws Error (input) for a mode of tp that was not measured, a part of a device that is smaller than
  /// all that were, or a stage with an encoder where the profile is of a text model, (internal) for an op
  /// that is not compute
  Seconds compute(Op op, const Stage& stage, const Work& work) const override;

  /// Returns how far compute() goes beyond the points of the unit that it goes farthest beyond.
  /// @throws as compute()
  ProfileReach reach(const Stage& stage, const Work& work) const;
  /// Returns the farthest that any compute instruction of a program goes. @throws as compute()
  ProfileReach reach(const Program& program) const;

  /// Adds to the first forward with patches of each group the host's time for it. `times` has the times of a
  /// program's instructions. @throws as compute()
  void add_host_times(const Program& program, std::vector<Nanoseconds>& times) const;

  /// Goes by the fitted line over the bytes that the profile's values have (a program counts two for each).
  /// All of a message goes to each rank of the destination, as live runs send it, but under sequence
  /// parallelism between stages of one module, where each rank sends its shard.
  Seconds message(const Message& message, const Program& program) const override;
  /// Goes by the line of so many ranks, and of a norm adds the largest group's sum of squares; between two
  /// measured numbers of ranks in proportion, outside of them as ranks - 1. The gathering of parameters after
  /// a ZeRO-1 step was not measured.
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

 protected:
  /// Returns them with add_host_times().
  std::vector<Nanoseconds> compute_times(const Program& program) const override;

 private:
  struct UnitCurves {
    PassCurve forward;
    PassCurve backward_input;
    PassCurve backward_weight;
    PassCurve recompute;  ///< before backward_input, under full recomputation
    PassCurve host;       ///< part of the forward
    double last = 0;      ///< where its points end
  };
  /// UnitCalls are calls of one unit on the same tokens.
  struct UnitCalls {
    ProfileUnit unit;
    double calls;
    double tokens;
    double length = 0;  ///< of attention
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

  static UnitCurves curves_of(ProfileUnit unit, const UnitPoints& points, bool launches);
  Between between(const Stage& stage) const;
  /// Returns a unit's curves. @throws Error (input) where the model that was measured has no such unit
  const UnitCurves& curves_of(const Tables& tables, ProfileUnit unit) const;
  /// Returns tables of what does not depend on the part of a device: memory, and where points end.
  const Tables& tables(const Stage& stage) const { return between(stage).fewer; }
  /// Adds up the passes of a stage, as they are alone or beside a busy neighbour.
  PassTimes passes(const Tables& tables, const Stage& stage, const Work& work, bool beside) const;
  /// Calls visit(UnitCalls) for all that a stage computes.
  template <typename Visit>
  void for_each_unit(const Stage& stage, const Work& work, const Visit& visit) const;
  template <typename Visit>
  void for_each_encoder_attention(double layers, const Workload& work, const Visit& visit) const;
  /// Returns what a sum over so many ranks takes. @throws as all_reduce()
  Seconds sum_time(int ranks, Bytes program_bytes) const;
  Seconds host_time(const Stage& stage, const Work& work) const;
  /// Returns the parameters that a rank of the stage holds, with the zeros of padded rows.
  double held_parameters(const Stage& stage) const;

  ProfileTables profile_;
  std::map<TpMode, std::map<int, Tables>> by_mode_;  ///< and by quanta
};

}  // namespace dflop
