#include "experiments/studies/what_if/reductions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "costmodel/analytic/communication.hpp"

namespace dflop {
namespace {

using Limit = std::pair<std::string_view, Seconds ReductionTimes::*>;

constexpr std::array<Limit, 4> kLimits = {{{"latency", &ReductionTimes::latency},
                                           {"intra_node bandwidth", &ReductionTimes::intra_node},
                                           {"inter_node bandwidth", &ReductionTimes::inter_node},
                                           {"node_ring_bandwidth", &ReductionTimes::node_ring}}};

std::string_view binding(const ReductionTimes& times) {
  return std::ranges::max_element(kLimits, {}, [&](const Limit& limit) { return times.*limit.second; })
      ->first;
}

/// A StageReduction is the longest reduction of a stage.
struct StageReduction {
  const Collective* longest = nullptr;
  ReductionTimes times;
  std::int64_t count = 0;
};

std::map<int, StageReduction> reductions_of(const Program& program, const ClusterSpec& cluster) {
  std::map<std::int32_t, int> stage_of;  // by collective
  for (const Instruction& instruction : program.instructions) {
    if (enters_collective(instruction.op)) stage_of[instruction.index] = instruction.stage;
  }
  std::map<int, StageReduction> reductions;
  for (const auto& [index, stage] : stage_of) {
    const Collective& collective = program.collectives[index];
    if (collective.participants() < 2 || collective.sum != CollectiveSum::gradients) continue;
    StageReduction& reduction = reductions[stage];
    const ReductionTimes times = reduction_times(cluster, collective, program);
    ++reduction.count;
    if (reduction.longest != nullptr && times.sum() <= reduction.times.sum()) continue;
    reduction.longest = &collective;
    reduction.times = times;
  }
  return reductions;
}

std::int64_t nodes_of(const Program& program, const ClusterSpec& cluster, const Collective& collective) {
  std::set<int> nodes;
  for (const std::int32_t group : collective.groups)
    nodes.insert(cluster.node_of(program.first_device(program.groups[group])));
  return static_cast<std::int64_t>(nodes.size());
}

/// Sums one part of the time of all reductions. The sum is zero if no reduction waits for this part.
Seconds sum_of(const std::map<int, StageReduction>& reductions, Seconds ReductionTimes::*part) {
  Seconds sum(0);
  for (const auto& [stage, reduction] : reductions) sum += reduction.times.*part;
  return sum;
}

std::string gigabytes(double bytes_per_s) {
  return fmt::format("{:.4g} GB/s", bytes_per_s / 1e9);
}

Table reduction_table(const Program& program, const ClusterSpec& cluster) {
  Table table;
  table.columns = {{"stage", "stage"},
                   {"reductions", "reductions"},
                   {"groups", "groups"},
                   {"nodes", "nodes"},
                   {"longest_s", "longest s", 4},
                   {"latency_s", "latency s", 4},
                   {"intra_node_s", "in node s", 4},
                   {"inter_node_s", "between nodes s", 4},
                   {"node_ring_s", "node ring s", 4},
                   {"bound_by", "bound by"}};
  for (const auto& [stage, reduction] : reductions_of(program, cluster)) {
    const ReductionTimes& times = reduction.times;
    table.rows.push_back({static_cast<std::int64_t>(stage), reduction.count,
                          static_cast<std::int64_t>(reduction.longest->participants()),
                          nodes_of(program, cluster, *reduction.longest), times.sum().count(),
                          times.latency.count(), times.intra_node.count(), times.inter_node.count(),
                          times.node_ring.count(), std::string(binding(times))});
  }
  return table;
}

std::vector<std::string> idle_bandwidths(const Program& program, const ClusterSpec& cluster) {
  const std::map<int, StageReduction> reductions = reductions_of(program, cluster);
  if (reductions.empty()) return {};
  const bool leaves_node = std::ranges::any_of(reductions, [&](const auto& of_stage) {
    return nodes_of(program, cluster, *of_stage.second.longest) > 1;
  });
  const double ring = cluster.software.node_ring_bandwidth_bytes_per_s;
  const bool shares_ring = std::ranges::any_of(reductions, [&](const auto& of_stage) {
    return shares_node_ring(cluster, *of_stage.second.longest, program);
  });
  const auto is_idle = [&](Seconds ReductionTimes::*part) { return sum_of(reductions, part).count() == 0; };
  std::vector<std::string> lines;
  const auto add = [&](std::string_view name, double bandwidth, const std::string& why) {
    lines.push_back(
        fmt::format("raising {} above {} shortens no reduction: {}", name, gigabytes(bandwidth), why));
  };
  if (is_idle(&ReductionTimes::inter_node)) {
    const std::string why =
        !leaves_node ? "none leaves its node"
        : is_idle(&ReductionTimes::node_ring)
            ? "the links inside nodes are slower"
            : fmt::format("between nodes they share node_ring_bandwidth, {} per node", gigabytes(ring));
    add("inter_node bandwidth", cluster.inter_node.bandwidth_bytes_per_s, why);
  }
  if (ring > 0 && is_idle(&ReductionTimes::node_ring)) {
    add("node_ring_bandwidth", ring,
        shares_ring ? "the links inside nodes are slower"
                    : "none that leaves a node has several groups in it");
  }
  if (is_idle(&ReductionTimes::intra_node)) {
    add("intra_node bandwidth", cluster.intra_node.bandwidth_bytes_per_s,
        "no part of them waits for the links inside nodes");
  }
  return lines;
}

}  // namespace

ReductionExplanation explain_reductions(const Program& program, const ClusterSpec& cluster) {
  return {reduction_table(program, cluster), idle_bandwidths(program, cluster)};
}

std::string reductions_text(std::string_view which, const ReductionExplanation& reductions) {
  if (reductions.by_stage.rows.empty()) return "";
  std::string text =
      section(fmt::format("what {} wait for, on otherwise idle links", which), reductions.by_stage);
  for (const std::string& line : reductions.idle_bandwidths) text += "\n" + line;
  return text + "\n";
}

}  // namespace dflop
