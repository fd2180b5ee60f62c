// A ProfiledCostModel predicts a model's costs on a device from measured times of its parts on that device.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "core/measured/profile.hpp"
#include "costmodel/profiled/curves.hpp"

namespace dflop {

/// A ProfileReach says how far a prediction extrapolates a unit: it compares the requested size with the
/// largest measured size, in tokens or, for attention, in sequence length.
struct ProfileReach {
  ProfileUnit unit = ProfileUnit::patches;
  double asked = 0;
  double last = 1;
  bool second = false;  ///< of the second encoder's tables

  double times() const { return asked / last; }
  /// Returns the unit's name as 'dflop profile' prints it: "second_encoder_linear".
  std::string name() const { return (second ? "second_" : "") + std::string(to_string(unit)); }
  /// Replaces this by `other` if `other` extrapolates farther.
  void extend(const ProfileReach& other) {
    if (other.times() > times()) *this = other;
  }
};

/// A ProfiledCostModel adds up the measured durations of a profile's units. It has no state and is safe to
/// use from several threads.
///
/// A Stage does not say whether pixels enter there, so the patches' time is spread over all encoder layers.
/// Times hold only if as many ranks are busy as during the measurement (ProfileSettings::busy_ranks): more
/// ranks on one processor are slower.
///
/// A stage of a shared plan computes on some of its device's quanta (core/quanta.hpp). Between the nearest
/// measured numbers of quanta, m < k < n, a time is a + b / k, fitted to both measurements: b is the part of
/// the time that more quanta shorten, and a the part that they do not.
///
/// convex_floor() returns nothing, because measured curves need not be convex, and sample_excess() returns
/// zero.
class ProfiledCostModel final : public SumCostModel {
 public:
  explicit ProfiledCostModel(ProfileTables profile);

  const ProfileTables& profile() const { return profile_; }

  /// Prices units by their PassCurves. Linear units go by tokens; the head goes by trained tokens if logits
  /// are computed only for them; attention goes by tokens and the mean length attention pairs / tokens.
  /// Layers with attention windows have the length of a window. The length of the other layers is such that
  /// the mean over all layers is the mean length of the work. Host time in a forward pass is excluded. Full
  /// recomputation adds its measured time, or else a layer's forward time, to the backward_input; selective
  /// recomputation adds the forward time of attention. The tables include tensor-parallel communication,
  /// except the sum of norms' gradients that sequence parallelism takes once an iteration.
  /// @throws Error (input) for a mode of tp that was not measured, a part of a device smaller than all
  /// measured parts, or a stage with an encoder if the profile is for a text model, (internal) for an op that
  /// is not compute
  Seconds compute(Op op, const Stage& stage, const Work& work) const override;

  /// Returns the farthest extrapolation beyond a unit's measured points among the units that compute()
  /// prices.
  /// @throws what compute() throws
  ProfileReach reach(const Stage& stage, const Work& work) const;
  /// Returns the farthest extrapolation among a program's compute instructions. @throws what compute() throws
  ProfileReach reach(const Program& program) const;

  /// Adds the host's time, in each group, to the first forward that has patches. `times` holds the times of a
  /// program's instructions. @throws what compute() throws
  void add_host_times(const Program& program, std::vector<Nanoseconds>& times) const;

  /// Prices a message by the fitted line over its bytes in the profile's value type (a program counts two
  /// bytes for each value). Each rank of the destination receives the whole message, as in live runs. The
  /// exception is sequence parallelism between stages of one module: there each rank sends its shard.
  Seconds message(const Message& message, const Program& program) const override;
  /// Prices an all-reduce by the line for this number of ranks, and a norm's also by the largest group's sum
  /// of squares. Between two measured numbers of ranks it interpolates; outside of them it scales by ranks -
  /// 1. The gathering of parameters after a ZeRO-1 step was not measured.
  /// @throws Error (input) if no all-reduce was measured
  Seconds all_reduce(const Collective& collective, const Program& program) const override;
  /// Prices the step by the fitted line over the parameters whose states the rank owns. @throws what
  /// compute() throws for a part of a device
  Seconds optimizer_step(const Stage& stage) const override;

  /// Returns whether the profile has measurements on parts of devices.
  bool knows_shares() const override;
  int share_quanta() const override { return knows_shares() ? profile_.quanta : 0; }
  /// Returns s / 2 within [1/2, 1], where s is the measured slowdown of passes while a busy neighbor uses the
  /// rest of the device; with several units, s is their mean by time. If two passes that share bandwidth by
  /// max-min fairness both ask for at least half, each runs at the rate (1/2) / fraction. So this one runs at
  /// the rate 1 / s next to any such neighbor, as measured. If s is 1, any fraction below 1/2 would fit as
  /// well: this unit would not be slower either, but its neighbors would be slowed less. Returns 1/2 for a
  /// rank with a whole device.
  /// @throws what compute() throws
  double bandwidth(Op op, const Stage& stage, const Work& work) const override;
  /// @throws what compute() throws
  double optimizer_bandwidth(const Stage& stage) const override;

  /// Returns the model state, counted and not measured: weights, gradients, two moments, and master weights
  /// if sums are more precise than weights.
  /// @throws Error (input) for optimizer states in bf16, which are not measured
  ModelState model_state(const Stage& stage) const override;
  /// Returns the bytes that were measured in the stage's TpMode. @throws what compute() throws
  Bytes activation(const Stage& stage, const Work& work) const override;
  /// Returns activation() of the same stage without recomputation. @throws what compute() throws
  Bytes split_activation(const Stage& stage, const Work& work) const override;
  /// Returns the max memory that any of the stage's parts, which run one after the other, needs on top of
  /// what the stage keeps. It is zero for passes that compute only weight gradients, and for profiles of
  /// version 1. While weight gradients are left for later, recomputed parts stay in memory.
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override;

 protected:
  /// Returns the compute times including add_host_times().
  std::vector<Nanoseconds> compute_times(const Program& program) const override;

 private:
  struct UnitCurves {
    PassCurve forward;
    PassCurve backward_input;
    PassCurve backward_weight;
    PassCurve recompute;  ///< runs before backward_input, under full recomputation
    PassCurve host;       ///< part of the forward
    double last = 0;      ///< the largest measured size: tokens or, for attention, length
  };
  /// UnitCalls describes calls of one unit on the same tokens.
  struct UnitCalls {
    ProfileUnit unit;
    double calls;
    double tokens;
    double length = 0;  ///< attention only
  };

  struct Tables {
    std::array<std::optional<UnitCurves>, kProfileUnits> curves;  ///< by ProfileUnit; empty if absent
    BytesPerToken activation;
    BytesPerToken forward_buffers;
    BytesPerToken backward_buffers;
    ProfileLine optimizer;
    PartProfile part;  ///< no slowdown for whole devices
  };
  /// Between holds the tables for the nearest measured numbers of quanta, and the weight of the larger one.
  struct Between {
    const Tables& fewer;
    const Tables& more;
    double weight;  ///< 0 if both are the same
  };

  static UnitCurves curves_of(ProfileUnit unit, const UnitPoints& points, bool launches);
  Between between(const Stage& stage) const;
  /// Returns a unit's curves. @throws Error (input) if the measured model has no such unit
  const UnitCurves& curves_of(const Tables& tables, ProfileUnit unit) const;
  /// Returns tables for values that are equal on all parts of a device: memory, and the largest measured
  /// sizes.
  const Tables& tables(const Stage& stage) const { return between(stage).fewer; }
  /// Returns the times of a stage's passes while it runs without a neighbor or, if `beside`, next to a busy
  /// one.
  PassTimes passes(const Tables& tables, const Stage& stage, const Work& work, bool beside) const;
  /// Calls visit(UnitCalls) for everything that a stage computes.
  template <typename Visit>
  void for_each_unit(const Stage& stage, const Work& work, const Visit& visit) const;
  template <typename Visit>
  void for_each_encoder_attention(double layers, const Workload& work, const Visit& visit) const;
  /// Returns the time of a sum over `ranks` ranks. @throws what all_reduce() throws
  Seconds sum_time(int ranks, Bytes program_bytes) const;
  Seconds gather_time(Op op, const Stage& stage, const Work& work) const;
  Seconds host_time(const Stage& stage, const Work& work) const;
  /// Returns how many parameters a rank of the stage holds, including the zeros of padded rows.
  double held_parameters(const Stage& stage) const;
  /// Calls visit(cost model, stage, work) for the second encoder if the stage runs it on this work.
  template <typename Visit>
  void with_second(const Stage& stage, const Work& work, const Visit& visit) const {
    if (!second_.empty() && work.has_second(stage, profile_.model))
      visit(second_.front(), stage_of_second(stage, profile_.model), work.of_second());
  }

  ProfileTables profile_;
  std::map<TpMode, std::map<int, Tables>> by_mode_;  ///< by mode of tp, then by quanta
  std::vector<ProfiledCostModel> second_;            ///< of second_tables(), if there is a second encoder
};

}  // namespace dflop
