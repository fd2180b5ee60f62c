// What-ifs are conditions of simulated runs: network, stragglers, jitter, faults, and the number of
// repetitions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/iteration/iteration.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/studies/evaluation.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// A NoteOnce prints only one note; its copies share this limit.
class NoteOnce {
 public:
  void say(const std::string& text) const;
  /// Prints a note that an option changes nothing, and why.
  void say_that(const std::string& option, const std::string& why) const;

 private:
  std::shared_ptr<std::atomic<bool>> said_ = std::make_shared<std::atomic<bool>>(false);
};

enum class NetworkModel : std::uint8_t {
  none,               ///< messages and collectives take no time
  latency_bandwidth,  ///< each message takes the time that it would take with the links to itself
  contention,         ///< messages and collectives share the links and slow each other down
};

template <>
inline constexpr NameTable<NetworkModel, 3> kNames<NetworkModel> = {
    {{NetworkModel::none, "none"},
     {NetworkModel::latency_bandwidth, "latency-bandwidth"},
     {NetworkModel::contention, "contention"}}};

/// A GpuRole selects GPUs by their effect on a run. Plans number their ranks differently, so the same rank
/// number has different roles in different plans.
enum class GpuRole : std::uint8_t {
  worst,  ///< the GPU for which the run is longest
  each,   ///< each GPU in turn
};

template <>
inline constexpr NameTable<GpuRole, 2> kNames<GpuRole> = {
    {{GpuRole::worst, "worst"}, {GpuRole::each, "each"}}};

/// ConditionedInputs are a program's inputs after applying the conditions.
struct ConditionedInputs {
  ProgramCosts costs;
  Conditions conditions;
  /// For each group: factor of its bandwidth; empty: all bandwidths are unchanged.
  std::vector<double> bandwidth_factor;
  std::optional<int> gpu = {};  ///< the GPU that has the role in this run, if a condition names a role
};

/// A WhatIf holds the effects of the conditions that a user requested.
/// experiments/options/conditions.cpp has a row for each condition.
struct WhatIf {
  /// Network model that the user requested; none: the default of the command.
  std::optional<NetworkModel> network;
  std::vector<std::function<void(ClusterSpec&)>> cluster_changes;
  std::vector<std::function<void(const Program&, ConditionedInputs&)>> program_changes;
  /// Changes that differ between the runs of a seed, such as jitter.
  std::vector<std::function<void(ProgramCosts&, std::uint64_t seed, std::uint64_t run)>> run_changes;
  int repeat = 1;
  std::uint64_t seed = 1;
  /// The role that conditions name, if any; see run_roles() in trust/roles.hpp.
  std::optional<GpuRole> role = {};
  std::optional<int> gpu = {};  ///< the GPU that has the role in this run
  bool names_ranks = false;     ///< whether a condition names a rank by its number
  bool takes_roles = true;      ///< if false, conditions for a role are rejected when they are read
  /// The model of a plan whose compute times are analytic, not measured. Compute includes tensor-parallel
  /// messages; the model is needed to reprice them if links are slower or take no time.
  const ModelSpec* model = nullptr;

  /// Applies the changes to the cluster's network.
  void apply(ClusterSpec& cluster) const {
    for (const auto& change : cluster_changes) change(cluster);
  }
};

/// A NetworkMaker makes the network of a program. It multiplies each group's bandwidth by its factor; if
/// there are no factors, bandwidths stay unchanged.
using NetworkMaker = std::function<Network(const std::vector<double>& bandwidth_factor)>;

/// A LinkRetimer adapts compute durations, which include tensor-parallel messages, to each group's bandwidth
/// factor. An infinite factor means that links take no time.
using LinkRetimer = std::function<void(ProgramCosts&, const std::vector<double>& bandwidth_factor)>;

/// A ConditionedProgram is a program under the conditions of a what-if. It computes only once what all runs
/// share.
class ConditionedProgram {
 public:
  /// Applies the conditions. `what_if` and `program` must outlive it. The program runs on `cores` unless the
  /// what-if sets the cores.
  /// @throws Error (usage) naming an option whose rank or stage the program does not have, or if the sum of
  /// durations is too large
  ConditionedProgram(const WhatIf& what_if, const Program& program, ProgramCosts costs, NetworkModel network,
                     const NetworkMaker& make_network, int cores = 0, const LinkRetimer& retime = {});
  ConditionedProgram(const ConditionedProgram&) = delete;  // the conditions refer to the network

  /// Returns the costs of run number `run`. The runs of one seed differ in their jitter.
  /// @throws Error (usage) if the sum of durations is too large.
  ProgramCosts costs(std::uint64_t run) const;
  const Conditions& conditions() const { return inputs_.conditions; }

  /// Simulates run number `run`. Several threads may call it at the same time.
  Timeline run(std::uint64_t run, Detail detail) const;

 private:
  const WhatIf& what_if_;
  const Program& program_;
  ConditionedInputs inputs_;  ///< without the changes that differ between runs
  std::optional<Network> network_;
};

/// A WhatIfExecutor simulates iterations of plans on a cluster under a what-if. Iteration::number is the
/// number of the run.
class WhatIfExecutor final : public Executor {
 public:
  /// A Reprice changes the costs of an iteration before the conditions are applied.
  using Reprice = std::function<void(const Iteration&, ProgramCosts&)>;

  /// `what_if` and `cluster` must outlive the executor.
  WhatIfExecutor(const WhatIf& what_if, const ClusterSpec& cluster, Reprice reprice = {})
      : what_if_(what_if), cluster_(cluster), reprice_(std::move(reprice)) {}

  /// Applies the conditions to an iteration, which must outlive the result. @throws what ConditionedProgram
  /// throws
  ConditionedProgram condition(const Iteration& iteration) const;

  Timeline run(const Iteration& iteration, Detail detail) const override {
    return condition(iteration).run(iteration.number, detail);
  }

 private:
  const WhatIf& what_if_;
  const ClusterSpec& cluster_;
  Reprice reprice_;
};

/// The makespan of a run that stalled.
inline constexpr Seconds kStalledMakespan{std::numeric_limits<double>::infinity()};

/// Returns the makespan of a run, or kStalledMakespan if it stalled.
Seconds time_to_end(const Timeline& timeline);

/// Calls run(0) to run(count - 1) on all cores and returns their results, the makespans, in this order.
std::vector<Seconds> run_all(std::size_t count, const std::function<Seconds(std::size_t)>& run);

/// Replaces the times, rates and idle fraction of an evaluation by means over repeated runs of all its
/// iterations. It keeps the timelines and memory of the first run.
/// @param times, idle  makespan and idle fraction of each iteration of each run; stalled ones
/// (kStalledMakespan) are ignored
/// @pre at least one run finishes
void take_means(Evaluation& evaluation, std::vector<Seconds> times, std::span<const double> idle);

/// Returns a table with the number of runs that finished; the mean, p50, p95, p99, min and max of their
/// makespans; and, if runs stalled, their number.
/// @pre at least one run finished
Table distribution_table(std::vector<Seconds> makespans);

/// Prints the state of a stalled run's groups, and returns the exit code. The text calls the run `run`, such
/// as "iteration 3", and its groups `groups`, such as "tp groups".
int report_stall(Format format, const Timeline& timeline, const std::string& run, const std::string& groups);

}  // namespace dflop
