#include "traces/data/ground_truth.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dflop {
namespace ground_truth_test {

constexpr const char* kGpt = "gpus,global_batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,iteration_s\n";
constexpr const char* kLlama =
    "model,layers,tp,pp,dp,microbatches,iteration_s,peak_allocated_bytes_max_rank,"
    "peak_allocated_bytes_min_rank\n";

void expect_error(const std::string& text, const std::string& begin) {
  try {
    parse_ground_truth(text, "t.csv");
    ADD_FAILURE() << "no error for:\n" << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_EQ(std::string(error.what()).substr(0, begin.size()), begin);
  }
}

TEST(GroundTruth, ReadsMegatronRows) {
  const TruthSet set = parse_ground_truth(std::string(kGpt) + "16,32,2,1024,16,24,512,2,4,2,0.25\n", "t.csv");
  EXPECT_EQ(set.kind, TruthKind::megatron_gpt);
  ASSERT_EQ(set.rows.size(), 1u);
  TruthRow expected;
  expected.row = 2;
  expected.hidden = 1024;
  expected.heads = 16;
  expected.seq = 512;
  expected.layers = 24;
  expected.tp = 2;
  expected.dp = 4;
  expected.pp = 2;
  expected.micro_batch = 2;
  expected.microbatches = 4;  // 32 / (2 x 4)
  expected.iteration = Seconds(0.25);
  EXPECT_EQ(set.rows[0], expected);
}

TEST(GroundTruth, ReadsLlamaRowsWithColumnsInAnyOrder) {
  const TruthSet set =
      parse_ground_truth(std::string(kLlama) + "llama3-70b,12,1,2,4,8,0.5,100,90\n", "t.csv");
  EXPECT_EQ(set.kind, TruthKind::llama);
  ASSERT_EQ(set.rows.size(), 1u);
  EXPECT_EQ(set.rows[0].model, "llama3-70b");
  EXPECT_EQ(set.rows[0].pp, 2);
  EXPECT_EQ(set.rows[0].dp, 4);
  EXPECT_EQ(set.rows[0].microbatches, 8);
  EXPECT_EQ(set.rows[0].peak_memory_max_rank, Bytes{100});
  EXPECT_EQ(set.rows[0].peak_memory_min_rank, Bytes{90});
  const TruthSet turned = parse_ground_truth(
      "peak_allocated_bytes_min_rank,peak_allocated_bytes_max_rank,iteration_s,microbatches,dp,pp,tp,layers,"
      "model\n90,100,0.5,8,4,2,1,12,llama3-70b\n",
      "t.csv");
  EXPECT_EQ(turned.rows, set.rows);
  const std::string plain = std::string(kGpt) + "16,32,2,1024,16,24,512,2,4,2,0.25\n";
  EXPECT_EQ(parse_ground_truth("\xEF\xBB\xBF" + plain, "t.csv").rows,
            parse_ground_truth(plain, "t.csv").rows);
}

TEST(GroundTruth, ReadsRowsOfOwnRuns) {
  const std::string header =
      "model,hidden,ffn,heads,kv_heads,head_dim,vocabulary,layers,seq,micro_batch,microbatches,tp,dp,pp,iteration_s,"
      "commit,note\n";
  const TruthSet set =
      parse_ground_truth(header + "own,64,96,8,2,16,100,4,128,2,3,1,2,4,0.5,abc,\"a, b\"\n", "t.csv");
  EXPECT_EQ(set.kind, TruthKind::dflop_live);
  ASSERT_EQ(set.rows.size(), 1u);
  TruthRow expected;
  expected.row = 2;
  expected.model = "own";
  expected.hidden = 64;
  expected.ffn = 96;
  expected.heads = 8;
  expected.kv_heads = 2;
  expected.head_dim = 16;
  expected.vocabulary = 100;
  expected.layers = 4;
  expected.seq = 128;
  expected.micro_batch = 2;
  expected.microbatches = 3;
  expected.dp = 2;
  expected.pp = 4;
  expected.iteration = Seconds(0.5);
  EXPECT_EQ(set.rows[0], expected);
  expect_error(header + "own,64,96,8,3,16,100,4,128,2,3,1,2,4,0.5,abc,\n",
               "t.csv:row 2, column 'kv_heads': expected a divisor of the 8 heads, found '3'");
}

TEST(GroundTruth, ReadsTheBundledFiles) {
  const std::string folder = std::string(DFLOP_SOURCE_DIR) + "/traces/ground_truth/";
  EXPECT_EQ(read_ground_truth(folder + "megatron_a100_single.csv").rows.size(), 720u);
  EXPECT_EQ(read_ground_truth(folder + "megatron_a100_multi.csv").rows.size(), 54u);
  EXPECT_EQ(read_ground_truth(folder + "llama_b200.csv").rows.size(), 12u);
  EXPECT_EQ(read_ground_truth(folder + "dflop_h100.csv").rows.size(), 2u);
}

TEST(GroundTruth, RejectsOtherHeadersAndEmptyFiles) {
  expect_error("", "t.csv:row 1: expected the columns gpus,global_batch");
  expect_error("gpus,tp\n8,8\n", "t.csv:row 1: expected the columns gpus,global_batch");
  expect_error(kGpt, "t.csv: expected at least one row");
}

TEST(GroundTruth, NamesTheRowAndColumnOfABadField) {
  const std::string good = std::string(kGpt) + "16,32,2,1024,16,24,512,2,4,2,0.25\n";
  expect_error(good + "16,32,2,1024,16,24,512,2,4,2\n", "t.csv:row 3: expected 11 fields, found 10");
  expect_error(good + "16,32,2,1024,16,24,512,2,4,2,\n",
               "t.csv:row 3, column 'iteration_s': expected seconds");
  expect_error(good + "16,32,2,1024,16,24,512,2,4,2,nan\n", "t.csv:row 3, column 'iteration_s'");
  expect_error(good + "16,32,2,1024,16,24,512,2,4,2,0\n", "t.csv:row 3, column 'iteration_s'");
  expect_error(good + "16,32,2,1024,16,24,512,2,4,2,1e9\n", "t.csv:row 3, column 'iteration_s'");
  expect_error(good + "16,32,2,1024,16,24,512,0,4,2,1\n",
               "t.csv:row 3, column 'tp': expected a whole number");
  expect_error(good + "16,32,2,1024,16,24,512,2.5,4,2,1\n", "t.csv:row 3, column 'tp'");
  expect_error(good + "16,32,2,-8,16,24,512,2,4,2,1\n", "t.csv:row 3, column 'hidden'");
}

TEST(GroundTruth, RejectsRowsThatDoNotAddUp) {
  const std::string h = kGpt;
  expect_error(h + "8,32,2,1024,16,24,512,2,4,2,1\n",
               "t.csv:row 2, column 'gpus': expected tp x dp x pp = 16");
  // 16 heads over 3 ranks are impossible in any run.
  expect_error(h + "24,32,2,1024,16,24,512,3,4,2,1\n",
               "t.csv:row 2, column 'tp': expected a divisor of the 16 heads, found '3'");
  expect_error(h + "16,30,2,1024,16,24,512,2,4,2,1\n",
               "t.csv:row 2, column 'global_batch': expected a multiple of micro_batch x dp = 8");
  expect_error(h + "16,32,2,1024,15,24,512,2,4,2,1\n", "t.csv:row 2, column 'heads': expected a divisor");
  expect_error(h + "16,32,2,1024,16,25,512,2,4,2,1\n", "t.csv:row 2, column 'pp': expected a divisor");
  expect_error(h + "16,32,2,1024,16,24,512,1048576,1048576,2,1\n",
               "t.csv:row 2, column 'pp': expected tp x dp x pp of at most");
  const std::string l = kLlama;
  expect_error(l + "llama2-7b,12,1,2,4,8,0.5,100,90\n",
               "t.csv:row 2, column 'model': expected llama3-70b or");
  expect_error(l + "llama3-70b,12,1,2,4,8,0.5,80,90\n",
               "t.csv:row 2, column 'peak_allocated_bytes_min_rank': expected at most");
}

}  // namespace ground_truth_test
}  // namespace dflop
