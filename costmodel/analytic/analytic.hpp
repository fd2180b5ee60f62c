// The AnalyticCostModel predicts every cost from shapes and GPU specifications, without measurements.
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "costmodel/analytic/communication.hpp"
#include "costmodel/analytic/memory.hpp"
#include "costmodel/analytic/roofline.hpp"

namespace dflop {

/// An AnalyticCostModel prices compute by a roofline, prices communication by latency and bandwidth, and
/// counts bytes of memory. It has no state and is safe to use from several threads.
///
/// On a cluster with several GPU types, the model prices a program's instructions for the GPUs of the ranks
/// that run them; a tp group takes as long as its slowest rank. Calls that name no rank answer for all GPU
/// types: compute() returns the slowest type's time, while convex_floor() and optimizer_step(), which lower
/// bounds rely on, return times that no type beats.
class AnalyticCostModel final : public SumCostModel {
 public:
  AnalyticCostModel(ModelSpec model, ClusterSpec cluster);

  /// Prices front, layers, connector, embedding and head of the stage by roofline, with recomputation and
  /// tensor-parallel communication. Each layer takes two all-reduces of tokens * hidden in bf16 forward and
  /// two backward; full recomputation repeats the forward ones (Narayanan et al. 2021). Under sequence
  /// parallelism, each is an all-gather and a reduce-scatter of the same volume (Korthikanti et al. 2022;
  /// their extra all-gather for the weight gradients overlaps with compute). The connector adds one
  /// all-reduce forward (output) and one backward (input), the embedding one forward, and the head one
  /// backward. Only layers are recomputed. backward = backward_input + backward_weight; the weight part holds
  /// only the products for weight gradients. No pass is shorter than the host's time to launch its kernels:
  /// layer_launch for each layer's forward pass, once more if the layer is recomputed, and as long for the
  /// backward pass, half of it for inputs and half for weights. Kernels are queued, so this floor applies to
  /// the whole pass and not to each kernel. On a share of a GPU, Processor gives each kernel's time;
  /// communication and launches take as long as on a whole GPU.
  ///
  /// Frozen parts (TrainedParts) have no products for weight gradients, and frozen parts before all trained
  /// parts have no backward pass and no recomputation: a frozen encoder runs only forward, a frozen LLM runs
  /// forward and computes input gradients. The first layer's input gradient is counted even if only LoRA
  /// pairs are trained, when nothing needs it.
  /// @throws Error (internal) for an op that is not compute
  Seconds compute(Op op, const Stage& stage, const Work& work) const override;

  Seconds both_passes(const Stage& stage, const Work& work) const override;

  /// Returns compute(), which consists of sums and maxima of functions that are affine in the counts. With
  /// several GPU types, it assumes a GPU with the best figures of all types. A microbatch may have work for
  /// only one of two encoders, so for models with two, the part of their times that any work takes is left
  /// out.
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override;

  Seconds message(const Message& message, const Program& program) const override {
    return message_time(cluster_, message, program);
  }
  Seconds all_reduce(const Collective& collective, const Program& program) const override {
    return all_reduce_time(cluster_, collective, program);
  }

  /// Prices the Adam update by its memory traffic: 30 bytes for each parameter whose states the rank owns (1
  /// / dp of them under ZeRO-1). It reads the fp32 gradient, parameter, mean and variance (16), and writes
  /// the last three (12) and the bf16 parameter (2). With OptimizerStates::bf16 it reads four values of 2
  /// bytes and writes three: 14. all_reduce() charges the all-gather that follows under ZeRO-1.
  Seconds optimizer_step(const Stage& stage) const override;

  bool knows_shares() const override { return true; }

  /// Returns the stage's memory traffic time at full bandwidth, divided by compute().
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
  /// Returns the share of its GPUs that the stage is granted.
  double granted_share(const Stage& stage) const;
  Processor processor_of(const Stage& stage) const {
    return stage.share == 1 ? Processor(cluster_) : Processor(cluster_, granted_share(stage));
  }
  /// LayerTimes holds the times of one layer of each module on a stage.
  struct LayerTimes {
    PassTimes encoder;
    PassTimes llm;
  };
  LayerTimes layers_of(const Processor& gpu, const Stage& stage, const Work& work) const;
  /// Returns the times of one layer with trained or frozen weights, including LoRA's pairs if `lora_rank` is
  /// not 0.
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
  PassTimes least_encoder_times(const Processor& gpu, const Stage& stage, const Work& work) const;
  /// Returns the times of a stage, none shorter than its kernel launches. @pre the cluster is not mixed
  PassTimes launched_times(const Processor& gpu, const Stage& stage, const Work& work,
                           const LayerTimes& layers) const;
  /// Returns the host's time to launch the passes of all layers.
  PassTimes launch_times(const Stage& stage, const Work& work) const;
  /// Returns the time of an all-reduce of one bf16 tensor over the stage's tp ranks.
  Seconds tensor_all_reduce(const Processor& gpu, const Stage& stage, double tokens, int width) const {
    if (gpu.is_of_traffic()) return Seconds(0);
    const double seen = 1 - cluster_.software.tensor_overlap;
    return seen * tensor_all_reduce_time(cluster_, stage.tp, kBf16Bytes * tokens * width);
  }

  ModelSpec model_;
  ClusterSpec cluster_;
  std::vector<AnalyticCostModel> second_;  ///< of ModelSpec::of_second(), if there is a second encoder
  // Filled only for a mixed cluster:
  std::vector<AnalyticCostModel> types_;    ///< one for each type of GPU
  std::vector<int> type_of_node_;           ///< index into types_
  std::vector<AnalyticCostModel> fastest_;  ///< one element: the best figures of all types
};

}  // namespace dflop
