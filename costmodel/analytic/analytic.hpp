// The AnalyticCostModel takes every cost from shapes and GPU data alone.
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "costmodel/analytic/communication.hpp"
#include "costmodel/analytic/memory.hpp"
#include "costmodel/analytic/roofline.hpp"

namespace dflop {

/// An AnalyticCostModel takes a roofline for compute, latency and bandwidth for communication, and counts the
/// bytes of memory. It has no state and is safe to use from several threads.
///
/// On a cluster of several GPU types a program's instructions are priced for the GPUs of the ranks that run
/// them; a tp group takes as long as its slowest. What is asked without a rank is answered for all of them:
/// compute() is that of the slowest type, while convex_floor() and optimizer_step(), on which bounds rest,
/// are below those of any.
class AnalyticCostModel final : public SumCostModel {
 public:
  AnalyticCostModel(ModelSpec model, ClusterSpec cluster);

  /// Prices front, layers, connector, embedding and head of the stage by roofline, with recomputation and
  /// tensor-parallel communication: per layer two all-reduces of tokens * hidden in bf16 forward and two
  /// backward, full recomputation repeating the forward's (Narayanan et al. 2021); under sequence parallelism
  /// each is an all-gather and a reduce-scatter of the same volume (Korthikanti et al. 2022; their extra
  /// all-gather for the weight gradients overlaps with compute). One more: connector, forward (output) and
  /// backward (input); embedding, forward; head, backward. Only layers are recomputed. backward =
  /// backward_input + backward_weight, the weight part being the weights' own products. No pass takes less
  /// than the host needs to launch its kernels: layer_launch for each layer's forward pass, once more where
  /// it is recomputed, and as long for the backward pass, half of it for inputs and half for weights. Kernels
  /// are queued, so that this is a floor of the pass and not of each kernel. On a share of a GPU each kernel
  /// takes what Processor says of it; communication and launches take as long as on a whole one.
  ///
  /// Frozen parts (TrainedParts) have no products for gradients of weights, and those before all that is
  /// trained no backward, recomputation included: a frozen encoder is forward alone, a frozen LLM forward and
  /// gradients of inputs. The first layer's input counts as any other's: under LoRA alone nothing needs its
  /// gradient.
  /// @throws Error (internal) for an op that is not compute
  Seconds compute(Op op, const Stage& stage, const Work& work) const override;

  Seconds both_passes(const Stage& stage, const Work& work) const override;

  /// Returns compute() itself, which is made of sums and maxima of functions that are affine in the counts;
  /// on several GPU types that of a GPU with the best figures of each.
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override {
    return fastest_.empty() ? compute(op, stage, work) : fastest_.front().compute(op, stage, work);
  }

  Seconds message(const Message& message, const Program& program) const override {
    return message_time(cluster_, message, program);
  }
  Seconds all_reduce(const Collective& collective, const Program& program) const override {
    return all_reduce_time(cluster_, collective, program);
  }

  /// Adam streams 30 bytes for each parameter whose states the rank owns (1 / dp of them under ZeRO-1): reads
  /// the fp32 gradient, parameter, mean and variance (16), writes the last three (12) and the bf16 parameter
  /// (2). With OptimizerStates::bf16 it reads four of 2 bytes and writes three: 14. all_reduce() charges the
  /// all-gather that follows under ZeRO-1.
  Seconds optimizer_step(const Stage& stage) const override;

  bool knows_shares() const override { return true; }

  /// Returns the time of the stage's traffic at the whole bandwidth over compute().
  double bandwidth(Op op, const Stage& stage, const Work& work) const override;
  double optimizer_bandwidth(const Stage& stage) const override;

  ModelState model_state(const Stage& stage) const override { return model_state_bytes(stage, model_); }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return activation_bytes(stage, model_, work);
  }
  Bytes split_activation(const Stage& stage, const Work& work) const override {
    return split_activation_bytes(stage, model_, work);
  }
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override {
    return workspace_bytes(op, stage, model_, work);
  }

 protected:
  ProgramCosts price_sums(const Program& program) const override;
  std::vector<Nanoseconds> compute_times(const Program& program) const override;

 private:
  /// Returns the share of its GPUs that a stage is granted.
  double granted_share(const Stage& stage) const;
  Processor processor_of(const Stage& stage) const {
    return stage.share == 1 ? Processor(cluster_) : Processor(cluster_, granted_share(stage));
  }
  /// LayerTimes are the times of one layer of each module that a stage has.
  struct LayerTimes {
    PassTimes encoder;
    PassTimes llm;
  };
  LayerTimes layers_of(const Processor& gpu, const Stage& stage, const Work& work) const;
  /// Returns the times of one layer, whose weights are `trained` or frozen; with LoRA's pairs where there is
  /// a rank.
  PassTimes layer_times(const Processor& gpu, const TransformerSpec& spec, const Stage& stage,
                        const Workload& work, bool trained, int lora_rank) const;
  PassTimes stage_times(const Processor& gpu, const Stage& stage, const Work& work) const {
    return stage_times(gpu, stage, work, layers_of(gpu, stage, work));
  }
  PassTimes stage_times(const Processor& gpu, const Stage& stage, const Work& work,
                        const LayerTimes& layers) const;
  PassTimes encoder_times(const Processor& gpu, const Stage& stage, const Workload& work,
                          const PassTimes& layer) const;
  PassTimes llm_times(const Processor& gpu, const Stage& stage, const Workload& work,
                      const PassTimes& layer) const;
  /// Returns the times of a stage, of which none is shorter than its launches. @pre the cluster is not mixed
  PassTimes launched_times(const Processor& gpu, const Stage& stage, const Work& work,
                           const LayerTimes& layers) const;
  /// Returns what the host needs to launch the passes of all layers.
  PassTimes launch_times(const Stage& stage, const Work& work) const;
  /// Returns the time of an all-reduce of one bf16 tensor over the stage's tp ranks.
  Seconds tensor_all_reduce(const Processor& gpu, const Stage& stage, double tokens, int width) const {
    if (gpu.is_of_traffic()) return Seconds(0);
    const double seen = 1 - cluster_.software.tensor_overlap;
    return seen * tensor_all_reduce_time(cluster_, stage.tp, kBf16Bytes * tokens * width);
  }

  ModelSpec model_;
  ClusterSpec cluster_;
  // Of a mixed cluster alone:
  std::vector<AnalyticCostModel> types_;    ///< one for each type of GPU
  std::vector<int> type_of_node_;           ///< in types_
  std::vector<AnalyticCostModel> fastest_;  ///< one
};

}  // namespace dflop
