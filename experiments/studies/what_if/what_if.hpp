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

/// A NoteOnce prints a note about an option only once, even if it is copied.
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
  latency_bandwidth,  ///< each takes as long as if nothing else used the links
  contention,         ///< they share the links
};

template <>
inline constexpr NameTable<NetworkModel, 3> kNames<NetworkModel> = {
    {{NetworkModel::none, "none"},
     {NetworkModel::latency_bandwidth, "latency-bandwidth"},
     {NetworkModel::contention, "contention"}}};

/// A GpuRole selects GPUs by their effect on a run. Plans number their ranks differently, so the same rank
/// number has different roles in different plans.
enum class GpuRole : std::uint8_t {
  worst,  ///< the GPU with which the run is longest
  each,   ///< each in turn
};

template <>
inline constexpr NameTable<GpuRole, 2> kNames<GpuRole> = {
    {{GpuRole::worst, "worst"}, {GpuRole::each, "each"}}};

/// ConditionedInputs are a program's inputs after applying the conditions.
struct ConditionedInputs {
  ProgramCosts costs;
  Conditions conditions;
  std::vector<double> bandwidth_factor;  ///< per group: the remaining fraction of its bandwidth; empty: all
                                         ///< of it
  std::optional<int> gpu = {};           ///< the GPU in turn, if a condition names a role
};

/// A WhatIf holds the effects of the conditions that a user requested.
/// experiments/options/conditions.cpp has a row for each condition.
struct WhatIf {
  std::optional<NetworkModel> network;  ///< none: the input's network
  std::vector<std::function<void(ClusterSpec&)>> cluster_changes;
  std::vector<std::function<void(const Program&, ConditionedInputs&)>> program_changes;
  /// These changes differ between the runs of a seed.
  std::vector<std::function<void(ProgramCosts&, std::uint64_t seed, std::uint64_t run)>> run_changes;
  int repeat = 1;
  std::uint64_t seed = 1;
  std::optional<GpuRole> role = {};  ///< conditions apply to the GPU with this role: run_roles() in
                                     ///< trust/roles.hpp
  std::optional<int> gpu = {};       ///< the GPU in turn
  bool names_ranks = false;          ///< whether a condition names a rank by its number
  bool takes_roles = true;           ///< if false, conditions for a role are rejected when they are read
  /// For a plan whose compute is priced, not measured: the model for repricing tensor-parallel messages,
  /// which are part of compute, if links are slower or take no time.
  const ModelSpec* model = nullptr;

  /// Applies the changes to the cluster's network.
  void apply(ClusterSpec& cluster) const {
    for (const auto& change : cluster_changes) change(cluster);
  }
};

/// A NetworkMaker makes the links of a program, with each group's bandwidth scaled (empty: unscaled).
using NetworkMaker = std::function<Network(const std::vector<double>& bandwidth_factor)>;

/// A LinkRetimer changes compute durations to match each group's bandwidth factor; infinite means links take
/// no time.
using LinkRetimer = std::function<void(ProgramCosts&, const std::vector<double>& bandwidth_factor)>;

/// A ConditionedProgram is a program under the conditions of a what-if. Everything that its runs share is
/// made once.
class ConditionedProgram {
 public:
  /// Applies the conditions. `what_if` and `program` must outlive it. The program runs on `cores` unless the
  /// what-if sets the cores.
  /// @throws Error (usage) naming the option whose rank or stage the program does not have, or if the sum of
  /// durations is too large.
  ConditionedProgram(const WhatIf& what_if, const Program& program, ProgramCosts costs, NetworkModel network,
                     const NetworkMaker& make_network, int cores = 0, const LinkRetimer& retime = {});
  ConditionedProgram(const ConditionedProgram&) = delete;  // the conditions refer to the network

  /// Returns the costs of a run. `run` distinguishes the runs of one seed, which differ in their jitter.
  /// @throws Error (usage) if the sum of durations is too large.
  ProgramCosts costs(std::uint64_t run) const;
  const Conditions& conditions() const { return inputs_.conditions; }

  /// Simulates a run. Safe from several threads.
  Timeline run(std::uint64_t run, Detail detail) const;

 private:
  const WhatIf& what_if_;
  const Program& program_;
  ConditionedInputs inputs_;  ///< without the changes that differ between runs
  std::optional<Network> network_;
};

/// A WhatIfExecutor simulates iterations of plans on a cluster under a what-if; Iteration::number is the run.
class WhatIfExecutor final : public Executor {
 public:
  /// A Reprice changes the costs of an iteration before the conditions do.
  using Reprice = std::function<void(const Iteration&, ProgramCosts&)>;

  /// `what_if` and `cluster` must outlive the executor.
  WhatIfExecutor(const WhatIf& what_if, const ClusterSpec& cluster, Reprice reprice = {})
      : what_if_(what_if), cluster_(cluster), reprice_(std::move(reprice)) {}

  /// Makes what all runs of an iteration share; the iteration must outlive it. @throws as ConditionedProgram
  ConditionedProgram condition(const Iteration& iteration) const;

  Timeline run(const Iteration& iteration, Detail detail) const override {
    return condition(iteration).run(iteration.number, detail);
  }

 private:
  const WhatIf& what_if_;
  const ClusterSpec& cluster_;
  Reprice reprice_;
};

/// The makespan of a run that stalls is infinite.
inline constexpr Seconds kStalledMakespan{std::numeric_limits<double>::infinity()};

/// Returns the makespan of a run, or kStalledMakespan if it stalled.
Seconds time_to_end(const Timeline& timeline);

/// Runs `count` simulations on all cores and returns their makespans in order: run(i) returns the i-th.
std::vector<Seconds> run_all(std::size_t count, const std::function<Seconds(std::size_t)>& run);

/// Replaces the times, rates and idle fraction of an evaluation by means over repeated runs of all its
/// iterations. It keeps the timelines and memory of the first run.
/// @param times, idle  of each iteration of each run; times of kStalledMakespan do not count
/// @pre at least one run ends
void take_means(Evaluation& evaluation, std::vector<Seconds> times, std::span<const double> idle);

/// Returns how many runs end, their mean, p50, p95, p99, min and max; and how many stall, if any.
/// @pre at least one ends
Table distribution_table(std::vector<Seconds> makespans);

/// Prints the state of a stalled run's groups, naming the `run` and its `groups`, such as "tp groups".
/// Returns the exit code.
int report_stall(Format format, const Timeline& timeline, const std::string& run, const std::string& groups);

}  // namespace dflop
