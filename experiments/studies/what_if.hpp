// What-ifs are the conditions of simulated runs (network, stragglers, jitter, faults), and how often to run.
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
#include "experiments/studies/options.hpp"
#include "experiments/studies/study.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// A NoteOnce says once, of all its copies, what is to be known of an option.
class NoteOnce {
 public:
  void say(const std::string& text) const;
  /// Says that an option changes nothing.
  void say_that(const std::string& option, const std::string& why) const;

 private:
  std::shared_ptr<std::atomic<bool>> said_ = std::make_shared<std::atomic<bool>>(false);
};

enum class NetworkModel : std::uint8_t {
  none,               ///< messages and collectives take no time
  latency_bandwidth,  ///< each takes as long as with nothing else on the links
  contention,         ///< they share the links
};

template <>
inline constexpr NameTable<NetworkModel, 3> kNames<NetworkModel> = {
    {{NetworkModel::none, "none"},
     {NetworkModel::latency_bandwidth, "latency-bandwidth"},
     {NetworkModel::contention, "contention"}}};

/// A GpuRole names GPUs by what they do to a run: plans number their ranks each in its own way, so that a
/// rank's number means another role in another plan.
enum class GpuRole : std::uint8_t {
  worst,  ///< the one with which the run is longest
  each,   ///< each in turn
};

template <>
inline constexpr NameTable<GpuRole, 2> kNames<GpuRole> = {
    {{GpuRole::worst, "worst"}, {GpuRole::each, "each"}}};

/// ConditionedInputs are what conditions make of a program before it runs.
struct ConditionedInputs {
  ProgramCosts costs;
  Conditions conditions;
  std::vector<double> bandwidth_factor;  ///< per group: what part its links have of theirs; empty: all
  std::optional<int> gpu = {};           ///< whose turn it is where conditions name a role
};

/// A WhatIf holds what the conditions that a user asked for do, each as its row in
/// experiments/studies/what_if.cpp says.
struct WhatIf {
  std::optional<NetworkModel> network;  ///< none: as the input says
  std::vector<std::function<void(ClusterSpec&)>> cluster_changes;
  std::vector<std::function<void(const Program&, ConditionedInputs&)>> program_changes;
  /// These changes differ from run to run of a seed.
  std::vector<std::function<void(ProgramCosts&, std::uint64_t seed, std::uint64_t run)>> run_changes;
  int repeat = 1;
  std::uint64_t seed = 1;
  std::optional<GpuRole> role = {};  ///< conditions are of this role's GPU: run_roles() of trust/roles.hpp
  std::optional<int> gpu = {};       ///< whose turn it is
  bool names_ranks = false;          ///< a condition is of a rank by its number
  bool takes_roles = true;           ///< false: conditions of a role are refused as they are read
  /// Of a plan whose compute is priced, not measured: the model with which tensor parallel messages, which
  /// are a part of compute, are priced anew where links are slower or take no time.
  const ModelSpec* model = nullptr;

  /// Gives the cluster another network.
  void apply(ClusterSpec& cluster) const {
    for (const auto& change : cluster_changes) change(cluster);
  }
};

/// A NetworkMaker makes the links of a program, each group's bandwidth scaled (empty: none is).
using NetworkMaker = std::function<Network(const std::vector<double>& bandwidth_factor)>;

/// Gives compute another duration where the links of each group have this factor of their bandwidth;
/// infinite: they take no time.
using LinkRetimer = std::function<void(ProgramCosts&, const std::vector<double>& bandwidth_factor)>;

/// A ConditionedProgram is a program under the conditions of a what-if. What all of its runs share is made
/// once.
class ConditionedProgram {
 public:
  /// Applies the conditions. `what_if` and `program` must outlive it. The program runs on `cores` where the
  /// what-if says nothing of them.
  /// @throws Error (usage) naming the option whose rank or stage the program has not, or where durations are
  /// together too long.
  ConditionedProgram(const WhatIf& what_if, const Program& program, ProgramCosts costs, NetworkModel network,
                     const NetworkMaker& make_network, int cores = 0, const LinkRetimer& retime = {});
  ConditionedProgram(const ConditionedProgram&) = delete;  // the conditions refer to the network

  /// Returns what a run costs; `run` tells apart runs of one seed, which differ in their jitter.
  /// @throws Error (usage) where durations are together too long.
  ProgramCosts costs(std::uint64_t run) const;
  const Conditions& conditions() const { return inputs_.conditions; }

  /// Simulates a run. Safe from several threads.
  Timeline run(std::uint64_t run, Detail detail) const;

 private:
  const WhatIf& what_if_;
  const Program& program_;
  ConditionedInputs inputs_;  ///< without what differs from run to run
  std::optional<Network> network_;
};

/// A WhatIfExecutor simulates iterations of plans on a cluster under a what-if; Iteration::number is the run.
class WhatIfExecutor final : public Executor {
 public:
  /// Changes what an iteration costs before the conditions do.
  using Reprice = std::function<void(const Iteration&, ProgramCosts&)>;

  /// Takes what-if and cluster, which outlive it.
  WhatIfExecutor(const WhatIf& what_if, const ClusterSpec& cluster, Reprice reprice = {})
      : what_if_(what_if), cluster_(cluster), reprice_(std::move(reprice)) {}

  /// Makes what all runs of an iteration share, which must outlive it. @throws as ConditionedProgram
  ConditionedProgram condition(const Iteration& iteration) const;

  Timeline run(const Iteration& iteration, Detail detail) const override {
    return condition(iteration).run(iteration.number, detail);
  }

 private:
  const WhatIf& what_if_;
  const ClusterSpec& cluster_;
  Reprice reprice_;
};

/// Notes on standard error that --fail, where it was given, has failed no rank of these runs, which all
/// ended. Says nothing beside --repeat, which counts those of its runs that stall.
void note_nothing_failed(const Values& values, std::span<const Timeline> timelines);

/// Adds the conditions of programs, from --network to --jitter, and --repeat and --seed. Without `with_roles`
/// their help says nothing of a GPU's role.
void add_what_if_options(Options& options, bool with_roles = true);
/// Adds the conditions of clusters, which plans have: --collectives, --leaf and the bandwidths of links.
void add_cluster_what_if_options(Options& options);
/// Adds the bandwidths of links alone, for commands that plan or schedule.
void add_link_options(Options& options);
/// Returns what these make of a cluster. @throws Error (usage) as read_what_if()
std::function<void(ClusterSpec&)> read_link_changes(const Values& values);
/// This is why they are refused beside '--profile', which has measured links.
inline constexpr const char* kMeasuredLinks =
    "is of the cluster's links, in whose place '--profile' has what was measured";
/// Returns their names, for what refuses them.
std::vector<const char*> link_option_names();
/// Returns the names of these and of the other conditions of clusters, for what has no cluster to refuse
/// them.
std::vector<const char*> cluster_condition_names();

/// Reads all conditions, without `with_roles` none of a GPU's role. @throws Error (usage) naming the option,
/// what was expected and what was found.
WhatIf read_what_if(const Values& values, bool with_roles = true);

/// Returns the conditions of programs that were asked for, as "slow rank=3:1.5, jitter 0.1"; empty: none.
std::string conditions_name(const Values& values);

/// The makespan of a run that stalls is as long as nothing else.
inline constexpr Seconds kStalledMakespan{std::numeric_limits<double>::infinity()};

/// Returns the makespan of a run, kStalledMakespan if it stalled.
Seconds time_to_end(const Timeline& timeline);

/// Runs `count` things on all cores and returns their makespans in order: run(i) gives the i-th.
std::vector<Seconds> run_all(std::size_t count, const std::function<Seconds(std::size_t)>& run);

/// Replaces the times, rates and idle fraction of an evaluation by means over repeated runs of all its
/// iterations. Its timelines and memory stay those of the first run.
/// @param times, idle  of each iteration of each run; times of kStalledMakespan do not count
/// @pre one run ends
void take_means(Evaluation& evaluation, std::vector<Seconds> times, std::span<const double> idle);

/// Returns how many runs end, their mean, p50, p95, p99, least and most; and how many stall, where some do.
/// @pre at least one ends
Table distribution_table(std::vector<Seconds> makespans);

/// Prints what stands where in a run that stalled, and says so of `run` and its `groups`, as "tp groups".
/// Returns the exit code.
int report_stall(Format format, const Timeline& timeline, const std::string& run, const std::string& groups);

}  // namespace dflop
