#include "traces/files/plan.hpp"

#include "core/program/lowering.hpp"
#include "core/program/raw_pipeline.hpp"
#include "tests/core/pipelines.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace order_file_test {

constexpr PipelineShape kShape{OrderKind::one_f_one_b, 2, 1, 2};
constexpr PipelineShape kChunked{OrderKind::interleaved, 2, 2, 2};

std::string file_of(const std::string& ranks, const std::string& more = "") {
  return R"({"schema": "dflop.order", "version": 1, )" + more + "\"ranks\": " + ranks + "}";
}

/// 1F1B of kShape.
const std::string kGood = file_of(R"([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]])");

TEST(OrderFile, HasADocumentedForm) {
  const PipelineShape shape{OrderKind::zb_v, 2, 2, 1};
  const PipelineOrder order{shape, pipeline_steps(shape)};
  // Stages 0 and 3 are on rank 0, stages 1 and 2 on rank 1; weight parts come in the order of the input
  // parts.
  EXPECT_EQ(to_json(order), R"({
  "schema": "dflop.order",
  "version": 1,
  "placement": "v",
  "ranks": [
    ["F0","F0.1","I0.1","W0.1","I0","W0"],
    ["F0","F0.1","I0.1","I0","W0.1","W0"]
  ]
}
)");
}

TEST(OrderFile, EveryScheduleReadsBackUnchanged) {
  Random random(3);
  testing::for_each_shape(4, 8, 3, [&](const PipelineShape& shape) {
    for (int leading = 0; leading <= (shape.spreads_encoder() ? 0 : 2); ++leading) {
      PipelineShape longer = shape;
      longer.leading = leading;
      const PipelineOrder order{longer, pipeline_steps(longer, {testing::random_times(random, longer), {}})};
      const PipelineOrder read = parse_order(to_json(order), "o.json", longer);
      EXPECT_EQ(read.ranks, order.ranks);
      EXPECT_EQ(read.shape.chunks > 1, read.shape.placement.has_value());
    }
  });
}

TEST(OrderFile, MayPlaceChunksInItsOwnWay) {
  // Stages 0 and 3 on rank 0 and 1 and 2 on rank 1, where interleaved has 0 and 2, 1 and 3.
  const std::string text = file_of(R"([["F0","F1","F0.1","I0.1","F1.1","B1.1","I0","B1","W0.1","W0"],
                                       ["F0","F1","F0.1","F1.1","B0.1","B0","B1.1","B1"]])",
                                   R"("placement": "v", )");
  const PipelineOrder order = parse_order(text, "o.json", kChunked);
  EXPECT_EQ(order.ranks[0][2], (OrderStep{Op::forward, 3, 0}));
  EXPECT_EQ(order.ranks[1][2], (OrderStep{Op::forward, 2, 0}));
  const RawPipeline pipeline =
      testing::equal_pipeline(kChunked, Nanoseconds(1), Nanoseconds(1), Nanoseconds(1));
  EXPECT_NO_THROW(verify(make_program(pipeline, order).program));
}

TEST(OrderFile, ExampleEqualsOneFOneBOfTheExamplePipeline) {
  const std::string path = std::string(DFLOP_SOURCE_DIR) + "/traces/pipelines/1f1b-order.json";
  const PipelineShape shape{OrderKind::one_f_one_b, 4, 1, 8};
  EXPECT_EQ(parse_order(read_text_file(path), path, shape).ranks, pipeline_steps(shape));
}

void refused(const PipelineShape& shape, const std::string& text, const std::string& key,
             std::initializer_list<std::string_view> words) {
  expect_refused([&] { parse_order(text, "o.json", shape); }, "o.json: key '" + key + "'", words);
}

TEST(OrderFile, RejectsStepsThatAreNone) {
  for (const char* name :
       {"X0", "F", "", "F2", "F-1", "F 1", "F1.", "F1.1", "F1.e", "f1", "F1x", "FF", "F01x"}) {
    refused(kShape, replaced(kGood, "\"F1\"", "\"" + std::string(name) + "\""), "ranks[0][1]",
            {"F, B, I or W", "0 to 1", "found \"" + std::string(name) + "\""});
  }
  refused(kShape, replaced(kGood, "\"F1\"", "1"), "ranks[0][1]", {"found 1"});
  refused(kChunked, file_of(R"([["F0.2"], []])"), "ranks[0][0]", {".1 to .1"});
  refused({OrderKind::encoder_in_bubbles, 2, 1, 2}, file_of(R"([["F0.1"], []])"), "ranks[0][0]", {".e"});
}

TEST(OrderFile, RejectsStepsOutOfPlace) {
  const auto swapped = [](std::string_view from, std::string_view to) { return replaced(kGood, from, to); };
  refused(kShape, swapped("\"F1\"", "\"F0\""), "ranks[0][1]", {"F0 is also at position 0"});
  refused(kShape, swapped("\"F0\", \"F1\"", "\"B0\", \"F1\""), "ranks[0][0]", {"expected F0 before B0"});
  refused(kShape, swapped("\"B0\", \"B1\"", "\"B0\""), "ranks[0]", {"expected B1 or I1", "found none"});
  refused(kShape, swapped("\"B0\", \"B1\"", "\"I0\", \"B1\""), "ranks[0]", {"expected W0, found none"});
  refused(kShape, swapped("\"B0\", \"B1\"", "\"W0\", \"B1\""), "ranks[0][2]", {"expected I0 before W0"});
  refused(kShape, swapped("\"B0\", \"B1\"", "\"B0\", \"W0\", \"B1\""), "ranks[0][3]",
          {"W0 next to B0", "(I, W)"});
  refused(kShape, swapped("\"B0\", \"B1\"", "\"I0\", \"B0\", \"B1\""), "ranks[0][3]", {"B0 next to I0"});
  refused(kShape, file_of("[[], [\"F0\"]]"), "ranks[0]", {"expected F0, found none"});
  refused({OrderKind::encoder_in_bubbles, 2, 1, 2}, file_of(R"([["F0.e", "F1.e"], []])"), "ranks[0][1]",
          {"F1.e belongs to rank 1"});
}

TEST(OrderFile, RejectsWrongRanksAndKeys) {
  refused(kShape, file_of("[[]]"), "ranks", {"2 lists", "found 1"});
  refused(kShape, file_of("7"), "ranks", {"found 7"});
  refused(kShape, file_of("[[], []]", R"("placement": "v", )"), "placement", {"one chunk"});
  refused(kChunked, file_of("[[], []]", R"("placement": "w", )"), "placement", {"round-robin, v"});
  refused(kShape, replaced(kGood, "\"ranks\"", "\"order\""), "order", {"unknown key"});
  refused(kShape, replaced(kGood, "dflop.order", "dflop.plan"), "schema", {"dflop.order"});
}

// First, rank 0 expects messages in another order than rank 1 sends them; next, it waits for a gradient
// before it makes the activation that rank 1 needs first; last, it runs a chunk before the stage that feeds
// it.
TEST(OrderFile, NamesTheStepAtWhichAnOrderStalls) {
  refused(kShape, file_of(R"([["F0", "F1", "B1", "B0"], ["F0", "B0", "F1", "B1"]])"), "ranks[0][2]",
          {"B1 comes before B0, which rank 1 sends first"});
  refused(kShape, file_of(R"([["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]])"), "ranks[0][1]",
          {"deadlock: B0 waits for B0 of rank 1, which is never reached"});
  refused(kChunked, file_of(R"([["F0.1", "F0", "B0.1", "B0", "F1", "F1.1", "B1.1", "B1"],
                                ["F0", "F0.1", "B0.1", "B0", "F1", "F1.1", "B1.1", "B1"]])"),
          "ranks[0][0]", {"deadlock: F0.1 waits for F0 of rank 1"});
}

}  // namespace order_file_test
}  // namespace dflop
