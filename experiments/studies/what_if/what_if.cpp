#include "experiments/studies/what_if/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/support/parallel.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "experiments/cli/say.hpp"
#include "sim/engine.hpp"
#include "sim/network/network.hpp"

namespace dflop {
namespace {

/// Returns where each group waits in a run that did not end.
Table stall_table(const Timeline& timeline) {
  Table table;
  table.columns = {{"rank", "rank"},          {"stage", "stage"},  {"op", "in"}, {"microbatch", "microbatch"},
                   {"since_s", "since s", 4}, {"reason", "reason"}};
  for (const Stall& stall : timeline.stalls) {
    const bool computes = is_compute(stall.op) || stall.op == Op::optimizer_step;
    const std::string reason = stall.failed ? "failed"
                               : computes   ? "waits for a core"
                               : stall.awaited_rank >= 0
                                   ? fmt::format("waits for rank {}", stall.awaited_rank)
                                   : "waits for the other participants";
    table.rows.push_back({static_cast<std::int64_t>(stall.rank), timeline.stages[stall.stage],
                          std::string(to_string(stall.op)),
                          stall.microbatch < 0 ? Cell() : Cell(static_cast<std::int64_t>(stall.microbatch)),
                          Seconds(stall.since).count(), reason});
  }
  return table;
}

/// Returns an upper bound on the time of a run: everything in it one after the other.
Seconds longest(const ProgramCosts& costs, const Conditions& conditions) {
  Seconds sum(0);
  for (const Nanoseconds duration : costs.instruction) sum += duration;
  for (const Pause& pause : conditions.pauses) {
    sum += Seconds(pause.start) + (pause.duration == Pause::kForever ? Seconds(0) : Seconds(pause.duration));
  }
  if (conditions.network == nullptr) {
    for (const Nanoseconds duration : costs.message) sum += duration;
    for (const Nanoseconds duration : costs.collective) sum += duration;
    return sum;
  }
  for (const TransferPhase& phase : conditions.network->phases) {
    sum += phase.latency;
    if (phase.bytes > 0) {
      sum += Seconds(phase.bytes / conditions.network->routes[phase.route].most_bytes_per_s);
    }
  }
  return sum;
}

/// Rejects runs that may be too long, because the engine counts nanoseconds in 64 bits.
void require_countable(const ProgramCosts& costs, const Conditions& conditions) {
  const Seconds most = longest(costs, conditions);
  if (most <= kLongestRun) return;
  throw Error(ErrorKind::usage,
              fmt::format("conditions: expected a run of at most {:g} s, found durations of {:g} s in all",
                          kLongestRun.count(), most.count()));
}

constexpr double kNoTime = std::numeric_limits<double>::infinity();  // bandwidth factor of links that take no
                                                                     // time

/// Returns a cluster with the bandwidth of its links multiplied by `factor`.
ClusterSpec with_links(ClusterSpec cluster, double factor) {
  for (Link* link : {&cluster.intra_node, &cluster.inter_node}) {
    link->bandwidth_bytes_per_s *= factor;
    if (factor == kNoTime) link->latency = Seconds(0);
  }
  return cluster;
}

/// Adds to the compute of each group the difference in time of its tensor-parallel messages on slower or
/// faster links.
void retime_tensor_messages(const Iteration& iteration, const ModelSpec& model, const ClusterSpec& cluster,
                            const std::vector<double>& bandwidth_factor, ProgramCosts& costs) {
  const ProgramCosts usual = price(AnalyticCostModel(model, cluster), iteration);
  std::map<double, ProgramCosts> by_factor;
  for (std::size_t g = 0; g < iteration.program.groups.size(); ++g) {
    const Group& group = iteration.program.groups[g];
    const double factor = bandwidth_factor[g];
    if (group.ranks == 1 || factor == 1) continue;
    auto found = by_factor.find(factor);
    if (found == by_factor.end()) {
      const AnalyticCostModel slower(model, with_links(cluster, factor));
      found = by_factor.emplace(factor, price(slower, iteration)).first;
    }
    for (auto i = static_cast<std::size_t>(group.begin); i < static_cast<std::size_t>(group.end); ++i)
      costs.instruction[i] += found->second.instruction[i] - usual.instruction[i];
  }
}

}  // namespace

void NoteOnce::say(const std::string& text) const {
  if (!said_->exchange(true)) dflop::say("dflop: note: {}\n", text);
}

void NoteOnce::say_that(const std::string& option, const std::string& why) const {
  say(fmt::format("'--{}' changes nothing: {}", option, why));
}

ConditionedProgram::ConditionedProgram(const WhatIf& what_if, const Program& program, ProgramCosts costs,
                                       NetworkModel model, const NetworkMaker& make_network, int cores,
                                       const LinkRetimer& retime)
    : what_if_(what_if), program_(program), inputs_{std::move(costs), {nullptr, {}, cores}, {}, what_if.gpu} {
  for (const auto& change : what_if.program_changes) change(program, inputs_);
  std::vector<Pause>& pauses = inputs_.conditions.pauses;
  std::stable_sort(pauses.begin(), pauses.end(),
                   [](const Pause& a, const Pause& b) { return a.start < b.start; });
  if (retime && model == NetworkModel::none) {
    retime(inputs_.costs, std::vector<double>(program.groups.size(), kNoTime));
  } else if (retime && !inputs_.bandwidth_factor.empty()) {
    retime(inputs_.costs, inputs_.bandwidth_factor);
  }
  if (model == NetworkModel::contention) {
    network_ = make_network(inputs_.bandwidth_factor);
    inputs_.conditions.network = &*network_;
  } else if (model == NetworkModel::none) {
    free_communication(inputs_.costs);
  } else if (!inputs_.bandwidth_factor.empty()) {
    slow_links(inputs_.costs, program, inputs_.bandwidth_factor);
  }
  require_countable(inputs_.costs, inputs_.conditions);
}

ProgramCosts ConditionedProgram::costs(std::uint64_t run) const {
  ProgramCosts costs = inputs_.costs;
  for (const auto& change : what_if_.run_changes) change(costs, what_if_.seed, run);
  if (!what_if_.run_changes.empty()) require_countable(costs, inputs_.conditions);
  return costs;
}

Timeline ConditionedProgram::run(std::uint64_t run, Detail detail) const {
  if (what_if_.run_changes.empty()) return simulate(program_, inputs_.costs, detail, inputs_.conditions);
  return simulate(program_, costs(run), detail, inputs_.conditions);
}

ConditionedProgram WhatIfExecutor::condition(const Iteration& iteration) const {
  const Program& program = iteration.program;
  const NetworkMaker make_network = [&](const std::vector<double>& bandwidth_factor) {
    return cluster_network(program, cluster_, bandwidth_factor);
  };
  ProgramCosts costs = iteration.costs;
  if (reprice_) reprice_(iteration, costs);
  const LinkRetimer retime = [&](ProgramCosts& priced, const std::vector<double>& bandwidth_factor) {
    retime_tensor_messages(iteration, *what_if_.model, cluster_, bandwidth_factor, priced);
  };
  return {what_if_,
          program,
          std::move(costs),
          what_if_.network.value_or(NetworkModel::latency_bandwidth),
          make_network,
          0,
          what_if_.model != nullptr ? retime : LinkRetimer()};
}

std::vector<Seconds> run_all(std::size_t count, const std::function<Seconds(std::size_t)>& run) {
  constexpr std::size_t kBlocks = 100;  // updates of the progress bar
  std::vector<Seconds> makespans(count);
  Progress progress("repeating");
  const std::size_t block = (count + kBlocks - 1) / kBlocks;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t size = std::min(block, count - begin);
    parallel_for(size, [&](std::size_t i) { makespans[begin + i] = run(begin + i); });
    progress.update(static_cast<std::int64_t>(begin + size), static_cast<std::int64_t>(count));
  }
  return makespans;
}

Seconds time_to_end(const Timeline& timeline) {
  return timeline.stalls.empty() ? Seconds(timeline.makespan) : kStalledMakespan;
}

void take_means(Evaluation& evaluation, std::vector<Seconds> times, std::span<const double> idle) {
  Seconds total(0);
  Seconds idle_time(0);
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] == kStalledMakespan) continue;
    total += times[i];
    idle_time += idle[i] * times[i];
  }
  std::erase(times, kStalledMakespan);
  std::ranges::sort(times);
  const auto count = static_cast<double>(times.size());
  const double faster = evaluation.mean / (total / count);
  evaluation.mean = total / count;
  evaluation.p95 = nearest_rank(times, 0.95);
  evaluation.samples_per_s *= faster;
  evaluation.llm_tokens_per_s *= faster;
  evaluation.mfu *= faster;
  evaluation.idle_fraction = idle_time / total;
}

Table distribution_table(std::vector<Seconds> makespans) {
  const auto stalled = static_cast<std::int64_t>(std::erase(makespans, kStalledMakespan));
  std::sort(makespans.begin(), makespans.end());
  const auto count = static_cast<double>(makespans.size());
  const Seconds mean = std::accumulate(makespans.begin(), makespans.end(), Seconds(0)) / count;
  const auto percentile = [&](double part) { return nearest_rank(makespans, part).count(); };
  Table table{{{"runs", "runs"},
               {"mean_s", "mean s", 4},
               {"p50_s", "p50 s", 4},
               {"p95_s", "p95 s", 4},
               {"p99_s", "p99 s", 4},
               {"least_s", "least s", 4},
               {"most_s", "most s", 4}},
              {{static_cast<std::int64_t>(makespans.size()), mean.count(), percentile(0.50), percentile(0.95),
                percentile(0.99), makespans.front().count(), makespans.back().count()}}};
  if (stalled > 0) {
    table.columns.push_back({"stalled", "stalled"});
    table.rows[0].emplace_back(stalled);
  }
  return table;
}

int report_stall(Format format, const Timeline& timeline, const std::string& run, const std::string& groups) {
  print_table(stall_table(timeline), format);
  say("dflop: {} does not finish: {} of {} {} stall\n", run, timeline.stalls.size(), timeline.groups.size(),
      groups);
  return 3;
}

}  // namespace dflop
