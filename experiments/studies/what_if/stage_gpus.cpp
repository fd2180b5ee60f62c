#include "experiments/studies/what_if/stage_gpus.hpp"

#include <fmt/format.h>

namespace dflop {

StageGpus::StageGpus(const std::map<int, ClusterSpec>& gpus, const ModelSpec& model,
                     const ClusterSpec& cluster)
    : cluster_(cluster) {
  for (const auto& [stage, other] : gpus) {
    ClusterSpec mixed = cluster;
    mixed.gpu = other.gpu;
    mixed.software = other.software;  // only for kernels: messages and reductions use the plan's cluster
    mixed.software.message_overhead = cluster.software.message_overhead;
    mixed.software.node_ring_bandwidth_bytes_per_s = cluster.software.node_ring_bandwidth_bytes_per_s;
    costs_.try_emplace(stage, StageCost{mixed.gpu, AnalyticCostModel(model, mixed)});
  }
}

void StageGpus::reprice(const Iteration& iteration, ProgramCosts& costs) const {
  for (const auto& [stage, other] : costs_) {
    const ProgramCosts priced = price(other.cost, iteration);
    for (std::size_t i = 0; i < iteration.program.instructions.size(); ++i) {
      if (iteration.program.instructions[i].stage != stage) continue;
      costs.instruction[i] = priced.instruction[i];
      costs.activation[i] = priced.activation[i];
      costs.workspace[i] = priced.workspace[i];
    }
  }
}

const GpuSpec& StageGpus::gpu_of(const GroupUsage& group) const {
  const auto other = costs_.find(group.stage);
  return other != costs_.end() ? other->second.gpu : cluster_.gpu_of(group.first_rank);
}

double StageGpus::peak_flop_per_s(const Timeline& timeline) const {
  double sum = cluster_.peak_flop_per_s();
  if (costs_.empty()) return sum;
  for (const GroupUsage& group : timeline.groups) {
    sum += group.ranks * (gpu_of(group).peak_flop_per_s - cluster_.gpu.peak_flop_per_s);
  }
  return sum;
}

std::optional<std::string> StageGpus::out_of_memory(std::span<const Timeline> timelines) const {
  for (const Timeline& timeline : timelines) {
    for (const GroupUsage& group : timeline.groups) {
      const Bytes usable = usable_memory(group);
      if (group.peak_memory <= usable) continue;
      return fmt::format("out of memory, rank {} ({}, {}) needs {:.1f} GiB; {:.1f} GiB are usable",
                         group.first_rank, timeline.stages[group.stage], gpu_of(group).name,
                         static_cast<double>(group.peak_memory.count) * 0x1p-30,
                         static_cast<double>(usable.count) * 0x1p-30);
    }
  }
  return std::nullopt;
}

}  // namespace dflop
