// A CostModel gives times of compute and communication, and bytes of memory; costmodel/ implements it.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/model.hpp"
#include "core/program.hpp"

namespace dflop {

/// ProgramCosts say what each part of one Program costs, as plain tables: the door between cost models and
/// the simulator.
struct ProgramCosts {
  std::vector<Nanoseconds> instruction;  ///< per instruction; zero for messages and collectives
  std::vector<Nanoseconds> message;      ///< per message: from the send to the arrival, uncontended
  std::vector<Nanoseconds> collective;   ///< per collective: from the last arrival to the end
  std::vector<ModelState> model_state;   ///< per group, each rank, of all stages that it runs
  /// This table has, per instruction and for each rank: at a forward what it keeps for the backward of its
  /// microbatch and stage; at a backward_input by how much more is kept after it, until the backward_weight
  /// (what recomputation has brought back; below 0 where frozen parts leave less to it); at a backward or
  /// backward_weight all that it frees, the sum of these. Zero elsewhere.
  std::vector<Bytes> activation;
  std::vector<Bytes> workspace;  ///< per instruction, each rank: held only while it runs. Both may be
  /// empty, which is zero everywhere
  /// This table has, per instruction, the part of a GPU's memory bandwidth that it takes while it runs alone
  /// at its stage's share, in [0, 1]. Empty where no GPU is shared.
  std::vector<double> bandwidth = {};

  Bytes activation_of(std::size_t i) const { return activation.empty() ? Bytes{} : activation[i]; }
  Bytes workspace_of(std::size_t i) const { return workspace.empty() ? Bytes{} : workspace[i]; }

  /// Sets how long an instruction takes alone. It moves as many bytes as before, so that the part of the
  /// bandwidth that it takes goes the other way, to 1 at most.
  void set_duration(std::size_t i, Nanoseconds duration);
};

/// A PricedProgram is all that the simulator needs of an iteration: what runs, and what each part costs.
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

  /// Returns the duration of a compute op; a backward takes as long as its two parts.
  /// @throws Error (internal) for an op that is not compute
  Seconds of(Op op) const;
};

struct Iteration;

class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Returns the time of one compute instruction on one stage, tensor-parallel communication included. Zero
  /// for empty work.
  virtual Seconds compute(Op op, const Stage& stage, const Work& work) const = 0;

  /// Returns compute() of the forward and of the whole backward, added up.
  virtual Seconds both_passes(const Stage& stage, const Work& work) const {
    return compute(Op::forward, stage, work) + compute(Op::backward, stage, work);
  }

  /// Returns a time that compute() is never below and that, as a function of the work's counts, is convex and
  /// does not fall, as long as each module's work is either always or never empty. Bounds on what any
  /// assignment or plan can reach rest on it. None where the model knows no such function.
  virtual std::optional<Seconds> convex_floor(Op, const Stage&, const Work&) const { return std::nullopt; }

  /// Returns by how much one sample lengthens compute() of the microbatch that it is in, beyond its share of
  /// the work: the sums of a Work do not show which shapes are in them. Negative where it takes less. Of an
  /// encoder apart, the sum over the dp ranks that share the sample. Zero for models that see sums alone.
  virtual Seconds sample_excess(Op, const Stage&, const Sample&) const { return Seconds(0); }

  /// Returns the time from send to arrival of a message between two groups, with nothing else on the links.
  virtual Seconds message(const Message& message, const Program& program) const = 0;

  /// Returns the time of a gradient reduction over groups of one stage, counted from the last arrival.
  virtual Seconds all_reduce(const Collective& collective, const Program& program) const = 0;

  /// Returns the time of one optimizer step on one rank of a stage.
  virtual Seconds optimizer_step(const Stage& stage) const = 0;

  /// Returns whether prices follow Stage::share. Programs of shared plans are priced by such models alone.
  virtual bool knows_shares() const { return false; }

  /// Returns the number of quanta of a device that prices of parts of it are of: shares that come to as many
  /// of them (encoder_quanta()) have equal prices. 0 where the cluster's quanta tell shares apart.
  virtual int share_quanta() const { return 0; }

  /// Returns the part of a GPU's memory bandwidth, in [0, 1], that a compute instruction takes on average
  /// while it runs alone at the stage's share. 0 for models that do not know, under which shared GPUs have
  /// bandwidth enough for all.
  virtual double bandwidth(Op, const Stage&, const Work&) const { return 0; }

  /// Returns the same of an optimizer step.
  virtual double optimizer_bandwidth(const Stage&) const { return 0; }

  /// Returns the bytes of parameters, gradients and optimizer states on one rank of a stage.
  virtual ModelState model_state(const Stage& stage) const = 0;

  /// Returns what one rank keeps of a microbatch from its forward to its backward.
  virtual Bytes activation(const Stage& stage, const Work& work) const = 0;

  /// Returns what one rank keeps of a microbatch between the parts of a split backward: what the gradients of
  /// weights are made of, whatever the backward has computed again. At least activation() where all of the
  /// stage is trained; nothing of frozen parts.
  /// Without recomputation, the default, as much as activation(), as gradients take the place of what they
  /// are the gradients of (Qi et al. 2023, "Zero Bubble Pipeline Parallelism": the memory of W is about that
  /// of B).
  virtual Bytes split_activation(const Stage& stage, const Work& work) const {
    return activation(stage, work);
  }

  /// Returns ProgramCosts::activation of a compute instruction: what it takes, or as a backward or
  /// backward_weight frees.
  Bytes activation_of(Op op, const Stage& stage, const Work& work) const;

  /// Returns what one rank needs only while the instruction runs, beside all that is kept when it starts.
  virtual Bytes workspace(Op op, const Stage& stage, const Work& work) const = 0;

  /// Prices an iteration; see core/iteration/iteration.hpp. It is the only way for any cost model, as nothing
  /// else knows which samples a microbatch holds.
  friend ProgramCosts price(const CostModel& cost, const Iteration& iteration);

 protected:
  /// Prices every part of a program by the functions above, but for sample_excess(): a Program knows sums
  /// alone.
  virtual ProgramCosts price_sums(const Program& program) const;

  /// Returns compute() of every compute instruction of a program, and zero for the others. A model whose
  /// instructions have parts in common finds these once.
  /// @pre all passes of a microbatch on a stage of a group have one work
  virtual std::vector<Nanoseconds> compute_times(const Program& program) const;

  /// Returns price_sums() of another model, for a model that changes its prices.
  static ProgramCosts price_sums(const CostModel& other, const Program& program) {
    return other.price_sums(program);
  }
};

/// A SumCostModel sees sums of work alone, so that a bare Program, as that of a recording, can be priced
/// without its samples.
class SumCostModel : public CostModel {
 public:
  Seconds sample_excess(Op, const Stage&, const Sample&) const final { return Seconds(0); }

  ProgramCosts price(const Program& program) const { return price_sums(program); }
};

}  // namespace dflop
