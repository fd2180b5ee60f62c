// What-if inputs of simulated runs: the network, stragglers, jitter, faults, and how often to run.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/iteration/executor.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/studies/options.hpp"
#include "sim/conditions.hpp"

namespace dflop {

enum class NetworkModel : std::uint8_t {
  none,               ///< messages and collectives take no time
  latency_bandwidth,  ///< each takes as long as with nothing else on the links
  contention,         ///< they share the links
};

/// A rank, or all ranks of a stage, and a number.
struct Affected {
  bool stage = false;
  int index = 0;
  double factor = 1;
};

struct PausedRank {
  int rank = 0;
  Seconds start{0};
  std::optional<Seconds> duration;  ///< none: it fails
};

/// Makes the links of a program, each group's bandwidth scaled.
using NetworkMaker = std::function<Network(const std::vector<double>& bandwidth_factor)>;

struct WhatIf {
  std::optional<NetworkModel> network;  ///< none: as the input says
  std::optional<CollectiveAlgorithm> collectives;
  std::optional<LeafSwitches> leaf;
  std::vector<Affected> slow;        ///< compute takes factor times as long
  std::vector<Affected> slow_links;  ///< bandwidth is factor times as high
  double jitter = 0;                 ///< sigma
  std::vector<PausedRank> pauses;
  std::optional<int> cores;  ///< as Conditions::cores; none: as the input says
  int repeat = 1;
  std::uint64_t seed = 1;

  /// The cluster with another network.
  void apply(ClusterSpec& cluster) const;
};

/// A program under the conditions of a what-if. What all of its runs share is made once.
class ConditionedProgram {
 public:
  /// `what_if` and `program` must outlive it.
  /// `cores`: where the what-if says nothing of them.
  /// @throws Error (usage) naming the option whose rank or stage the program has not, or where durations are
  /// together too long.
  ConditionedProgram(const WhatIf& what_if, const Program& program, ProgramCosts costs, NetworkModel network,
                     const NetworkMaker& make_network, int cores = 0);
  ConditionedProgram(const ConditionedProgram&) = delete;  // the conditions refer to the network

  /// What a run costs; `run` tells apart runs of one seed, which differ in their jitter.
  /// @throws Error (usage) where durations are together too long.
  ProgramCosts costs(std::uint64_t run) const;
  const Conditions& conditions() const { return conditions_; }

  /// Safe from several threads.
  Timeline run(std::uint64_t run, Detail detail) const;

 private:
  const WhatIf& what_if_;
  const Program& program_;
  ProgramCosts costs_;  ///< without jitter
  std::optional<Network> network_;
  Conditions conditions_;
};

/// --network, --slow, --slow-link, --jitter, --pause, --fail, --cores, --repeat, --seed.
void add_what_if_options(Options& options);
/// --collectives, --leaf: of plans, which have a cluster.
void add_cluster_what_if_options(Options& options);

/// Reads them. @throws Error (usage) naming the option, what was expected and what was found.
WhatIf read_what_if(const Values& values);

/// Stands for the makespan of a run that stalls.
inline constexpr Seconds kNever{std::numeric_limits<double>::infinity()};

/// The makespan of a run, kNever if it stalled.
Seconds time_to_end(const Timeline& timeline);

/// Runs `count` things on all cores and returns their makespans in order: run(i) gives the i-th.
std::vector<Seconds> run_all(std::size_t count, const std::function<Seconds(std::size_t)>& run);

/// Runs that end, their mean, p50, p95, p99, least and most; and how many stall, where some do.
/// @pre at least one ends
Table distribution_table(std::vector<Seconds> makespans);

/// Prints what stands where in a run that stalled, and says so of `run` and its `groups`, as "tp groups".
/// Returns the exit code.
int report_stall(Format format, const Timeline& timeline, const std::string& run, const std::string& groups);

}  // namespace dflop
