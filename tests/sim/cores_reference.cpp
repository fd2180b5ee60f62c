#include "tests/sim/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace dflop::testing {
namespace {

using Time = std::int64_t;  // nanoseconds
constexpr Time kUnknown = std::numeric_limits<Time>::max();

class CoresSimulation {
 public:
  CoresSimulation(const PricedProgram& priced, int cores)
      : program_(priced.program),
        costs_(priced.costs),
        cores_(cores),
        at_(program_.groups.size()),
        running_until_(program_.groups.size(), kUnknown),
        asked_(program_.groups.size(), false),
        entered_(program_.groups.size()),
        arrival_(program_.messages.size(), kUnknown),
        collective_end_(program_.collectives.size(), kUnknown) {
    for (std::size_t g = 0; g < at_.size(); ++g) at_[g] = program_.groups[g].begin;
    result_.start.resize(program_.instructions.size());
    result_.end.resize(program_.instructions.size());
  }

  CoresReference run() {
    for (std::optional<Time> next = 0; next; next = next_instant()) {
      now_ = *next;
      do {
        settle();
      } while (grant());
      result_.makespan = Nanoseconds(now_);
    }
    return std::move(result_);
  }

 private:
  static bool needs_cores(Op op) { return is_compute(op) || op == Op::optimizer_step; }
  const Group& group(std::size_t g) const { return program_.groups[g]; }
  int need(std::size_t g) const { return std::min(group(g).ranks, cores_); }

  /// Does everything that can happen now, in any order.
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      for (auto& [time, g, collective] : later_) {
        if (time != now_) continue;
        entered_[g].push_back(collective);
        time = kUnknown;
        changed = true;
      }
      for (std::size_t g = 0; g < at_.size(); ++g) changed = advance(g) || changed;
      for (std::size_t c = 0; c < collective_end_.size(); ++c) changed = start_collective(c) || changed;
    }
  }

  bool advance(std::size_t g) {
    if (at_[g] == group(g).end) return false;
    const std::int64_t i = at_[g];
    const Instruction& instruction = program_.instructions[static_cast<std::size_t>(i)];
    const auto index = static_cast<std::size_t>(instruction.index);
    if (needs_cores(instruction.op)) {
      if (running_until_[g] == now_) return end_of_compute(g);
      if (running_until_[g] == kUnknown) asked_[g] = true;
      return false;
    }
    if (is_send(instruction.op)) {
      arrival_[index] = now_ + costs_.message[index].count();
    } else if (is_receive(instruction.op)) {
      if (arrival_[index] > now_) return false;
    } else if (instruction.op == Op::all_reduce_start) {
      if (delay(i) == 0) entered_[g].push_back(instruction.index);
    } else {
      auto& entered = entered_[g];
      const bool came = std::find(entered.begin(), entered.end(), instruction.index) != entered.end();
      if (!came) entered.push_back(instruction.index);
      if (collective_end_[index] > now_) return !came;
    }
    return done(g);
  }

  bool done(std::size_t g) {
    result_.end[static_cast<std::size_t>(at_[g])] = Nanoseconds(now_);
    ++at_[g];
    return true;
  }

  bool end_of_compute(std::size_t g) {
    cores_in_use_ -= need(g);
    running_until_[g] = kUnknown;
    return done(g);
  }

  /// How long the compute after an all_reduce_start runs before its group enters.
  Time delay(std::int64_t start) const {
    std::int64_t compute = start;
    while (!needs_cores(program_.instructions[static_cast<std::size_t>(compute)].op)) ++compute;
    const auto c = static_cast<std::size_t>(program_.instructions[static_cast<std::size_t>(start)].index);
    const auto duration = static_cast<double>(costs_.instruction[static_cast<std::size_t>(compute)].count());
    return std::llround(program_.collectives[c].ready * duration);
  }

  /// A collective starts when all its groups have entered it, and all collectives that they entered before
  /// have ended.
  bool start_collective(std::size_t c) {
    if (collective_end_[c] != kUnknown) return false;
    for (const std::int32_t g : program_.collectives[c].groups) {
      const auto& entered = entered_[static_cast<std::size_t>(g)];
      const auto own = std::find(entered.begin(), entered.end(), static_cast<std::int32_t>(c));
      if (own == entered.end()) return false;
      const bool first = std::all_of(entered.begin(), own, [&](std::int32_t before) {
        return collective_end_[static_cast<std::size_t>(before)] <= now_;
      });
      if (!first) return false;
    }
    collective_end_[c] = now_ + costs_.collective[c].count();
    return true;
  }

  /// Returns whether any group got cores. Groups that ask join the end of the queue, lowest number first
  /// within an instant.
  bool grant() {
    for (std::size_t g = 0; g < at_.size(); ++g) {
      if (asked_[g] && std::find(queue_.begin(), queue_.end(), g) == queue_.end()) queue_.push_back(g);
    }
    bool granted = false;
    while (!queue_.empty() && cores_in_use_ + need(queue_.front()) <= cores_) {
      begin_compute(queue_.front());
      queue_.erase(queue_.begin());
      granted = true;
    }
    return granted;
  }

  void begin_compute(std::size_t g) {
    asked_[g] = false;
    cores_in_use_ += need(g);
    const auto i = static_cast<std::size_t>(at_[g]);
    result_.start[i] = Nanoseconds(now_);
    running_until_[g] = now_ + costs_.instruction[i].count();
    std::int64_t start = at_[g];
    while (start > group(g).begin &&
           program_.instructions[static_cast<std::size_t>(start - 1)].op == Op::all_reduce_start) {
      --start;
    }
    for (; start < at_[g]; ++start) {
      if (delay(start) == 0) continue;
      later_.push_back(
          {now_ + delay(start), g, program_.instructions[static_cast<std::size_t>(start)].index});
    }
  }

  std::optional<Time> next_instant() const {
    Time next = kUnknown;
    const auto see = [&](Time time) {
      if (time > now_) next = std::min(next, time);
    };
    for (const Time time : running_until_) see(time);
    for (const Time time : collective_end_) see(time);
    for (const auto& later : later_) see(later.time);
    for (std::size_t g = 0; g < at_.size(); ++g) {
      if (at_[g] == group(g).end) continue;
      const Instruction& instruction = program_.instructions[static_cast<std::size_t>(at_[g])];
      if (is_receive(instruction.op)) see(arrival_[static_cast<std::size_t>(instruction.index)]);
    }
    return next == kUnknown ? std::nullopt : std::optional(next);
  }

  struct Later {
    Time time;
    std::size_t group;
    std::int32_t collective;
  };

  const Program& program_;
  const ProgramCosts& costs_;
  int cores_;
  int cores_in_use_ = 0;
  Time now_ = 0;
  std::vector<std::int64_t> at_;                    // per group: its instruction
  std::vector<Time> running_until_;                 // per group
  std::vector<bool> asked_;                         // per group: asked for cores and got none yet
  std::vector<std::vector<std::int32_t>> entered_;  // per group: collectives, in order
  std::vector<Time> arrival_;                       // per message
  std::vector<Time> collective_end_;
  std::vector<Later> later_;
  std::vector<std::size_t> queue_;
  CoresReference result_;
};

}  // namespace

CoresReference make_cores_reference(const PricedProgram& priced, int cores) {
  return CoresSimulation(priced, cores).run();
}

}  // namespace dflop::testing
