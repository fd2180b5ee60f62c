#include "sim/analysis/relaxations.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "sim/engine.hpp"

namespace dflop {
namespace {

using Kind = Relaxation::Kind;

bool takes_compute(Op op) {
  return is_compute(op) || op == Op::optimizer_step;
}

bool frees_messages(Kind kind) {
  return kind == Kind::free_messages || kind == Kind::free_communication;
}

bool frees_collectives(Kind kind) {
  return kind == Kind::free_collectives || kind == Kind::free_communication;
}

void free_stage(const Program& program, std::int32_t stage, ProgramCosts& costs) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].stage == stage) costs.instruction[i] = Nanoseconds(0);
  }
}

/// Sets every compute instruction's time and traffic to the mean over instructions with its stage and
/// operation, and with its microbatch unless `over_microbatches`.
void take_means(const Program& program, bool over_microbatches, ProgramCosts& costs) {
  struct Sum {
    Nanoseconds total{0};
    double traffic = 0;  ///< nanoseconds of a GPU's full bandwidth
    std::int64_t count = 0;
  };
  std::map<std::tuple<std::uint16_t, Op, std::int32_t>, Sum> sums;
  const auto sum_of = [&](const Instruction& instruction) -> Sum& {
    return sums[{instruction.stage, instruction.op, over_microbatches ? -1 : instruction.microbatch}];
  };
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (!takes_compute(program.instructions[i].op)) continue;
    Sum& sum = sum_of(program.instructions[i]);
    sum.total += costs.instruction[i];
    if (!costs.bandwidth.empty())
      sum.traffic += costs.bandwidth[i] * static_cast<double>(costs.instruction[i].count());
    ++sum.count;
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (!takes_compute(program.instructions[i].op)) continue;
    const Sum& sum = sum_of(program.instructions[i]);
    costs.instruction[i] = Nanoseconds((sum.total.count() + sum.count / 2) / sum.count);
    if (!costs.bandwidth.empty() && sum.total > Nanoseconds(0))
      costs.bandwidth[i] = std::min(1.0, sum.traffic / static_cast<double>(sum.total.count()));
  }
}

/// Returns the network with no work for the transfers that are free.
Network free_transfers(const Program& program, const Network& network, Kind kind) {
  Network out = network;
  out.phases.clear();
  out.first_phase.assign(1, 0);
  for (std::size_t t = 0; t + 1 < network.first_phase.size(); ++t) {
    const bool free = t < program.messages.size() ? frees_messages(kind) : frees_collectives(kind);
    for (std::size_t p = network.first_phase[t]; !free && p < network.first_phase[t + 1]; ++p) {
      out.phases.push_back(network.phases[p]);
    }
    out.first_phase.push_back(out.phases.size());
  }
  return out;
}

/// Returns the largest busy time. On shared GPUs only a simulation gives it.
Nanoseconds busiest(const Program& program, const ProgramCosts& costs, const Conditions& conditions) {
  Nanoseconds most{0};
  if (program.shared_gpus > 0) {
    const Timeline run = simulate(program, costs, Detail::usage, conditions);
    for (const GroupUsage& group : run.groups) most = std::max(most, group.busy);
    return most;
  }
  for (const Group& group : program.groups) {
    Nanoseconds busy{0};
    for (std::int64_t i = group.begin; i < group.end; ++i) busy += costs.instruction[i];
    most = std::max(most, busy);
  }
  return most;
}

std::size_t distinct_stages(const Program& program) {
  std::set<std::int32_t> stages;
  for (const Group& group : program.groups) stages.insert(group.stage);
  return stages.size();
}

}  // namespace

std::vector<Relaxation> relaxations(const Program& program) {
  std::set<std::uint16_t> stages;
  for (const Instruction& instruction : program.instructions) {
    if (takes_compute(instruction.op)) stages.insert(instruction.stage);
  }
  std::vector<Relaxation> out;
  for (const std::uint16_t stage : stages) out.push_back({Kind::free_stage, stage});
  if (!program.messages.empty()) out.push_back({Kind::free_messages});
  if (!program.collectives.empty()) out.push_back({Kind::free_collectives});
  if (!program.messages.empty() && !program.collectives.empty()) out.push_back({Kind::free_communication});
  if (stages.empty()) return out;
  // If every group has its own stage there is nothing to average.
  if (program.groups.size() > distinct_stages(program)) out.push_back({Kind::no_stragglers});
  out.push_back({Kind::balanced});
  out.push_back({Kind::no_bubbles});
  return out;
}

Nanoseconds relaxed_makespan(const Program& program, const ProgramCosts& costs, const Relaxation& relaxation,
                             const Conditions& conditions) {
  const Kind kind = relaxation.kind;
  if (kind == Kind::no_bubbles) return busiest(program, costs, conditions);
  ProgramCosts relaxed = costs;
  Conditions met = conditions;
  if (kind == Kind::free_stage) free_stage(program, relaxation.stage, relaxed);
  if (kind == Kind::no_stragglers || kind == Kind::balanced) {
    take_means(program, kind == Kind::balanced, relaxed);
  }
  if (frees_messages(kind)) relaxed.message.assign(relaxed.message.size(), Nanoseconds(0));
  if (frees_collectives(kind)) relaxed.collective.assign(relaxed.collective.size(), Nanoseconds(0));
  std::optional<Network> network;
  if (conditions.network != nullptr && (frees_messages(kind) || frees_collectives(kind))) {
    network = free_transfers(program, *conditions.network, kind);
    met.network = &*network;
  }
  return simulate(program, relaxed, Detail::usage, met).makespan;
}

}  // namespace dflop
