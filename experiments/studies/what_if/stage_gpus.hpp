// StageGpus puts some stages of a plan on another type of GPU than the rest of the cluster.
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
  /// Runs each stage of `gpus` on the GPUs of its cluster, which has GPUs of one type. Links and nodes stay
  /// `cluster`'s. `cluster` must outlive this.
  StageGpus(const std::map<int, ClusterSpec>& gpus, const ModelSpec& model, const ClusterSpec& cluster);

  /// Reprices the compute and memory of these stages in an iteration; other costs stay unchanged.
  void reprice(const Iteration& iteration, ProgramCosts& costs) const;

  /// Returns a message about a rank of any stage that needs more memory than its GPU has; nothing if all fit.
  std::optional<std::string> out_of_memory(std::span<const Timeline> timelines) const;

  /// Returns the usable memory of the GPU of the first rank in a group.
  Bytes usable_memory(const GroupUsage& group) const { return gpu_of(group).usable_memory(); }

  /// Returns the total peak of all GPUs of the cluster, including those without a rank, for a run of the
  /// plan.
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
