#include "core/program/message_rows.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"

namespace dflop {
namespace message_rows_test {

using testing::disaggregated_plan;
using testing::random_assignment;
using testing::random_batch;
using testing::random_plan;
using testing::tiny_model;

// Two encoder ranks and one LLM rank with one microbatch. Sample a has sequences of 3 and 1 tokens that
// become 6 and 2 rows; sample b has one sequence of 4 tokens and 8 rows. Rank 0 encodes a, half of the
// tokens, and rank 1 encodes b.
TEST(MessageRows, OfAReshard) {
  Plan plan = disaggregated_plan({1, 1, 2, {4}}, {1, 1, 1, {6}}, 1, 2);
  Batch batch(2);
  batch[0] = {"a", Modality::multi_image, {{1, 3, 9}, {1, 1, 1}}, 8, 20};
  batch[1] = {"b", Modality::image, {{1, 4, 16}}, 8, 10};
  const Assignment assignment{1, 1, {0, 0}};
  const Program program = lower(plan, tiny_model(), batch, assignment);
  const std::vector<MessageRows> rows = message_rows(plan, tiny_model(), batch, assignment, program);
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t m = 0; m < rows.size(); ++m) {
    const bool forward = program.messages[m].destination == 2;
    const int rank = forward ? program.messages[m].source : program.messages[m].destination;
    const MessageRows expected =
        forward ? MessageRows{true, 0, 1, 0, 8 * rank, 8, 16} : MessageRows{false, 1, 0, 8 * rank, 0, 8, 8};
    EXPECT_EQ(rows[m], expected) << m;
  }
}

// Bytes are counted when the program is made and rows afterwards, so the two must agree. Each receiver gets
// every row exactly once.
TEST(MessageRows, CarryTheBytesOfTheirMessagesAndEveryRowOnce) {
  const ModelSpec model = tiny_model();
  std::vector<std::pair<OrderKind, Layout>> kinds;
  for (const OrderKind order : all_order_kinds()) {
    for (const Layout layout : all_of<Layout>()) {
      if (fits(traits(order), layout)) kinds.emplace_back(order, layout);
    }
  }
  for (std::uint64_t seed = 0; seed < 20 * kinds.size(); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto [order, layout] = kinds[seed % kinds.size()];
    Plan plan = random_plan(random, order, layout);
    plan.reshard = Reshard::direct;
    const Batch batch = random_batch(random, plan.gbs);
    const Assignment assignment = random_assignment(random, plan, batch.size());
    const Program program = lower(plan, model, batch, assignment);
    const std::vector<MessageRows> rows = message_rows(plan, model, batch, assignment, program);
    // The rows that have arrived, by receiver, its stage, microbatch and direction.
    std::map<std::tuple<int, int, int, bool>, std::vector<int>> came;
    for (std::size_t m = 0; m < rows.size(); ++m) {
      const MessageRows& row = rows[m];
      const Message& message = program.messages[m];
      const bool of_encoder =
          program.stages[static_cast<std::size_t>(std::max(row.source_stage, row.destination_stage))]
              .encoder_layers > 0;
      const std::int64_t width = of_encoder ? model.encoder.hidden : model.llm.hidden;
      EXPECT_EQ(message.bytes.count, row.count * width * 2) << m;
      std::vector<int>& all =
          came[{message.destination, row.destination_stage, message.microbatch, row.activations}];
      all.resize(static_cast<std::size_t>(row.of));
      for (std::int64_t r = 0; r < row.count; ++r) ++all[static_cast<std::size_t>(row.destination + r)];
    }
    for (const auto& [key, all] : came) EXPECT_EQ(all, std::vector<int>(all.size(), 1));
  }
}

TEST(MessageRows, AreMissingForAHub) {
  Plan plan = disaggregated_plan({1, 1, 2, {4}}, {1, 1, 1, {6}}, 1, 4);
  plan.reshard = Reshard::hub;
  Random random(1);
  const Batch batch = random_batch(random, plan.gbs);
  const Assignment assignment = random_assignment(random, plan, batch.size());
  const Program program = lower(plan, tiny_model(), batch, assignment);
  EXPECT_THROW(message_rows(plan, tiny_model(), batch, assignment, program), Error);
}

}  // namespace message_rows_test
}  // namespace dflop
