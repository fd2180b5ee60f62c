// A CostModel predicts times of compute and communication, and bytes of memory. costmodel/ implements it.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/model.hpp"
#include "core/program.hpp"

namespace dflop {

/// ProgramCosts hold the cost of each part of one Program as plain tables. They are the interface between
/// cost models and the simulator.
struct ProgramCosts {
  std::vector<Nanoseconds> instruction;  ///< per instruction; zero for messages and collectives
  std::vector<Nanoseconds> message;      ///< per message: uncontended time from the send to the arrival
  std::vector<Nanoseconds> collective;   ///< per collective: time from the last arrival to the end
  std::vector<ModelState> model_state;   ///< per group and rank, summed over all stages that the group runs
  /// For each instruction, this is the number of activation bytes that it keeps or frees on one rank. A
  /// forward keeps bytes for the backward of its microbatch and stage. A backward_input keeps additional
  /// bytes until the backward_weight: the activations that recomputation brought back. Its number is negative
  /// if frozen parts leave less to keep. A backward or backward_weight frees the sum of these bytes; its
  /// number is positive, too. All other instructions have zero.
  std::vector<Bytes> activation;
  std::vector<Bytes> workspace;  ///< per instruction and rank: held only while it runs. `activation` and
                                 ///< `workspace` may both be empty, which means zero everywhere
  /// For each instruction, this is the fraction of a GPU's memory bandwidth, in [0, 1], that it uses while no
  /// neighbor runs on the rest of the GPU. Empty if no GPU is shared.
  std::vector<double> bandwidth = {};

  Bytes activation_of(std::size_t i) const { return activation.empty() ? Bytes{} : activation[i]; }
  Bytes workspace_of(std::size_t i) const { return workspace.empty() ? Bytes{} : workspace[i]; }

  /// Sets how long an instruction takes without contention. The bytes it moves stay the same, so its fraction
  /// of the bandwidth changes inversely, to at most 1.
  void set_duration(std::size_t i, Nanoseconds duration);
};

/// A PricedProgram is a Program with its costs: everything the simulator needs for an iteration.
struct PricedProgram {
  Program program = {};
  ProgramCosts costs = {};
};

/// PassTimes are the durations of the passes of a layer or stage.
struct PassTimes {
  Seconds forward{0};
  Seconds backward_input{0};
  Seconds backward_weight{0};

  PassTimes& operator+=(const PassTimes& other) {
    forward += other.forward;
    backward_input += other.backward_input;
    backward_weight += other.backward_weight;
    return *this;
  }

  /// Returns the duration of a compute op; a backward takes as long as its two parts together.
  /// @throws Error (internal) for an op that is not compute
  Seconds of(Op op) const;
};

struct Iteration;

class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Returns the time of one compute instruction on one stage, including tensor-parallel communication. Zero
  /// for empty work.
  virtual Seconds compute(Op op, const Stage& stage, const Work& work) const = 0;

  /// Returns the sum of compute() for the forward and the whole backward.
  virtual Seconds both_passes(const Stage& stage, const Work& work) const {
    return compute(Op::forward, stage, work) + compute(Op::backward, stage, work);
  }

  /// Returns a lower bound on compute(); nullopt if the model knows none. The bound is convex and
  /// nondecreasing in the work's counts among works in which the same modules are empty. Lower bounds over
  /// all assignments or plans rely on it.
  virtual std::optional<Seconds> convex_floor(Op, const Stage&, const Work&) const { return std::nullopt; }

  /// Returns the time that one sample adds to compute() of its microbatch beyond its share of the work. It
  /// covers the effects of shapes, which the sums in a Work do not show. Negative if the sample takes less.
  /// For an encoder with its own ranks, this is the sum over the dp ranks that share the sample. Zero for
  /// models that look only at sums.
  virtual Seconds sample_excess(Op, const Stage&, const Sample&) const { return Seconds(0); }

  /// Returns the time from send to arrival of a message between two groups on idle links.
  virtual Seconds message(const Message& message, const Program& program) const = 0;

  /// Returns the time of a gradient reduction over groups of one stage, counted from the last arrival.
  virtual Seconds all_reduce(const Collective& collective, const Program& program) const = 0;

  /// Returns the time of one optimizer step on one rank of a stage.
  virtual Seconds optimizer_step(const Stage& stage) const = 0;

  /// Returns whether prices depend on Stage::share. Only such models price programs of shared plans.
  virtual bool knows_shares() const { return false; }

  /// Returns how many quanta of a device this model distinguishes. Shares that round to the same number of
  /// quanta (encoder_quanta()) have equal prices. 0: the cluster's own quanta apply.
  virtual int share_quanta() const { return 0; }

  /// Returns the fraction of a GPU's memory bandwidth, in [0, 1], that a compute instruction uses on average
  /// while it runs on the stage's share without a neighbor. Models that do not know it return 0, which means
  /// that shared GPUs have enough bandwidth for all.
  virtual double bandwidth(Op, const Stage&, const Work&) const { return 0; }

  /// Returns bandwidth() for an optimizer step.
  virtual double optimizer_bandwidth(const Stage&) const { return 0; }

  /// Returns the bytes of parameters, gradients and optimizer states on one rank of a stage.
  virtual ModelState model_state(const Stage& stage) const = 0;

  /// Returns the bytes that one rank keeps of a microbatch from its forward to its backward.
  virtual Bytes activation(const Stage& stage, const Work& work) const = 0;

  /// Returns the bytes that one rank keeps of a microbatch between the two parts of a split backward: the
  /// inputs of the weight gradients, including those that the backward has recomputed. It is at least
  /// activation() if all of the stage is trained; frozen parts keep nothing. By default (no recomputation) it
  /// equals activation(), because gradients replace the activations they belong to (Qi et al. 2023, "Zero
  /// Bubble Pipeline Parallelism": W needs about as much memory as B).
  virtual Bytes split_activation(const Stage& stage, const Work& work) const {
    return activation(stage, work);
  }

  /// Returns ProgramCosts::activation of a compute instruction: the bytes it keeps or, for a backward or
  /// backward_weight, frees.
  Bytes activation_of(Op op, const Stage& stage, const Work& work) const;

  /// Returns the bytes that one rank needs only while the instruction runs, in addition to everything kept
  /// when it starts.
  virtual Bytes workspace(Op op, const Stage& stage, const Work& work) const = 0;

  /// Prices an iteration; see core/iteration/iteration.hpp. Every cost model is called through this function,
  /// because only an iteration knows which samples a microbatch holds.
  friend ProgramCosts price(const CostModel& cost, const Iteration& iteration);

 protected:
  /// Prices every part of a program with the functions above, except sample_excess(): a Program knows only
  /// sums.
  virtual ProgramCosts price_sums(const Program& program) const;

  /// Returns compute() of every compute instruction of a program, and zero for the others. A model whose
  /// instructions share parts can override this to compute each part once.
  /// @pre all passes of a microbatch on a stage of a group have the same work
  virtual std::vector<Nanoseconds> compute_times(const Program& program) const;

  /// Returns price_sums() of another model. Models that modify another model's prices need it.
  static ProgramCosts price_sums(const CostModel& other, const Program& program) {
    return other.price_sums(program);
  }
};

/// A SumCostModel looks only at sums of work, so it can price a bare Program without its samples, for example
/// a Program from a recording.
class SumCostModel : public CostModel {
 public:
  Seconds sample_excess(Op, const Stage&, const Sample&) const final { return Seconds(0); }

  ProgramCosts price(const Program& program) const { return price_sums(program); }
};

}  // namespace dflop
