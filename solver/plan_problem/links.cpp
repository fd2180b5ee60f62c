#include "solver/plan_problem/links.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/program/lowering.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kSomeBytes = 1 << 20;

/// A program of the plan's groups, stages and collectives, for a batch without work.
Program empty_program(Plan plan, const ModelSpec& model) {
  const bool by_ranks = traits(plan.schedule).in_rounds || plan.layout == Layout::colocated;
  plan.microbatches = by_ranks ? plan.llm.pp : 1;
  Assignment assignment{plan.microbatches, plan.llm.dp, std::vector<std::int32_t>(plan.bins())};
  std::iota(assignment.bin.begin(), assignment.bin.end(), 0);
  return lower(plan, model, std::vector<Sample>(plan.bins()), assignment);
}

/// The least of the messages between two sets of groups.
class LeastLink {
 public:
  LeastLink(const CostModel& cost, const Program& program) : cost_(cost), program_(program) {}

  void add(std::int32_t source, std::int32_t destination) {
    const auto seconds = [&](std::int64_t bytes) {
      return cost_.message({source, destination, 0, Bytes{bytes}, Bytes{bytes}}, program_).count();
    };
    const double one = seconds(kSomeBytes);
    const double per_byte = (seconds(2 * kSomeBytes) - one) / kSomeBytes;
    least_.per_byte = std::min(least_.per_byte, per_byte);
    least_.fixed_s = std::min(least_.fixed_s, one - per_byte * kSomeBytes);
  }

  LinkTime get() const { return least_; }

 private:
  const CostModel& cost_;
  const Program& program_;
  LinkTime least_{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
};

/// From the last backward of a group to its end, if it is not kept waiting.
double tail_of(const Plan& plan, const CostModel& cost, const Program& program, const Group& group) {
  // Where the order depends on durations, the last backward may be another stage's, with other buckets.
  const bool last_is_known = !reads_tables(plan.schedule);
  const auto seconds = [](Seconds duration) { return Seconds(to_nanoseconds(duration)).count(); };
  double tail = 0;
  int last_stage = -1;
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    const Instruction& instruction = program.instructions[i];
    if (is_compute(instruction.op)) last_stage = instruction.stage;
    if (instruction.op == Op::optimizer_step) {
      tail += seconds(cost.optimizer_step(program.stages[instruction.stage]));
    } else if (is_collective(instruction.op) && instruction.op != Op::all_reduce_start) {
      const Collective& reduction = program.collectives[instruction.index];
      const bool waits = instruction.op == Op::all_reduce_wait;
      if (!waits) tail += seconds(cost.all_reduce(reduction, program));
      if (waits && last_is_known && instruction.stage == last_stage && reduction.ready == 1) {
        tail = std::max(tail, seconds(cost.all_reduce(reduction, program)));
      }
    }
  }
  return tail;
}

}  // namespace

PlanLinks plan_links(const Plan& plan, const ModelSpec& model, const CostModel& cost) {
  const Program program = empty_program(plan, model);
  const PipelineShape shape = plan_shape(plan);
  PlanLinks links;
  std::vector<std::vector<std::int32_t>> groups;  // per pipeline rank: of its dp ranks
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    if (program.groups[g].dp_rank == 0) {
      groups.emplace_back();
      links.tail_s.push_back(tail_of(plan, cost, program, program.groups[g]));
    }
    groups.back().push_back(static_cast<std::int32_t>(g));
  }
  for (int s = 0; s + 1 < static_cast<int>(program.stages.size()); ++s) {
    LeastLink forward(cost, program);
    LeastLink backward(cost, program);
    bool between_ranks = false;
    for (int j = 0; j < program.microbatches; ++j) {
      const int from = rank_of_stage(shape, s, j);
      const int to = rank_of_stage(shape, s + 1, j);
      if (from == to) continue;
      between_ranks = true;
      const bool reshard = plan.layout == Layout::disaggregated && s + 1 == plan.encoder.pp;
      for (const std::int32_t a : groups[from]) {
        for (const std::int32_t b : groups[to]) {
          if (!reshard && program.groups[a].dp_rank != program.groups[b].dp_rank) continue;
          forward.add(a, b);
          backward.add(b, a);
        }
      }
    }
    links.forward.push_back(between_ranks ? forward.get() : LinkTime{});
    links.backward.push_back(between_ranks ? backward.get() : LinkTime{});
  }
  return links;
}

}  // namespace dflop
