#include "tests/sim/reference.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace dflop::testing {
namespace {

using Interval = std::pair<Nanoseconds, Nanoseconds>;

/// Weighted dependencies; the value of a node is its longest path.
struct Graph {
  struct Edge {
    std::size_t to = 0;
    Nanoseconds weight{0};
  };
  explicit Graph(std::size_t nodes) : out(nodes), in_degree(nodes, 0) {}

  void add(std::size_t from, std::size_t to, Nanoseconds weight) {
    out[from].push_back({to, weight});
    ++in_degree[to];
  }

  /// Kahn's topological order.
  std::vector<Nanoseconds> longest_paths() const {
    std::vector<Nanoseconds> value(out.size(), Nanoseconds(0));
    std::vector<std::size_t> missing = in_degree;
    std::vector<std::size_t> ready;
    for (std::size_t v = 0; v < out.size(); ++v) {
      if (missing[v] == 0) ready.push_back(v);
    }
    while (!ready.empty()) {
      const std::size_t v = ready.back();
      ready.pop_back();
      for (const Edge& edge : out[v]) {
        value[edge.to] = std::max(value[edge.to], value[v] + edge.weight);
        if (--missing[edge.to] == 0) ready.push_back(edge.to);
      }
    }
    return value;
  }

  std::vector<std::vector<Edge>> out;
  std::vector<std::size_t> in_degree;
};

class ReferenceBuilder {
 public:
  explicit ReferenceBuilder(const PricedProgram& priced)
      : program_(priced.program), costs_(priced.costs), send_(program_.messages.size()) {}

  Reference build() {
    solve();
    for (const Group& group : program_.groups) add_usage(group);
    return std::move(reference_);
  }

 private:
  /// Node i + 1 is the end of instruction i, node 0 the beginning. The last nodes are the starts of the
  /// collectives.
  void solve() {
    const std::size_t instructions = program_.instructions.size();
    Graph graph(1 + instructions + program_.collectives.size());
    for (const Group& group : program_.groups) {
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        if (is_send(program_.instructions[i].op)) send_[program_.instructions[i].index] = i;
      }
    }
    for (const Group& group : program_.groups) {
      std::int32_t entered_before = -1;
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Instruction& instruction = program_.instructions[i];
        const std::size_t before = i == group.begin ? 0 : i;
        if (enters_collective(instruction.op)) {
          const std::size_t start = 1 + instructions + instruction.index;
          graph.add(before, start, entry_delay(i));
          if (entered_before >= 0) {
            graph.add(1 + instructions + entered_before, start, costs_.collective[entered_before]);
          }
          entered_before = instruction.index;
        }
        if (ends_collective(instruction.op)) {
          const std::size_t start = 1 + instructions + instruction.index;
          graph.add(start, i + 1, costs_.collective[instruction.index]);
        }
        graph.add(before, i + 1, costs_.instruction[i]);
        if (is_receive(instruction.op)) {
          graph.add(send_[instruction.index] + 1, i + 1, costs_.message[instruction.index]);
        }
      }
    }
    const std::vector<Nanoseconds> value = graph.longest_paths();
    const auto ends = value.begin() + 1;
    const auto starts = ends + static_cast<std::ptrdiff_t>(instructions);
    reference_.end.assign(ends, starts);
    reference_.collective_start.assign(starts, value.end());
    for (const Nanoseconds end : reference_.end) reference_.makespan = std::max(reference_.makespan, end);
  }

  /// The delay from the end of instruction i's predecessor until the group enters: a part of the next
  /// compute.
  Nanoseconds entry_delay(std::int64_t i) const {
    const double ready = program_.collectives[program_.instructions[i].index].ready;
    if (ready == 0) return Nanoseconds(0);
    const double duration = static_cast<double>(costs_.instruction[i + 1].count());
    return Nanoseconds(std::llround(ready * duration));
  }

  /// The interval in which a message or collective is in flight.
  Interval flight(const Instruction& instruction) const {
    if (is_collective(instruction.op)) {
      const Nanoseconds start = reference_.collective_start[instruction.index];
      return {start, start + costs_.collective[instruction.index]};
    }
    const Nanoseconds posted = reference_.end[send_[instruction.index]];
    return {posted, posted + costs_.message[instruction.index]};
  }

  void add_usage(const Group& group) {
    GroupUsage usage;
    usage.first_rank = group.first_rank;
    usage.ranks = group.ranks;
    usage.stage = group.stage;
    usage.dp_rank = group.dp_rank;
    usage.model_state = costs_.model_state[reference_.groups.size()];
    usage.peak_memory = usage.model_state.total();
    Bytes memory;  // on top of the model state
    std::vector<Interval> transfers;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program_.instructions[i];
      const Nanoseconds begin = i == group.begin ? Nanoseconds(0) : reference_.end[i - 1];
      const Nanoseconds end = reference_.end[i];
      if (is_compute(instruction.op) || instruction.op == Op::optimizer_step) {
        usage.busy += end - begin;
        if (instruction.op == Op::forward) memory += costs_.activation_of(i);
        if (usage.model_state.total() + memory + costs_.workspace_of(i) > usage.peak_memory) {
          usage.peak_memory = usage.model_state.total() + memory + costs_.workspace_of(i);
          usage.peak_time = begin;
          usage.peak_activations = memory;
          usage.peak_buffers = costs_.workspace_of(i);
        }
        if (instruction.op == Op::backward_input) {
          memory += costs_.activation_of(i);
          if (usage.model_state.total() + memory > usage.peak_memory) {
            usage.peak_memory = usage.model_state.total() + memory;
            usage.peak_time = end;
            usage.peak_activations = memory;
            usage.peak_buffers = Bytes{};
          }
        } else if (instruction.op != Op::forward) {
          memory -= costs_.activation_of(i);
        }
        continue;
      }
      transfers.push_back(flight(instruction));
      if (is_send(instruction.op) || instruction.op == Op::all_reduce_start) continue;
      const Interval& in_flight = transfers.back();
      const Nanoseconds overlap = std::min(end, in_flight.second) - std::max(begin, in_flight.first);
      usage.wait += std::max(overlap, Nanoseconds(0));
    }
    usage.bubble = reference_.makespan - usage.busy - usage.wait;
    usage.transfer = union_length(std::move(transfers));
    reference_.groups.push_back(usage);
  }

  static Nanoseconds union_length(std::vector<Interval> intervals) {
    std::sort(intervals.begin(), intervals.end());
    Nanoseconds length{0};
    Nanoseconds covered{0};
    for (const Interval& interval : intervals) {
      length += std::max(interval.second - std::max(interval.first, covered), Nanoseconds(0));
      covered = std::max(covered, interval.second);
    }
    return length;
  }

  const Program& program_;
  const ProgramCosts& costs_;
  std::vector<std::int64_t> send_;  ///< per message: the instruction that posts it
  Reference reference_;
};

}  // namespace

Reference make_reference(const PricedProgram& priced) {
  return ReferenceBuilder(priced).build();
}

}  // namespace dflop::testing
