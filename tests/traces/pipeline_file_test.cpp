#include "traces/files/pipeline.hpp"

#include <limits>

#include "tests/traces/file_fixtures.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace pipeline_file_test {

constexpr Seconds kNan{std::numeric_limits<double>::quiet_NaN()};

/// Two ranks with two chunks each, so four stages and three boundaries.
constexpr std::string_view kExample = R"({
  "schema": "dflop.pipeline",
  "version": 1,
  "schedule": "interleaved",
  "stages": 2,
  "chunks": 2,
  "microbatches": 2,
  "forward_s": [1, [2, 3], 4.5, [5, 6]],
  "backward_s": 7,
  "backward_weight_s": [[8, 9], 10, 11, 12],
  "activation_bytes": [13, 14, [15, 16], 17],
  "p2p_bytes": [18, [19, 20], 21],
  "link": {"latency_s": 1e-6, "bandwidth_bytes_per_s": 1e9}
})";

std::string changed(std::string_view from, std::string_view to) {
  return replaced(std::string(kExample), from, to);
}

TEST(PipelineFile, BroadcastsNumbersToRowsAndRowsToMicrobatches) {
  const RawPipeline pipeline = parse_pipeline(kExample, "p.json");
  EXPECT_EQ(pipeline.shape.kind, OrderKind::interleaved);
  EXPECT_EQ(pipeline.shape.ranks, 2);
  EXPECT_EQ(pipeline.shape.chunks, 2);
  EXPECT_EQ(pipeline.shape.microbatches, 2);
  EXPECT_EQ(pipeline.forward.at(0, 1), Seconds(1));
  EXPECT_EQ(pipeline.forward.at(1, 0), Seconds(2));
  EXPECT_EQ(pipeline.forward.at(1, 1), Seconds(3));
  EXPECT_EQ(pipeline.forward.at(2, 1), Seconds(4.5));
  EXPECT_EQ(pipeline.backward.at(3, 1), Seconds(7));
  EXPECT_EQ(pipeline.backward_weight->at(0, 1), Seconds(9));
  EXPECT_EQ(pipeline.activation->at(2, 1), Bytes{16});
  EXPECT_EQ(pipeline.message.at(1, 1), Bytes{20});
  EXPECT_EQ(pipeline.message.at(2, 0), Bytes{21});
  EXPECT_EQ(pipeline.link, (RawLink{Seconds(1e-6), 1e9}));
}

TEST(PipelineFile, KnowsEverySchedule) {
  for (const OrderTraits& order : pipeline_orders()) {
    SCOPED_TRACE(order.name);
    // Three microbatches on three ranks, which round-based orders allow as well.
    std::string text =
        R"({"schema":"dflop.pipeline","version":1,"stages":3,"microbatches":3,"forward_s":1,"backward_s":1,
            "backward_weight_s":1,)";
    const bool several_chunks = order.chunks == OrderTraits::kSeveralChunks;
    if (several_chunks) text += R"("chunks":4,)";
    if (order.spreads_encoder) text += R"("encoder_forward_s":1,"encoder_backward_s":1,)";
    const RawPipeline pipeline =
        parse_pipeline(text + R"("schedule":")" + std::string(order.name) + "\"}", "p.json");
    EXPECT_EQ(pipeline.shape.kind, order.kind);
    EXPECT_EQ(pipeline.shape.chunks, several_chunks ? 4 : order.chunks);
    EXPECT_EQ(pipeline.encoder.has_value(), order.spreads_encoder);
    EXPECT_EQ(pipeline.message.at(1, 1), Bytes{0});
    EXPECT_FALSE(pipeline.activation || pipeline.link);
  }
}

TEST(PipelineFile, ExamplesAreAccepted) {
  for (const char* name : {"1f1b", "zb-h1", "encoder-in-bubbles"}) {
    const std::string path = std::string(DFLOP_SOURCE_DIR) + "/traces/pipelines/" + name + ".json";
    EXPECT_EQ(to_string(parse_pipeline(read_text_file(path), path).shape.kind), name);
  }
}

/// Two ranks, three microbatches, with an encoder.
constexpr std::string_view kInBubbles = R"({
  "schema": "dflop.pipeline", "version": 1, "schedule": "encoder-in-bubbles", "stages": 2, "microbatches": 3,
  "forward_s": [1, 2], "backward_s": 3, "p2p_bytes": [7], "encoder_forward_s": [4, 5, 6],
  "encoder_backward_s": 8, "encoder_bytes": 9, "activation_limit": [1, 2],
  "link": {"latency_s": 0, "bandwidth_bytes_per_s": 1e9}
})";

TEST(PipelineFile, ReadsTheEncoderThatFillsBubbles) {
  const RawPipeline pipeline = parse_pipeline(kInBubbles, "p.json");
  EXPECT_EQ(pipeline.shape.stages(), 3);
  ASSERT_TRUE(pipeline.encoder);
  EXPECT_EQ(pipeline.encoder->forward.at(0, 2), Seconds(6));
  EXPECT_EQ(pipeline.encoder->backward.at(0, 1), Seconds(8));
  EXPECT_EQ(pipeline.encoder->message.at(0, 0), Bytes{9});
  EXPECT_EQ(pipeline.activation_limit, (std::vector<int>{1, 2}));
}

TEST(PipelineFile, RejectsKeysOfOtherSchedules) {
  const auto refused = [](std::string_view from, std::string_view to, const std::string& key,
                          std::initializer_list<std::string_view> words) {
    const std::string text = replaced(std::string(kInBubbles), from, to);
    expect_refused([&] { parse_pipeline(text, "p.json"); }, "p.json: key '" + key + "'", words);
  };
  refused("\"encoder-in-bubbles\"", "\"1f1b\"", "encoder_forward_s", {"1f1b has no such key"});
  refused("\"encoder_backward_s\": 8,", "", "encoder_backward_s", {"expected this key"});
  refused("[4, 5, 6]", "[4, 5]", "encoder_forward_s", {"each of 3 microbatches", "found 2"});
  refused("[1, 2],\n  \"link\"", "[1],\n  \"link\"", "activation_limit", {"each of 2 stages", "found 1"});
  refused("[1, 2],\n  \"link\"", "0,\n  \"link\"", "activation_limit", {"found 0"});
  refused(",\n  \"link\": {\"latency_s\": 0, \"bandwidth_bytes_per_s\": 1e9}", "", "link",
          {"with p2p_bytes"});
  const std::string no_encoder = R"({"schema":"dflop.pipeline","version":1,"schedule":"1f1b","stages":3,
      "microbatches":2,"forward_s":1,"backward_s":1,"activation_limit":2})";
  expect_refused([&] { parse_pipeline(no_encoder, "p.json"); }, "p.json: key 'activation_limit'",
                 {"1f1b has no such key"});
}

void refused(std::string_view from, std::string_view to, const std::string& key,
             std::initializer_list<std::string_view> words) {
  const std::string text = changed(from, to);
  expect_refused([&] { parse_pipeline(text, "p.json"); },
                 key.empty() ? "p.json" : "p.json: key '" + key + "'", words);
}

TEST(PipelineFile, RejectsAWrongShape) {
  refused("\"interleaved\"", "\"zigzag\"", "schedule", {"interleaved, zb-h1", "zigzag"});
  refused("\"stages\": 2", "\"stages\": 0", "stages", {"found 0"});
  refused("\"stages\": 2", "\"stages\": 2.5", "stages", {"whole number"});
  refused("\"stages\": 2", "\"stages\": 4096", "stages", {"at most 2048 of 2 chunks", "found 4096"});
  refused("\"microbatches\": 2", "\"microbatches\": 2000000", "microbatches",
          {"at most 524288 for 4 stages"});
  refused("\"chunks\": 2", "\"chunks\": 4096", "stages", {"at most 1 of 4096 chunks", "found 2"});
  refused("\"chunks\": 2,", "", "chunks", {"expected this key"});
  refused("\"interleaved\"", "\"zb-h1\"", "chunks", {"expected 1 for zb-h1", "found 2"});
  refused("\"version\": 1", "\"version\": 2", "version", {"newer version"});
  refused("dflop.pipeline", "dflop.plan", "schema", {"dflop.pipeline"});
}

TEST(PipelineFile, RejectsRaggedTables) {
  refused("[2, 3]", "[2, 3, 4]", "forward_s[1]", {"2 microbatches", "found 3"});
  refused("[2, 3]", "[]", "forward_s[1]", {"found 0"});
  refused("4.5, ", "", "forward_s", {"4 stages", "found 3"});
  refused("[[8, 9], 10, 11, 12]", "[]", "backward_weight_s", {"4 stages", "found 0"});
  refused("[[8, 9], 10, 11, 12]", "[[8, 9]]", "backward_weight_s", {"4 stages", "found 1"});
  refused("[15, 16]", "[15]", "activation_bytes[2]", {"found 1"});
  refused("18, [19, 20], 21", "18, [19, 20], 21, 22", "p2p_bytes", {"3 boundaries", "found 4"});
}

TEST(PipelineFile, RejectsWrongValues) {
  refused("[2, 3]", "[2, -3]", "forward_s[1][1]", {"at least 0", "found -3"});
  refused("\"backward_s\": 7", "\"backward_s\": null", "backward_s", {"found null"});
  refused("\"backward_s\": 7", "\"backward_s\": \"7\"", "backward_s", {"number"});
  refused("\"backward_s\": 7", "\"backward_s\": 1e999", "backward_s", {"range of a double"});
  refused("\"backward_s\": 7", "\"backward_s\": 1e6", "", {"at most 1000000 s"});
  refused("[15, 16]", "[15, 1.5]", "activation_bytes[2][1]", {"whole number", "found 1.5"});
  refused("18, ", "-18, ", "p2p_bytes[0]", {"found -18"});
  refused("1e9", "0", "link.bandwidth_bytes_per_s", {"above 0", "found 0"});
  refused("1e9", "-1", "link.bandwidth_bytes_per_s", {"found -1"});
  refused("1e9", "1e-320", "", {"at most 1000000 s"});
  refused("1e-6", "-1e-6", "link.latency_s", {"at least 0"});
  const std::string nan = changed("\"backward_s\": 7", "\"backward_s\": NaN");
  expect_refused([&] { parse_pipeline(nan, "p.json"); }, "p.json:9:17", {"expected JSON"});
}

TEST(PipelineFile, RejectsUnknownAndMissingKeys) {
  refused("\"link\"", "\"cable\"", "cable", {"unknown key", "link"});
  refused("\"backward_s\": 7,", "", "backward_s", {"expected this key"});
  refused(",\n  \"link\": {\"latency_s\": 1e-6, \"bandwidth_bytes_per_s\": 1e9}", "", "link",
          {"with p2p_bytes"});
  refused(", \"bandwidth_bytes_per_s\": 1e9", "", "link.bandwidth_bytes_per_s", {"expected this key"});
  const std::string no_weight = replaced(
      replaced(changed("\"interleaved\"", "\"zb-v\""), "\"backward_weight_s\": [[8, 9], 10, 11, 12],", ""),
      "\"chunks\": 2,", "");
  expect_refused([&] { parse_pipeline(no_weight, "p.json"); }, "p.json: key 'backward_weight_s'",
                 {"for zb-v", "found none"});
}

TEST(PipelineFile, BytesStayInside64Bits) {
  // A cell is at most 2^50; 2 stages x 2^11 microbatches of it are 2^62.
  const std::string text = R"({"schema":"dflop.pipeline","version":1,"schedule":"1f1b","stages":2,
      "microbatches":2048,"forward_s":0,"backward_s":0,"activation_bytes":1125899906842624})";
  expect_refused([&] { parse_pipeline(text, "p.json"); }, "p.json: key 'activation_bytes'", {"2^60"});
}

/// Errors that the reader cannot let through, but that a caller can build.
TEST(RawPipelineValidation, RejectsNonNumbersAndRaggedTables) {
  const RawPipeline good = parse_pipeline(kExample, "p.json");
  const auto refuse = [&](const std::string& key, auto change) {
    RawPipeline bad = good;
    change(bad);
    expect_refused([&] { make_program(bad); }, "pipeline: key '" + key + "'", {"expected"});
  };
  refuse("forward_s", [](RawPipeline& p) { p.forward.rows[1][0] = kNan; });
  refuse("backward_s", [](RawPipeline& p) { p.backward.rows[0][0] = Seconds(-1); });
  refuse("backward_s", [](RawPipeline& p) { p.backward.rows.clear(); });
  refuse("forward_s[1]", [](RawPipeline& p) { p.forward.rows[1].push_back(Seconds(1)); });
  refuse("p2p_bytes", [](RawPipeline& p) { p.message.rows.pop_back(); });
  refuse("link.latency_s", [](RawPipeline& p) { p.link->latency = kNan; });
  refuse("link.bandwidth_bytes_per_s", [](RawPipeline& p) { p.link->bytes_per_second = 0; });
  refuse("stages", [](RawPipeline& p) { p.shape.ranks = 0; });
  refuse("microbatches", [](RawPipeline& p) { p.shape.microbatches = 0; });
  refuse("chunks", [](RawPipeline& p) { p.shape.chunks = 0; });
}

}  // namespace pipeline_file_test
}  // namespace dflop
