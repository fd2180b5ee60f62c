// Which receives are posted early, and that no order then deadlocks when compute waits for the device.
#include "core/program/receive_posts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/pipelines.hpp"
#include "tests/core/random_plan.hpp"

namespace dflop::testing {
namespace receive_posts_test {

constexpr Op F = Op::forward;
constexpr Op S = Op::send;
constexpr Op R = Op::receive;

/// Builds groups from their operations and indices. Messages exist for the sends; collectives include all
/// groups.
Program program_of(const std::vector<std::vector<std::pair<Op, int>>>& groups) {
  Program program;
  program.microbatches = 1;
  program.stages.resize(1);
  const auto message = [&](int index) -> Message& {
    if (program.messages.size() <= static_cast<std::size_t>(index)) program.messages.resize(index + 1);
    return program.messages[index];
  };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Group group;
    group.begin = static_cast<std::int64_t>(program.instructions.size());
    for (const auto& [op, index] : groups[g]) {
      program.instructions.push_back({op, 0, 0, index});
      if (is_send(op)) message(index).source = static_cast<std::int32_t>(g);
      if (is_receive(op)) message(index).destination = static_cast<std::int32_t>(g);
      if (is_collective(op) && program.collectives.empty()) program.collectives.resize(1);
    }
    group.end = static_cast<std::int64_t>(program.instructions.size());
    program.groups.push_back(group);
    for (Collective& c : program.collectives) {
      c.groups.clear();
      for (std::size_t member = 0; member < groups.size(); ++member)
        c.groups.push_back(static_cast<int>(member));
    }
  }
  return program;
}

std::string problem_of(const Program& program, const ReceivePosts& posts) {
  try {
    require_progress(program, posts);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
}

/// Each group sends, computes and then receives. The second compute of each group waits for its own send,
/// whose receive the other group enters only after its own second compute.
Program crossing() {
  return program_of({{{F, 0}, {S, 0}, {F, 0}, {R, 1}}, {{F, 0}, {S, 1}, {F, 0}, {R, 0}}});
}

TEST(ReceivePosts, SendsThatCrossNeedThem) {
  const std::string problem = problem_of(crossing(), {});
  EXPECT_NE(problem.find("group 0, instruction 2 (forward)"), std::string::npos) << problem;
  EXPECT_NE(problem.find("until group 1 receives message 0"), std::string::npos) << problem;
  EXPECT_EQ(problem_of(crossing(), post_receives(crossing())), "");
}

/// Group 0 runs first, up to its receive at position 3. It sends while group 1 is still at its start,
/// position 4.
TEST(ReceivePosts, StandAtTheReceiversPlaceAtTheSend) {
  const ReceivePosts posts = post_receives(crossing());
  EXPECT_EQ(posts.messages, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(posts.before(3).size(), 1u);
  EXPECT_EQ(posts.before(3)[0], 1);
  EXPECT_EQ(posts.before(4).size(), 1u);
  EXPECT_EQ(posts.before(4)[0], 0);
}

/// Compute also waits for receives that are posted too early: group 0 must compute before it sends the
/// message that group 1 answers.
TEST(ReceivePosts, PostedTooEarlyWaitForever) {
  const Program program = program_of({{{F, 0}, {S, 0}, {R, 1}, {F, 0}}, {{R, 0}, {F, 0}, {S, 1}}});
  EXPECT_EQ(problem_of(program, {}), "");
  ReceivePosts early{std::vector<std::int64_t>(8, 1), {1}};  // message 1 before instruction 0
  early.begin[0] = 0;
  const std::string problem = problem_of(program, early);
  EXPECT_NE(problem.find("group 0, instruction 0 (forward): this would wait forever until group 1 sends"),
            std::string::npos)
      << problem;
}

/// Messages between two groups arrive in order, so a group that receives the second message first enters
/// both.
TEST(ReceivePosts, AReceiveIsEnteredWithThoseSentBefore) {
  const Program program = program_of({{{F, 0}, {S, 0}, {F, 0}, {S, 1}}, {{R, 1}, {F, 0}, {R, 0}}});
  EXPECT_EQ(problem_of(program, {}), "");
}

/// One group takes a sum before it sends, the other after it has received.
TEST(ReceivePosts, EndlessProgramsAreRejectedWithAndWithoutThem) {
  constexpr Op A = Op::all_reduce;
  const Program program = program_of({{{A, 0}, {S, 0}, {F, 0}}, {{R, 0}, {A, 0}, {F, 0}}});
  for (const ReceivePosts& posts : {ReceivePosts{}, post_receives(program)}) {
    const std::string problem = problem_of(program, posts);
    EXPECT_NE(problem.find("group 0, instruction 0 (all_reduce)"), std::string::npos) << problem;
    EXPECT_NE(problem.find("for others in collective 0"), std::string::npos) << problem;
  }
}

/// Group 1 receives the fifth message first, so four must be posted before it, whatever the limit.
TEST(ReceivePosts, ExceedTheLimitOnlyToAvoidADeadlock) {
  std::vector<std::pair<Op, int>> sends;
  std::vector<std::pair<Op, int>> receives;
  for (int m = 0; m < 8; ++m) {
    sends.insert(sends.end(), {{F, 0}, {S, m}});
    receives.insert(receives.end(), {{R, m}, {F, 0}});
  }
  const Program in_order = program_of({sends, receives});
  std::swap(receives[0], receives[8]);
  const Program fifth_first = program_of({sends, receives});
  EXPECT_EQ(post_receives(in_order, 2).before(16).size(), 2u);
  EXPECT_EQ(post_receives(in_order, 3).before(16).size(), 3u);
  EXPECT_EQ(post_receives(fifth_first, 2).before(16).size(), 5u);
  EXPECT_EQ(problem_of(fifth_first, post_receives(fifth_first, 2)), "");
}

/// Returns the largest number of messages from one group to another that are posted before their
/// instructions.
int most_ahead(const Program& program, const ReceivePosts& posts) {
  int most = 0;
  for (const Group& group : program.groups) {
    std::map<std::int32_t, int> ahead;  // by source
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      for (const std::int32_t m : posts.before(i)) most = std::max(most, ++ahead[program.messages[m].source]);
      const Instruction& instruction = program.instructions[i];
      if (is_receive(instruction.op)) --ahead[program.messages[instruction.index].source];
    }
  }
  return most;
}

/// Every message is posted once, by its receiver, no later than it is received, and in the order in which its
/// source sends to that receiver.
void expect_posted_once(const Program& program, const ReceivePosts& posts) {
  ASSERT_EQ(posts.begin.size(), program.instructions.size() + 1);
  std::vector<std::int64_t> received(program.messages.size());
  std::vector<std::int64_t> sent(program.messages.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (is_receive(instruction.op)) received[instruction.index] = static_cast<std::int64_t>(i);
    if (is_send(instruction.op)) sent[instruction.index] = static_cast<std::int64_t>(i);
  }
  std::set<std::int32_t> posted;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    std::map<std::int32_t, std::int64_t> latest;  // by source
    for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
      for (const std::int32_t m : posts.before(i)) {
        ASSERT_EQ(program.messages[m].destination, static_cast<std::int32_t>(g));
        ASSERT_TRUE(posted.insert(m).second);
        ASSERT_LE(i, received[m]);
        const auto [before, first] = latest.try_emplace(program.messages[m].source, -1);
        ASSERT_LT(before->second, sent[m]);
        before->second = sent[m];
      }
    }
  }
  ASSERT_EQ(posted.size(), program.messages.size());
}

OrderTables random_tables(Random& random, const PipelineShape& shape) {
  OrderTables tables{random_times(random, shape), {}};
  for (int r = 0; r < shape.all_ranks(); ++r) tables.most_held.push_back(pick(random, 6));
  return tables;
}

/// Returns whether an interleaved plan has larger groups of microbatches than pipeline ranks.
bool has_large_groups(const Plan& plan) {
  return plan.order == OrderKind::interleaved &&
         interleaved_group(plan.llm.pp, plan.microbatches) > plan.llm.pp;
}

/// Returns how many more messages than kPostedAhead may be in flight from one group to another. If groups of
/// microbatches are larger than the ranks need, a group may wait for its chunk. In three-phase, the first
/// group receives encoder outputs only after it has encoded all of its own.
int waiting_messages(const Plan& plan) {
  if (has_large_groups(plan)) return interleaved_group(plan.llm.pp, plan.microbatches);
  return plan.order == OrderKind::three_phase ? (plan.microbatches + plan.llm.pp - 1) / plan.llm.pp : 0;
}

/// Calls check(program, plan) for random plans of every order and layout, and random times of their steps.
template <typename Check>
void for_each_program(const Check& check, Bytes gradient_bucket = {}) {
  Random random(61);
  const ModelSpec model = tiny_model();
  for (const OrderKind order : all_order_kinds()) {
    for (const Layout layout : all_of<Layout>()) {
      if (!fits(traits(order), layout)) continue;
      for (int round = 0; round < 60; ++round) {
        Plan plan = random_plan(random, order, layout);
        if (gradient_bucket.count > 0) plan.gradient_bucket = gradient_bucket;
        SCOPED_TRACE(std::to_string(round) + ": " + describe(plan));
        const OrderTables tables =
            reads_tables(order) ? random_tables(random, plan_shape(plan)) : OrderTables{};
        const Batch batch = random_batch(random, plan.gbs);
        check(lower(plan, model, batch, random_assignment(random, plan, batch.size()),
                    plan_order(plan, tables)),
              plan);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ReceivePosts, NoOrderDeadlocksWithThem) {
  std::set<OrderKind> need_them;
  for_each_program([&](const Program& program, const Plan& plan) {
    const OrderKind order = plan.order;
    const ReceivePosts posts = post_receives(program);
    expect_posted_once(program, posts);
    EXPECT_EQ(problem_of(program, posts), "");
    // Orders that depend on times and limits may need more with steps as unequal as these.
    EXPECT_TRUE(reads_tables(order) || most_ahead(program, posts) <= kPostedAhead + waiting_messages(plan));
    if (!problem_of(program, {}).empty()) need_them.insert(order);
  });
  // All but the plain orders need posts, in some of these plans.
  for (const OrderKind order : all_order_kinds()) {
    const bool plain =
        order == OrderKind::gpipe || order == OrderKind::one_f_one_b || order == OrderKind::zb_h1;
    EXPECT_EQ(need_them.count(order), plain ? 0u : 1u) << to_string(order);
  }
}

/// The rule also holds for pipelines without a model, which are deeper.
TEST(ReceivePosts, NoDeepOrderDeadlocksWithThem) {
  for_each_shape(9, 12, 3, [](const PipelineShape& shape) {
    const RawPipeline pipeline = equal_pipeline(shape, Nanoseconds(10), Nanoseconds(10), Nanoseconds(10));
    const Program program = make_program(pipeline).program;
    EXPECT_EQ(problem_of(program, post_receives(program)), "");
  });
}

/// Tries every state that the groups can reach, one instruction of one group at a time, and returns whether
/// all groups can finish. This follows the definition directly, so it works only for small programs. A group
/// may enter its compute when its sends are posted by their receivers, and its posted receives are sent.
class EveryState {
 public:
  EveryState(const Program& program, const ReceivePosts& posts) : program_(program), posts_(posts) {}

  bool ends() {
    std::vector<std::int64_t> begin;
    for (const Group& group : program_.groups) begin.push_back(group.begin);
    return ends(begin);
  }

 private:
  using State = std::vector<std::int64_t>;

  /// Whether instruction `i` is passed.
  bool is_past(const State& state, std::int64_t i) const {
    for (std::size_t g = 0; g < state.size(); ++g) {
      if (i >= program_.groups[g].begin && i < program_.groups[g].end) return i < state[g];
    }
    return false;
  }
  bool is_sent(const State& state, std::int32_t m) const { return is_past(state, place(m, true)); }
  /// A post before the instruction that its group is at has been made.
  bool is_posted(const State& state, std::int32_t m) const {
    const auto g = static_cast<std::size_t>(program_.messages[m].destination);
    for (std::int64_t i = program_.groups[g].begin; i <= state[g] && i < program_.groups[g].end; ++i) {
      for (const std::int32_t posted : posts_.before(i)) {
        if (posted == m) return true;
      }
    }
    return place(m, false) <= state[g];
  }
  std::int64_t place(std::int32_t m, bool send) const {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (instruction.index == m && (send ? is_send(instruction.op) : is_receive(instruction.op))) {
        return static_cast<std::int64_t>(i);
      }
    }
    return -1;
  }

  bool can_pass(const State& state, std::size_t g) const {
    const Instruction& instruction = program_.instructions[state[g]];
    if (is_receive(instruction.op)) return is_sent(state, instruction.index);
    if (!is_compute(instruction.op)) return true;
    for (std::int32_t m = 0; m < static_cast<std::int32_t>(program_.messages.size()); ++m) {
      const Message& message = program_.messages[m];
      const auto own = static_cast<std::int32_t>(g);
      if (message.source == own && is_sent(state, m) && !is_posted(state, m)) return false;
      if (message.destination == own && is_posted(state, m) && !is_sent(state, m)) return false;
    }
    return true;
  }

  bool ends(const State& state) {
    const auto known = ends_.find(state);
    if (known != ends_.end()) return known->second;
    bool all = true;
    bool reached = false;
    for (std::size_t g = 0; g < state.size(); ++g) {
      if (state[g] == program_.groups[g].end) continue;
      all = false;
      if (reached || !can_pass(state, g)) continue;
      State next = state;
      ++next[g];
      reached = ends(next);
    }
    return ends_[state] = all || reached;
  }

  const Program& program_;
  const ReceivePosts& posts_;
  std::map<State, bool> ends_;
};

/// Checks random programs of three groups, where each group's messages to another arrive in order, with
/// random posts, against all states.
TEST(RequireProgress, AgreesWithTryingAllStates) {
  Random random(67);
  int hung = 0;
  constexpr int kRounds = 600;
  for (int round = 0; round < kRounds; ++round) {
    // A sequence of sends and computes. The matching receives come a little later.
    std::vector<std::vector<std::pair<Op, int>>> groups(3);
    std::vector<std::pair<int, int>> under_way;  // destination and message
    int messages = 0;
    for (int step = 0; step < 9 || !under_way.empty(); ++step) {
      const auto g = static_cast<int>(random.below(3));
      if (step < 9 && random.below(2) == 0) {
        groups[g].insert(groups[g].end(), {{F, 0}, {S, messages}});
        under_way.emplace_back((g + 1 + static_cast<int>(random.below(2))) % 3, messages++);
      } else if (!under_way.empty()) {
        groups[under_way.front().first].insert(groups[under_way.front().first].end(),
                                               {{R, under_way.front().second}, {F, 0}});
        under_way.erase(under_way.begin());
      }
    }
    const Program program = program_of(groups);
    ReceivePosts posts;
    if (round % 3 == 1) posts = post_receives(program, 1);
    if (round % 3 == 2) {  // random post times; posts per source stay in order
      posts.begin.assign(program.instructions.size() + 1, 0);
      for (const Group& group : program.groups) {
        std::vector<std::int32_t> left;
        for (std::int64_t i = group.begin; i < group.end; ++i) {
          if (program.instructions[i].op == R) left.push_back(program.instructions[i].index);
        }
        std::size_t next = 0;
        for (std::int64_t i = group.begin; i < group.end; ++i) {
          posts.begin[i] = static_cast<std::int64_t>(posts.messages.size());
          if (random.below(3) == 0 && next < left.size()) posts.messages.push_back(left[next++]);
        }
      }
      posts.begin.back() = static_cast<std::int64_t>(posts.messages.size());
    }
    const bool ends = problem_of(program, posts).empty();
    ASSERT_EQ(ends, EveryState(program, posts).ends()) << round;
    ASSERT_TRUE(ends || round % 3 != 1) << round;
    hung += ends ? 0 : 1;
  }
  EXPECT_GT(hung, kRounds / 20);  // otherwise the test shows nothing
  EXPECT_LT(hung, kRounds / 2);
}

/// EarlySums is a program in which each sum that is entered early is a separate complete collective between
/// two parts of the compute that enters it. It expresses progresses_with_early_sums() as instructions.
struct EarlySums {
  EarlySums(const Program& early, const ReceivePosts& early_posts) {
    program.microbatches = early.microbatches;
    program.stages = early.stages;
    program.messages = early.messages;
    program.collectives = early.collectives;
    std::map<std::int32_t, std::int32_t> sums;  // from the sums of `early`
    for (const Group& group : early.groups) {
      Group made = group;
      made.begin = static_cast<std::int64_t>(program.instructions.size());
      std::vector<std::int32_t> starts;
      std::vector<std::int32_t> posted;
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Instruction& instruction = early.instructions[i];
        for (const std::int32_t m : early_posts.before(i)) posted.push_back(m);
        if (instruction.op == Op::all_reduce_start) {
          starts.push_back(instruction.index);
          continue;
        }
        add(instruction, posted);
        if (!is_compute(instruction.op)) continue;
        for (const std::int32_t start : starts) {
          const auto [sum, is_new] =
              sums.try_emplace(start, static_cast<std::int32_t>(program.collectives.size()));
          if (is_new) program.collectives.push_back(early.collectives[start]);
          add({Op::all_reduce, 0, 0, sum->second}, posted);
          add(instruction, posted);
        }
        starts.clear();
      }
      made.end = static_cast<std::int64_t>(program.instructions.size());
      program.groups.push_back(made);
    }
    posts.begin.push_back(static_cast<std::int64_t>(posts.messages.size()));
  }

  /// Adds an instruction, with the pending posts before it.
  void add(const Instruction& instruction, std::vector<std::int32_t>& posted) {
    posts.begin.push_back(static_cast<std::int64_t>(posts.messages.size()));
    posts.messages.insert(posts.messages.end(), posted.begin(), posted.end());
    posted.clear();
    program.instructions.push_back(instruction);
  }

  Program program;
  ReceivePosts posts;
};

/// If dp is the same everywhere, the ranks do the same things in parallel: whoever waits for a sum finds the
/// others at it. If encoder and LLM differ in dp, this does not always hold, nor if an interleaved order has
/// large groups, because its messages wait for long.
TEST(EarlySums, AreEnteredIfThatCannotDeadlock) {
  int programs = 0;
  int hung = 0;
  for_each_program(
      [&](const Program& program, const Plan& plan) {
        const ReceivePosts posts = post_receives(program);
        const EarlySums sums(program, posts);
        const bool ends = progresses_with_early_sums(program, posts);
        EXPECT_EQ(ends, problem_of(sums.program, sums.posts).empty());
        if (ends) {
          EXPECT_EQ(problem_of(program, posts), "");
        }
        const bool alike = std::all_of(program.stages.begin(), program.stages.end(), [&](const Stage& stage) {
          return stage.dp == program.stages.front().dp;
        });
        EXPECT_TRUE(ends || !alike || has_large_groups(plan));
        ++programs;
        hung += ends ? 0 : 1;
      },
      Bytes{100'000});
  EXPECT_GT(hung, 0);
  EXPECT_LT(100 * hung, programs);
}

/// Each group enters one sum while it computes again for the gradients of another.
TEST(EarlySums, InAnotherOrderDeadlock) {
  constexpr Op B = Op::backward;
  constexpr Op E = Op::all_reduce_start;
  constexpr Op W = Op::all_reduce_wait;
  Program program = program_of(
      {{{E, 0}, {B, 0}, {E, 1}, {B, 0}, {W, 0}, {W, 1}}, {{E, 0}, {B, 0}, {E, 1}, {B, 0}, {W, 0}, {W, 1}}});
  program.collectives.resize(2, program.collectives.front());
  EXPECT_TRUE(progresses_with_early_sums(program, {}));
  std::swap(program.instructions[6], program.instructions[8]);
  EXPECT_FALSE(progresses_with_early_sums(program, {}));
  EXPECT_EQ(problem_of(program, {}), "");  // the waits come in the same order
}

}  // namespace receive_posts_test
}  // namespace dflop::testing
