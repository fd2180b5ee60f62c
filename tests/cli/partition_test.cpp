// dflop partition: exact values, and one clear error for each kind of bad input.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"

namespace dflop {
namespace partition_test {

using testing::RunResult;
using testing::Sandbox;

nlohmann::json json_of(const RunResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out, nullptr, false);
}

struct PartitionTest : ::testing::Test {
  Sandbox sandbox;

  RunResult partition(const std::string& csv, const std::string& options) {
    testing::write_all(sandbox.path("items.csv"), csv);
    return sandbox.run("partition --costs items.csv " + options);
  }
  void refused(const std::string& csv, const std::string& options, const std::vector<std::string>& words,
               int exit_code = 2) {
    const RunResult result = partition(csv, options);
    EXPECT_EQ(result.exit_code, exit_code) << options << "\n" << result.err;
    EXPECT_EQ(result.out, "") << options;
    for (const std::string& word : words) EXPECT_NE(result.err.find(word), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
};

const char* const kFour = "id,encoder_s,llm_s,tokens\na,0,6,60\nb,0,4,40\nc,0,4,40\nd,0,2,20\n";

TEST_F(PartitionTest, TwoEvenBins) {
  // 16 s in two bins: 8 each, only by a + d and b + c. LPT finds this, and the mean proves it.
  for (const std::string method : {"lpt", "local-search", "ilp"}) {
    const nlohmann::json json = json_of(partition(kFour, "--bins 2 --format json --method " + method));
    EXPECT_EQ(json["objective_s"], 8.0);
    EXPECT_EQ(json["bound_s"], 8.0);
    EXPECT_EQ(json["bound_kind"], "simple");
    EXPECT_EQ(json["gap"], 0.0);
    EXPECT_EQ(json["method"], method);
    EXPECT_EQ(json["status"], "optimal");
    EXPECT_GE(json["seconds"].get<double>(), 0.0);
    EXPECT_EQ(json["assignment"], (std::vector<int>{0, 1, 1, 0}));
  }
  const nlohmann::json plain = json_of(partition(kFour, "--bins 2 --format json --method sequential"));
  EXPECT_EQ(plain["objective_s"], 10.0);  // a + b
  EXPECT_EQ(plain["gap"], 0.25);          // (10 - 8) / 8
  EXPECT_EQ(plain["assignment"], (std::vector<int>{0, 0, 1, 1}));
}

TEST_F(PartitionTest, TextHasARowForEachItem) {
  const std::string options = "--bins 4 --dp 2 --method lpt ";
  const int bin = json_of(partition(kFour, options + "--format json"))["assignment"][2];
  const RunResult result = partition(kFour, options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string& text = result.out;
  const std::string rows = text.substr(text.find("item"));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 6) << rows;  // a header, a rule, four items
  // c is the third item, with 4 s in the LLM; bin b is microbatch b div 2 on dp rank b mod 2.
  std::istringstream third(rows.substr(rows.find("\nc ")));
  std::string id;
  int of = 0, microbatch = 0, dp_rank = 0;
  double encoder_s = 1, llm_s = 0;
  third >> id >> of >> microbatch >> dp_rank >> encoder_s >> llm_s;
  EXPECT_EQ(id, "c");
  EXPECT_EQ(of, bin);
  EXPECT_EQ(microbatch, bin / 2);
  EXPECT_EQ(dp_rank, bin % 2);
  EXPECT_EQ(encoder_s, 0);
  EXPECT_EQ(llm_s, 4);
  EXPECT_EQ(text.find('['), std::string::npos) << "a list of bins is for machines: " << text;
}

TEST_F(PartitionTest, EncoderIsSharedByTheMicrobatch) {
  // One microbatch on two LLM ranks and one encoder rank: 4 s of encoder work, whichever rank has it;
  // published: 4 x 2 / 1.
  const std::string items = "id,encoder_s,llm_s\na,4,1\nb,0,1\n";
  const std::string options = "--bins 2 --dp 2 --encoder-dp 1 --method lpt --format json ";
  EXPECT_EQ(json_of(partition(items, options))["objective_s"], 4.0);
  EXPECT_EQ(json_of(partition(items, options + "--objective published"))["objective_s"], 8.0);
}

TEST_F(PartitionTest, MakespanOfAPipeline) {
  // Two microbatches of 8 s forward and 16 s backward on the LLM's stage, and nothing on the encoder's: 48 s.
  const nlohmann::json json =
      json_of(partition(kFour, "--bins 2 --objective makespan --method lpt --format json"));
  EXPECT_EQ(json["objective"], "makespan");
  EXPECT_EQ(json["objective_s"], 48.0);
  EXPECT_EQ(json["status"], "optimal");
  // With a backward as long as a forward: 32.
  const std::string ratio = "--bins 2 --objective makespan --backward-ratio 1 --method lpt --format json";
  EXPECT_EQ(json_of(partition(kFour, ratio))["objective_s"], 32.0);
}

TEST_F(PartitionTest, WithoutEncoderStagesNoItemMayHaveEncoderWork) {
  // Only the LLM's stage: the same 48 s, as no item has encoder work.
  const std::string options = "--bins 2 --objective makespan --encoder-stages 0 --method lpt --format json ";
  EXPECT_EQ(json_of(partition(kFour, options))["objective_s"], 48.0);
  refused("id,encoder_s,llm_s\na,0,6\nb,0.5,4\n", options, {"--encoder-stages", "encoder_s above 0", "'0'"});
  refused(kFour, options + "--encoder-dp 1", {"--encoder-stages", "--encoder-dp is given", "'0'"});
}

TEST_F(PartitionTest, SameSeedAndStepsGiveTheSameResult) {
  std::string items = "id,encoder_s,llm_s\n";
  for (int i = 0; i < 60; ++i) {  // without a relevant pattern
    items += "i" + std::to_string(i) + ",0." + std::to_string(i * i % 97) + ",0." +
             std::to_string(i * 31 % 89) + "\n";
  }
  const std::string options = "--bins 12 --dp 3 --encoder-dp 2 --steps 50000 --format json";
  const nlohmann::json first = json_of(partition(items, options));
  const nlohmann::json second = json_of(partition(items, options));
  EXPECT_EQ(first["assignment"], second["assignment"]);
  EXPECT_EQ(first["assignment"].size(), 60u);
  EXPECT_LE(first["bound_s"].get<double>(), first["objective_s"].get<double>());
}

TEST_F(PartitionTest, CapsAreObeyedOrTheItemIsNamed) {
  const nlohmann::json json = json_of(partition(kFour, "--bins 2 --token-cap 80 --format json"));
  EXPECT_EQ(json["assignment"][0], json["assignment"][3]);
  refused(kFour, "--bins 2 --token-cap 59",
          {"infeasible", "item 0 ('a') has 60 LLM tokens, but the cap is 59"}, 3);
  refused(kFour, "--bins 2 --token-cap 79", {"infeasible", "160 LLM tokens in total"}, 3);
  refused("id,encoder_s,llm_s\na,1,1\n", "--bins 1 --token-cap 9",
          {"items.csv", "expected a column 'tokens'"});
}

TEST_F(PartitionTest, BadInputHasOneError) {
  refused("", "--bins 1", {"items.csv", "empty"});
  refused("id,encoder_s,llm_s\na,nan,1\n", "--bins 1", {"items.csv:row 2, column 'encoder_s'", "nan"});
  refused("id,encoder_s,llm_s\na,1,-1\n", "--bins 1", {"items.csv:row 2, column 'llm_s'", "-1"});
  refused("id,encoder_s\na,1\n", "--bins 1", {"items.csv:row 1", "'llm_s' is missing"});
  refused(kFour, "--bins 5", {"items.csv", "--bins 5", "--allow-empty", "found 4"});
  refused(kFour, "--bins 4 --dp 3", {"--bins", "multiple of --dp 3", "'4'"});
  refused(kFour, "--bins 0", {"--bins", "'0'"});
  refused(kFour, "--bins 2 --time-limit 0", {"--time-limit", "'0'"});
  refused(kFour, "--bins 2 --time-limit 1 --steps 3", {"--time-limit", "--steps"});
  refused(kFour, "--bins 2 --method best", {"best", "karmarkar-karp"});
  refused(kFour, "--bins 2 --objective best", {"--objective", "best"});
  refused(kFour, "--bins 2 --llm-stages 3", {"--llm-stages", "makespan"});
  refused(kFour, "--bins 2 --objective makespan --schedule zb-v", {"--schedule", "zb-v"});
  EXPECT_EQ(partition(kFour, "--bins 5 --allow-empty").exit_code, 0);
}

}  // namespace partition_test
}  // namespace dflop
