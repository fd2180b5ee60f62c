// StageGpus gives some stages of a plan a different GPU type than the rest of the cluster.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "core/iteration/iteration.hpp"
#include "core/timeline.hpp"
#include "costmodel/analytic/analytic.hpp"

namespace dflop {

class StageGpus {
 public:
  /// Runs each stage in `gpus` on the GPU type of the cluster that `gpus` maps it to. These clusters must
  /// have one GPU type each. Links and nodes stay unchanged: those of `cluster`, which must outlive this
  /// object.
  StageGpus(const std::map<int, ClusterSpec>& gpus, const ModelSpec& model, const ClusterSpec& cluster);

  /// Reprices the compute and memory of the stages with other GPUs in an iteration; other costs stay
  /// unchanged.
  void reprice(const Iteration& iteration, ProgramCosts& costs) const;

  /// Returns a message about the first rank that needs more memory than its GPU has; nullopt if all ranks
  /// fit.
  std::optional<std::string> out_of_memory(std::span<const Timeline> timelines) const;

  /// Returns the usable memory of the GPU of the first rank in a group.
  Bytes usable_memory(const GroupUsage& group) const { return gpu_of(group).usable_memory(); }

  /// Returns the total peak FLOP/s of all GPUs of the cluster, including GPUs without a rank. `timeline` is a
  /// run of the plan.
  double peak_flop_per_s(const Timeline& timeline) const;

  bool empty() const { return costs_.empty(); }

 private:
  struct StageCost {
    GpuSpec gpu;
    AnalyticCostModel cost;
  };

  const GpuSpec& gpu_of(const GroupUsage& group) const;

  const ClusterSpec& cluster_;
  std::map<int, StageCost> costs_;  ///< by stage
};

}  // namespace dflop
