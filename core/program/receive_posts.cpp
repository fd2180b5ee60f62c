#include "core/program/receive_posts.hpp"

#include <algorithm>
#include <deque>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Returns the messages sorted by source, destination and order of sending.
std::vector<std::int32_t> by_pair(const Program& program) {
  std::vector<std::int64_t> place(program.messages.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (is_send(instruction.op)) place[instruction.index] = static_cast<std::int64_t>(i);
  }
  std::vector<std::int32_t> messages(program.messages.size());
  std::iota(messages.begin(), messages.end(), 0);
  std::sort(messages.begin(), messages.end(), [&](std::int32_t a, std::int32_t b) {
    const Message& first = program.messages[a];
    const Message& second = program.messages[b];
    return std::tuple(first.source, first.destination, place[a]) <
           std::tuple(second.source, second.destination, place[b]);
  });
  return messages;
}

bool are_of_one_pair(const Program& program, std::int32_t a, std::int32_t b) {
  return program.messages[a].source == program.messages[b].source &&
         program.messages[a].destination == program.messages[b].destination;
}

/// A Walk has the current position of all groups in their instructions, and advances groups one by one.
class Walk {
 public:
  explicit Walk(const Program& program)
      : program_(program),
        came_(program.groups.size(), -1),
        sent_(program.messages.size()),
        there_(program.collectives.size()) {
    for (const Group& group : program.groups) next_.push_back(group.begin);
  }

  std::int64_t place_of(std::size_t group) const { return next_[group]; }
  bool is_at_end(std::size_t group) const { return next_[group] == program_.groups[group].end; }
  const Instruction& next(std::size_t group) const { return program_.instructions[next_[group]]; }
  bool is_sent(std::int32_t message) const { return sent_[message] != 0; }

  /// Returns whether the group can pass its next instruction, given the positions of the others.
  bool can_pass(std::size_t group) {
    const Instruction& instruction = next(group);
    if (is_receive(instruction.op)) return is_sent(instruction.index);
    if (!ends_collective(instruction.op)) return true;
    if (came_[group] != next_[group]) ++there_[instruction.index];
    came_[group] = next_[group];
    return there_[instruction.index] == program_.collectives[instruction.index].groups.size();
  }

  void pass(std::size_t group) {
    if (is_send(next(group).op)) sent_[next(group).index] = 1;
    ++next_[group];
  }

 private:
  const Program& program_;
  std::vector<std::int64_t> next_;  // by group
  std::vector<std::int64_t> came_;  // by group: the collective's instruction that it reached last
  std::vector<std::uint8_t> sent_;  // by message
  std::vector<std::size_t> there_;  // by collective: groups that have reached its end
};

/// A Sequence puts the instructions of all groups into one sequence.
class Sequence {
 public:
  Sequence(const Program& program, int ahead)
      : program_(program), ahead_(ahead), walk_(program), pair_(program.messages.size()) {
    const std::vector<std::int32_t> messages = by_pair(program);
    std::int32_t pairs = 0;
    for (std::size_t k = 0; k < messages.size(); ++k) {
      if (k > 0 && !are_of_one_pair(program, messages[k - 1], messages[k])) ++pairs;
      pair_[messages[k]] = pairs;
    }
    under_way_.resize(messages.empty() ? 0 : static_cast<std::size_t>(pairs) + 1);
  }

  /// Returns, in the order of the sequence, each sent message and the instruction that its destination has
  /// reached by then.
  std::vector<std::pair<std::int64_t, std::int32_t>> run() {
    while (run_all() || force_one()) {
    }
    return std::move(posts_);
  }

 private:
  /// Advances each group as far as it can go; returns whether any moved.
  bool run_all() {
    bool moved = false;
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      while (!walk_.is_at_end(g) && has_room(walk_.next(g)) && walk_.can_pass(g)) {
        pass(g);
        moved = true;
      }
    }
    return moved;
  }

  /// Permits the first group that could otherwise continue one more message in flight than the others.
  bool force_one() {
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      if (walk_.is_at_end(g) || has_room(walk_.next(g))) continue;
      pass(g);
      return true;
    }
    return false;
  }

  bool has_room(const Instruction& instruction) const {
    return !is_send(instruction.op) || under_way_[pair_[instruction.index]] < ahead_;
  }

  void pass(std::size_t group) {
    const Instruction& instruction = walk_.next(group);
    if (is_receive(instruction.op)) --under_way_[pair_[instruction.index]];
    if (is_send(instruction.op)) {
      ++under_way_[pair_[instruction.index]];
      const auto to = static_cast<std::size_t>(program_.messages[instruction.index].destination);
      posts_.emplace_back(walk_.place_of(to), instruction.index);
    }
    walk_.pass(group);
  }

  const Program& program_;
  const int ahead_;
  Walk walk_;
  std::vector<std::int32_t> pair_;  // by message: the pair of groups it goes between
  std::vector<int> under_way_;      // by pair: messages that are sent and not yet received
  std::vector<std::pair<std::int64_t, std::int32_t>> posts_;
};

/// A DrainRun advances all groups as far as they can go when compute waits for the whole device.
class DrainRun {
 public:
  /// @param early  sums are entered during the compute after their all_reduce_start, instead of where they
  /// end
  DrainRun(const Program& program, const ReceivePosts& posts, bool early)
      : program_(program),
        posts_(posts),
        early_(early),
        walk_(program),
        earlier_(program.messages.size(), -1),
        posted_(program.messages.size()),
        open_(program.groups.size()),
        looked_at_(program.groups.size(), -1),
        starts_(program.groups.size()),
        entered_(program.collectives.size()) {
    const std::vector<std::int32_t> messages = by_pair(program);
    for (std::size_t k = 1; k < messages.size(); ++k) {
      if (are_of_one_pair(program, messages[k - 1], messages[k])) earlier_[messages[k]] = messages[k - 1];
    }
  }

  void run() {
    for (moved_ = true; moved_;) {
      moved_ = false;
      for (std::size_t g = 0; g < program_.groups.size(); ++g) {
        while (!walk_.is_at_end(g) && passes(g)) moved_ = true;
      }
    }
  }

  /// Returns the first group that has not finished; the number of groups if all have.
  std::size_t first_left() const {
    std::size_t g = 0;
    while (g < program_.groups.size() && walk_.is_at_end(g)) ++g;
    return g;
  }
  std::int64_t place_of(std::size_t group) const { return walk_.place_of(group); }

  /// Describes what an unfinished group waits for.
  std::string waits_for(std::size_t group) const {
    const Instruction& instruction = walk_.next(group);
    if (is_receive(instruction.op)) return "for message " + std::to_string(instruction.index);
    if (ends_collective(instruction.op))
      return "for others in collective " + std::to_string(instruction.index);
    for (std::size_t m = 0; m < program_.messages.size(); ++m) {
      const Message& message = program_.messages[m];
      const bool sent = walk_.is_sent(static_cast<std::int32_t>(m));
      const std::string name =
          "message " + std::to_string(m) + " of microbatch " + std::to_string(message.microbatch);
      if (sent && posted_[m] == 0 && message.source == static_cast<std::int32_t>(group)) {
        return "until group " + std::to_string(message.destination) + " receives " + name;
      }
      if (!sent && posted_[m] != 0 && message.destination == static_cast<std::int32_t>(group)) {
        return "until group " + std::to_string(message.source) + " sends " + name;
      }
    }
    return "for nothing";
  }

 private:
  bool passes(std::size_t group) {
    const Instruction& instruction = walk_.next(group);
    if (looked_at_[group] != walk_.place_of(group)) {
      looked_at_[group] = walk_.place_of(group);
      for (const std::int32_t message : posts_.before(walk_.place_of(group))) post(message);
      if (is_receive(instruction.op)) post(instruction.index);
    }
    const bool drains = is_compute(instruction.op) || instruction.op == Op::optimizer_step;
    if (drains && !ends_what_is_open(group)) return false;
    if (early_ && instruction.op == Op::all_reduce_start) starts_[group].push_back(instruction.index);
    if (!walk_.can_pass(group)) return false;
    if (is_send(instruction.op)) send(instruction.index);
    walk_.pass(group);
    return true;
  }

  /// Returns whether everything that a group has entered is done, including the sums that begin in its next
  /// compute: each begins when the previous one has ended.
  bool ends_what_is_open(std::size_t group) {
    std::deque<std::int32_t>& starts = starts_[group];
    while (open_[group] == 0 && !starts.empty()) {
      enter(group, starts.front());
      starts.pop_front();
    }
    return open_[group] == 0;
  }

  void enter(std::size_t group, std::int32_t collective) {
    moved_ = true;
    const std::vector<std::int32_t>& members = program_.collectives[collective].groups;
    ++open_[group];
    if (++entered_[collective] < members.size()) return;
    for (const std::int32_t member : members) --open_[member];
  }

  void send(std::int32_t message) {
    if (posted_[message] != 0) --open_[program_.messages[message].destination];
    if (posted_[message] == 0) ++open_[program_.messages[message].source];
  }

  /// Posts a receive, after the receives of earlier messages from the same group.
  void post(std::int32_t message) {
    if (message < 0 || posted_[message] != 0) return;
    post(earlier_[message]);
    posted_[message] = 1;
    if (walk_.is_sent(message)) --open_[program_.messages[message].source];
    if (!walk_.is_sent(message)) ++open_[program_.messages[message].destination];
  }

  const Program& program_;
  const ReceivePosts& posts_;
  const bool early_;
  Walk walk_;
  std::vector<std::int32_t> earlier_;  // by message: the previous one with the same source and destination
  std::vector<std::uint8_t> posted_;   // by message
  std::vector<std::int32_t>
      open_;  // by group: sends that nobody has posted, posts that nobody has sent, early sums
  std::vector<std::int64_t> looked_at_;  // by group: the instruction up to which it has made its posts
  std::vector<std::deque<std::int32_t>> starts_;  // by group: sums that its next compute enters
  std::vector<std::size_t> entered_;              // by collective: groups that have entered it early
  bool moved_ = false;
};

}  // namespace

ReceivePosts post_receives(const Program& program, int ahead) {
  ReceivePosts posts;
  posts.begin.assign(program.instructions.size() + 1, 0);
  std::vector<std::pair<std::int64_t, std::int32_t>> sequence = Sequence(program, ahead).run();
  std::stable_sort(sequence.begin(), sequence.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [place, message] : sequence) {
    ++posts.begin[static_cast<std::size_t>(place) + 1];
    posts.messages.push_back(message);
  }
  std::partial_sum(posts.begin.begin(), posts.begin.end(), posts.begin.begin());
  return posts;
}

bool progresses_with_early_sums(const Program& program, const ReceivePosts& posts) {
  DrainRun run(program, posts, true);
  run.run();
  return run.first_left() == program.groups.size();
}

void require_progress(const Program& program, const ReceivePosts& posts) {
  DrainRun run(program, posts, false);
  run.run();
  const std::size_t left = run.first_left();
  if (left == program.groups.size()) return;
  const std::int64_t place = run.place_of(left);
  refuse_input(fmt::format("program: group {}, instruction {} ({})", left, place - program.groups[left].begin,
                           to_string(program.instructions[place].op)),
               "this would wait forever {}, because a GPU first completes everything that was issued "
               "before",
               run.waits_for(left));
}

}  // namespace dflop
