// Forward-only versions of random Programs: what each group keeps, and that none deadlocks.
#include "core/program/forwards.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.hpp"
#include "core/program/receive_posts.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"

namespace dflop {
namespace forwards_test {

using testing::pick;

template <typename Check>
void for_each_program(const Check& check) {
  Random random(17);
  for (const OrderKind order : all_order_kinds()) {
    for (const Layout layout : {Layout::uniform, Layout::disaggregated, Layout::colocated, Layout::shared}) {
      if (!fits(traits(order), layout) || reads_tables(order)) continue;
      for (int i = 0; i < 10; ++i) {
        Plan plan = testing::random_plan(random, order, layout);
        plan.reshard = Reshard::direct;
        SCOPED_TRACE(describe(plan));
        std::vector<Sample> samples(static_cast<std::size_t>(plan.bins()));
        Assignment assignment{plan.microbatches, plan.llm.dp, {}};
        for (std::size_t s = 0; s < samples.size(); ++s) {
          samples[s].encoder_sequences = {{2, 8, 64}};
          samples[s].encoder_output_tokens = 4;
          samples[s].llm_tokens = 9;
          assignment.bin.push_back(static_cast<std::int32_t>(s));
        }
        check(lower(plan, testing::tiny_model(), samples, assignment));
      }
    }
  }
}

/// Each group keeps its forwards in order. Half of the messages between two stages go forward, so half of all
/// messages are kept. Each is sent once and received once.
TEST(Forwards, AreTheForwardsThatALossNeeds) {
  for_each_program([](const Program& program) {
    const Program forwards = forwards_of(program);
    ASSERT_EQ(forwards.groups.size(), program.groups.size());
    EXPECT_EQ(2 * forwards.messages.size(), program.messages.size());
    EXPECT_TRUE(forwards.collectives.empty());
    std::vector<int> sent(forwards.messages.size(), 0);
    std::vector<int> received(forwards.messages.size(), 0);
    for (std::size_t g = 0; g < program.groups.size(); ++g) {
      std::vector<Instruction> expected;
      for (const Instruction& i : program.instructions_of(program.groups[g])) {
        if (i.op == Op::forward) expected.push_back(i);
      }
      std::vector<Instruction> found;
      for (const Instruction& i : forwards.instructions_of(forwards.groups[g])) {
        if (i.op == Op::forward) {
          found.push_back(i);
          continue;
        }
        ASSERT_TRUE(is_send(i.op) || is_receive(i.op));
        const Message& message = forwards.messages.at(static_cast<std::size_t>(i.index));
        EXPECT_EQ(is_send(i.op) ? message.source : message.destination, static_cast<std::int32_t>(g));
        EXPECT_EQ(message.microbatch, i.microbatch);
        ++(is_send(i.op) ? sent : received)[static_cast<std::size_t>(i.index)];
      }
      EXPECT_EQ(found, expected);
    }
    EXPECT_EQ(sent, std::vector<int>(sent.size(), 1));
    EXPECT_EQ(received, std::vector<int>(received.size(), 1));
  });
}

/// On each stage and microbatch, receives come before the forward and sends after it.
TEST(Forwards, HaveTheirInputsBefore) {
  for_each_program([](const Program& program) {
    const Program forwards = forwards_of(program);
    for (const Group& group : forwards.groups) {
      std::vector<std::vector<bool>> done(program.stages.size(),
                                          std::vector<bool>(static_cast<std::size_t>(program.microbatches)));
      for (const Instruction& i : forwards.instructions_of(group)) {
        auto here = done[i.stage][static_cast<std::size_t>(i.microbatch)];
        if (i.op == Op::forward) here = true;
        EXPECT_FALSE(is_receive(i.op) && here);
        EXPECT_FALSE(is_send(i.op) && !here);
      }
    }
  });
}

TEST(Forwards, ComeToAnEnd) {
  for_each_program([](const Program& program) {
    const Program forwards = forwards_of(program);
    EXPECT_NO_THROW(require_progress(forwards, post_receives(forwards)));
  });
}

}  // namespace forwards_test
}  // namespace dflop
