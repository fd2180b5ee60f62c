#include "tests/sim/random_program.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace dflop::testing {
namespace {

/// Appends instructions in one global order in which every receive follows its send. Since the program can
/// run in that order, it cannot deadlock.
class RandomProgramBuilder {
 public:
  explicit RandomProgramBuilder(Random& random) : random_(random) {}

  PricedProgram build() {
    set_up();
    const int actions = 10 + pick(100);
    for (int k = 0; k < actions; ++k) act();
    for (std::int32_t g = 0; g < groups(); ++g) {
      while (compute(g)) continue;
    }
    while (deliver()) continue;
    for (std::int32_t g = 0; g < groups(); ++g) {
      while (await_collective(g)) continue;
    }
    for (std::int32_t g = 0; g < groups(); ++g) append(g, Op::optimizer_step, -1, -1, duration());
    flatten();
    return std::move(result_);
  }

 private:
  struct Appended {
    Instruction instruction;
    Nanoseconds duration{0};
    Bytes activation;
    Bytes workspace;
  };
  struct Pass {
    std::int32_t microbatch = 0;
    Bytes activation;
    bool input_done = false;
  };

  Program& program() { return result_.program; }
  std::int32_t groups() const { return static_cast<std::int32_t>(lists_.size()); }
  int pick(int bound) { return static_cast<int>(random_.below(bound)); }
  /// Multiples of 4, so that their quarters are whole.
  Nanoseconds duration() { return Nanoseconds(4 * (pick(3) == 0 ? 100 * pick(10) : pick(1000))); }

  void set_up() {
    program().microbatches = 1 + pick(5);
    program().works.assign(1, Work{});
    program().stages.assign(1 + pick(4), Stage{});
    for (std::size_t stage = 0; stage < program().stages.size(); ++stage) {
      const int dp = 1 + pick(3);
      for (int dp_rank = 0; dp_rank < dp; ++dp_rank) {
        Group group;
        group.first_rank = program().ranks();
        group.ranks = 1 << pick(3);
        group.stage = static_cast<std::int32_t>(stage);
        group.dp_rank = dp_rank;
        program().groups.push_back(group);
        result_.costs.model_state.push_back({Bytes{pick(5'000)}, Bytes{pick(3'000)}, Bytes{pick(2'000)}});
      }
    }
    lists_.resize(program().groups.size());
    forwards_.assign(lists_.size(), 0);
    open_.resize(lists_.size());
    started_.resize(lists_.size());
  }

  void act() {
    const int kind = pick(11);
    const std::int32_t group = pick(groups());
    if (kind < 4) {
      compute(group);
    } else if (kind < 6) {
      send(group, pick(groups()), Op::send);
    } else if (kind < 8) {
      deliver();
    } else if (kind < 9) {
      exchange();
    } else if (kind < 10) {
      collective();
    } else {
      await_collective(group);
    }
  }

  void append(std::int32_t group, Op op, std::int32_t microbatch, std::int32_t index, Nanoseconds time,
              Bytes activation = {}, Bytes workspace = {}) {
    const auto stage = static_cast<std::uint16_t>(program().groups[group].stage);
    lists_[group].push_back({{op, stage, microbatch, index}, time, activation, workspace});
  }

  /// Appends the group's next forward or a backward of an open microbatch; returns false if nothing is left.
  bool compute(std::int32_t group) {
    std::vector<Pass>& open = open_[group];
    const bool may_forward = forwards_[group] < program().microbatches;
    if (!can_compute(group)) return false;
    const Bytes workspace{pick(500)};
    if (may_forward && (open.empty() || pick(2) == 0)) {
      open.push_back({forwards_[group]++, Bytes{pick(1000)}, false});
      append(group, Op::forward, open.back().microbatch, 0, duration(), open.back().activation, workspace);
      return true;
    }
    const std::size_t which = random_.below(open.size());
    Pass& pass = open[which];
    if (!pass.input_done && pick(2) == 0) {
      const Bytes more{pick(2) == 0 ? 0 : pick(1000)};
      append(group, Op::backward_input, pass.microbatch, 0, duration(), more, workspace);
      pass.activation += more;
      pass.input_done = true;
      return true;
    }
    const Op op = pass.input_done ? Op::backward_weight : Op::backward;
    append(group, op, pass.microbatch, 0, duration(), pass.activation, workspace);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
    return true;
  }

  void send(std::int32_t source, std::int32_t destination, Op op) {
    if (source == destination) return;
    const auto message = static_cast<std::int32_t>(program().messages.size());
    const std::int32_t microbatch = pick(program().microbatches);
    program().messages.push_back({source, destination, microbatch, Bytes{pick(1000)}, Bytes{}});
    result_.costs.message.push_back(duration());
    append(source, op, microbatch, message, Nanoseconds(0));
    in_flight_[{source, destination}].push_back(message);
  }

  /// Each of a few sources sends to each of a few destinations, as in a reshard.
  void exchange() {
    const std::vector<std::int32_t> sources = some_groups();
    const std::vector<std::int32_t> destinations = some_groups();
    for (const std::int32_t source : sources) {
      for (const std::int32_t destination : destinations) send(source, destination, Op::reshard_send);
    }
  }

  /// Receives the first message of a random channel; false if none is in flight.
  bool deliver() {
    if (in_flight_.empty()) return false;
    const auto channel = std::next(in_flight_.begin(), pick(static_cast<int>(in_flight_.size())));
    const std::int32_t message = channel->second.front();
    channel->second.pop_front();
    const auto [source, destination] = channel->first;
    const Op sent_as = op_of_send(source, message);
    const Op op = sent_as == Op::send ? Op::receive : Op::reshard_receive;
    append(destination, op, program().messages[message].microbatch, message, Nanoseconds(0));
    if (channel->second.empty()) in_flight_.erase(channel);
    return true;
  }

  Op op_of_send(std::int32_t source, std::int32_t message) const {
    const auto sent = std::find_if(lists_[source].begin(), lists_[source].end(), [&](const Appended& a) {
      return is_send(a.instruction.op) && a.instruction.index == message;
    });
    return sent->instruction.op;
  }

  /// Half of them run in the background; half of these become ready during compute of the participants.
  void collective() {
    const auto index = static_cast<std::int32_t>(program().collectives.size());
    program().collectives.push_back({some_groups(), Bytes{pick(1000)}});
    result_.costs.collective.push_back(duration());
    Collective& added = program().collectives.back();
    const bool background = pick(2) == 0;
    const bool all_compute = std::all_of(added.groups.begin(), added.groups.end(),
                                         [this](std::int32_t group) { return can_compute(group); });
    if (background && all_compute && pick(2) == 0) added.ready = (1 + pick(4)) / 4.0;
    for (const std::int32_t group : added.groups) {
      append(group, background ? Op::all_reduce_start : Op::all_reduce, -1, index, Nanoseconds(0));
      if (added.ready > 0) compute(group);
      if (background) started_[group].push_back(index);
    }
  }

  /// Waits for a collective that the group has started; false if there is none.
  bool await_collective(std::int32_t group) {
    std::vector<std::int32_t>& started = started_[group];
    if (started.empty()) return false;
    const std::size_t which = random_.below(started.size());
    append(group, Op::all_reduce_wait, -1, started[which], Nanoseconds(0));
    started.erase(started.begin() + static_cast<std::ptrdiff_t>(which));
    return true;
  }

  bool can_compute(std::int32_t group) const {
    return forwards_[group] < result_.program.microbatches || !open_[group].empty();
  }

  std::vector<std::int32_t> some_groups() {
    std::vector<std::int32_t> chosen;
    for (std::int32_t g = 0; g < groups(); ++g) {
      if (pick(2) == 0) chosen.push_back(g);
    }
    if (chosen.empty()) chosen.push_back(pick(groups()));
    return chosen;
  }

  void flatten() {
    ProgramCosts& costs = result_.costs;
    for (std::size_t g = 0; g < lists_.size(); ++g) {
      program().groups[g].begin = static_cast<std::int64_t>(program().instructions.size());
      for (const Appended& appended : lists_[g]) {
        program().instructions.push_back(appended.instruction);
        costs.instruction.push_back(appended.duration);
        costs.activation.push_back(appended.activation);
        costs.workspace.push_back(appended.workspace);
      }
      program().groups[g].end = static_cast<std::int64_t>(program().instructions.size());
    }
  }

  Random& random_;
  PricedProgram result_;
  std::vector<std::vector<Appended>> lists_;
  std::vector<std::int32_t> forwards_;              ///< per group: forwards so far
  std::vector<std::vector<Pass>> open_;             ///< per group: forward done, backward not
  std::vector<std::vector<std::int32_t>> started_;  ///< per group: collectives that it has yet to wait for
  std::map<std::pair<std::int32_t, std::int32_t>, std::deque<std::int32_t>> in_flight_;  ///< per channel
};

}  // namespace

PricedProgram make_random_program(Random& random) {
  return RandomProgramBuilder(random).build();
}

PricedProgram make_shared_random_program(Random& random) {
  PricedProgram priced = make_random_program(random);
  Program& program = priced.program;
  std::vector<std::size_t> module;
  std::array<std::int32_t, 2> ranks = {0, 0};
  for (Group& group : program.groups) {
    module.push_back(random.below(2));
    group.first_rank = ranks[module.back()];
    ranks[module.back()] += group.ranks;
  }
  program.shared_gpus = std::max(ranks[0], ranks[1]);
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    if (module[g] == 1) program.groups[g].first_rank += program.shared_gpus;
  }
  for (const Instruction& instruction : program.instructions) {
    const bool computes = is_compute(instruction.op) || instruction.op == Op::optimizer_step;
    const double drawn = std::clamp(1.4 * random.uniform() - 0.2, 0.0, 1.0);
    priced.costs.bandwidth.push_back(computes ? drawn : 0);
  }
  return priced;
}

}  // namespace dflop::testing
