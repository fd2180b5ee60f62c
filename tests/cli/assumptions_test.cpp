// The block in which plan, compare, schedule and simulate report their assumptions and choices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/model.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/trust/assumptions.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace assumptions_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kData = "--data traces/datasets/vision_mix.csv ";
const std::string kSmall = "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 --gbs 32 --iterations 2 ";

json run_json(const Sandbox& sandbox, const std::string& command) {
  const RunResult result = sandbox.run(command + " --format json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

json assumptions(const Sandbox& sandbox, const std::string& command) {
  return run_json(sandbox, command)["assumptions"];
}

/// Returns the entry of a list that has the key.
json with_key(const json& list, const std::string& key) {
  for (const json& entry : list) {
    if (entry.contains(key)) return entry;
  }
  return {};
}

// Counts the cuts independently, from the uncut samples.
TEST(AssumptionBlock, CountsCutSamples) {
  const Sandbox sandbox;
  const std::string of_model = kData + "--model llava-ov-llama3-8b ";
  ASSERT_EQ(sandbox.run("data " + of_model + "--samples-out samples.csv").exit_code, 0);
  std::istringstream lines(testing::read_all(sandbox.path("samples.csv")));
  std::string line;
  std::getline(lines, line);
  ASSERT_TRUE(line.starts_with("id,encoder_sequences,encoder_tokens,encoder_attention_pairs,llm_tokens,"))
      << line;
  std::int64_t samples = 0;
  std::int64_t cut = 0;
  std::int64_t tokens = 0;
  std::int64_t lost = 0;
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    std::string cell;
    for (int c = 0; c < 5; ++c) std::getline(cells, cell, ',');
    const std::int64_t length = std::stoll(cell);
    ++samples;
    tokens += length;
    cut += length > 3000 ? 1 : 0;
    lost += std::max<std::int64_t>(length - 3000, 0);
  }
  ASSERT_GT(cut, 0);
  const json data = assumptions(sandbox, "plan " + kData + kSmall + "--max-tokens 3000")["data"];
  EXPECT_EQ(data[0]["samples"], samples);
  const json entry = with_key(data, "cut_samples");
  EXPECT_EQ(entry["cut_samples"], cut);
  EXPECT_EQ(entry["cut_at_tokens"], 3000);
  EXPECT_EQ(entry["cut_tokens"], lost);
  EXPECT_DOUBLE_EQ(entry["cut_token_share"], static_cast<double>(lost) / static_cast<double>(tokens));
}

TEST(AssumptionBlock, IsStoredInPlanAndSchedule) {
  const Sandbox sandbox;
  const RunResult planned = sandbox.run("plan " + kData + kSmall + "--max-tokens 3000 --out p.json");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  for (const char* part : {"assumed and chosen:", "samples cut at 3000 tokens", "chosen by dflop",
                           "fitted, error 6.0 %", "further batches"})
    EXPECT_NE(planned.out.find(part), std::string::npos) << part << planned.out;
  const RunResult scheduled =
      sandbox.run("schedule --plan p.json " + kData + "--iterations 2 --max-tokens 3000 --out s.json");
  ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
  EXPECT_NE(scheduled.out.find("samples cut at 3000 tokens"), std::string::npos) << scheduled.out;
  // The schedule remembers how its samples were made.
  const json run = assumptions(sandbox, "simulate --plan p.json --schedule s.json");
  EXPECT_EQ(with_key(run["data"], "cut_samples")["cut_at_tokens"], 3000);
  EXPECT_EQ(run["preset"][0]["grade"], "fitted");
  // The output of 'plan' can itself be used as a plan.
  const json printed = run_json(sandbox, "plan " + kData + kSmall + "--max-tokens 3000");
  testing::write_all(sandbox.path("q.json"), printed.dump());
  EXPECT_EQ(sandbox.run("schedule --plan q.json " + kData + "--iterations 1 --out s.json").exit_code, 0);
}

TEST(AssumptionBlock, SaysHowFarFiguresOfAClusterHold) {
  for (const std::string& name : preset_names("clusters")) {
    const ClusterNotes notes = find_cluster_notes(name + ":2").front().notes;
    EXPECT_NE(notes.grade, Grade::unknown) << name;
    if (notes.grade == Grade::fitted) {
      EXPECT_TRUE(notes.error.has_value()) << name;
    }
    EXPECT_EQ(notes.allowance.has_value(), !notes.allowance_source.empty()) << name;
    const ClusterSpec cluster = find_cluster(name);
    EXPECT_GT(notes.inter_node_line_rate_bytes_per_s, cluster.inter_node.bandwidth_bytes_per_s) << name;
    EXPECT_GT(notes.intra_node_line_rate_bytes_per_s, cluster.intra_node.bandwidth_bytes_per_s) << name;
  }
  const std::vector<NamedNotes> joined = find_cluster_notes("a100-80g:1+h100:1+a100-80g:1");
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[1].name, "h100");
}

TEST(AssumptionBlock, SaysWhichLinksAreAssumed) {
  const Sandbox sandbox;
  const std::string plan =
      "plan " + kData + "--model llava-ov-llama3-8b --cluster h100:1 --gbs 32 --iterations 1 ";
  const json none = assumptions(sandbox, plan);
  EXPECT_FALSE(none.contains("links"));
  // 400 Gb/s are 50e9 B/s: the line rate of the preset, whose messages achieve 46e9.
  for (const char* same : {"400Gb/s", "400Gbps", "400Gbit/s", "50GB/s", "50e9B/s", "0.4Tb/s"}) {
    const json link = assumptions(sandbox, plan + "--inter-node-bandwidth " + same)["links"][0];
    EXPECT_DOUBLE_EQ(link["bandwidth_bytes_per_s"], 50e9) << same;
    EXPECT_EQ(link["preset_bytes_per_s"], 46e9);
    EXPECT_EQ(link["line_rate_bytes_per_s"], 50e9);
    EXPECT_NE(link["text"].get<std::string>().find("this is its line rate"), std::string::npos);
  }
  const std::string fast = assumptions(sandbox, plan + "--inter-node-bandwidth 400GB/s")["links"][0]["text"];
  EXPECT_NE(fast.find("above its line rate"), std::string::npos) << fast;
  EXPECT_NE(fast.find("bits or bytes?"), std::string::npos) << fast;
}

// A wish for an order excludes shared plans, so plans of two orders are comparable.
TEST(AssumptionBlock, ComparesLikeWithLikeUnderAWish) {
  const Sandbox sandbox;
  const std::string plan = "plan " + kData + "--model llava-ov-llama3-8b --cluster a100-80g:2 --gbs 64 " +
                           "--iterations 1 --tp 2 --pp 4 --dp 2 --microbatches 32 --order ";
  for (const char* order : {"1f1b", "zb-h1"}) {
    const json found = run_json(sandbox, plan + order);
    EXPECT_EQ(found["layout"], "uniform") << order;
    const std::string asked = found["assumptions"]["choices"][0]["text"];
    EXPECT_EQ(asked, std::string("asked for: tp 2, pp 4, dp 2, microbatches 32, order ") + order);
  }
  const RunResult shared = sandbox.run(plan + "1f1b --layout shared");
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_NE(shared.out.find(" *"), std::string::npos) << shared.out;
  EXPECT_NE(shared.out.find("not confirmed on any GPU"), std::string::npos) << shared.out;
}

// Qwen2.5-VL-7B has 28 heads and 4 KV heads, and an encoder with 16 heads: tp 8 computes 32 heads for the 28.
TEST(AssumptionBlock, NamesPaddedHeads) {
  const ModelSpec model = find_model("qwen2.5-vl-7b");
  ASSERT_EQ(model.llm.heads, 28);
  EXPECT_TRUE(divides_heads(model.llm, 4));
  EXPECT_FALSE(divides_heads(model.llm, 8));
  EXPECT_FALSE(divides_heads(model.llm, 3));
  EXPECT_TRUE(divides_heads(model.encoder, 8));
  const Sandbox sandbox;
  const std::string plan =
      "plan " + kData + "--model qwen2.5-vl-7b --cluster h100:1 --gbs 16 --iterations 1 ";
  const json heads = assumptions(sandbox, plan + "--tp 8")["heads"];
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_EQ(heads[0]["module"], "LLM");
  EXPECT_EQ(heads[0]["heads"], 28);
  EXPECT_EQ(heads[0]["computed"], 32);
  const RunResult refused = sandbox.run(plan + "--tp 8 --no-padded-heads");
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  for (const char* planner :
       {"pytorch", "megatron", "megatron-default", "search --layout uniform --budget 1"}) {
    const json found = run_json(sandbox, plan + "--no-padded-heads --planner " + planner);
    EXPECT_TRUE(divides_heads(model.llm, found["llm"]["tp"])) << planner;
    EXPECT_FALSE(found["assumptions"].contains("heads")) << planner;
  }
}

/// A plan that two random batches do not fit (schedule_test.cpp).
const char* const kFull = R"({"schema": "dflop.plan", "version": 1, "planner": "pytorch",
  "model": "llava-ov-llama3-8b", "cluster": "a100-80g-vtrain:1", "gbs": 32, "layout": "uniform",
  "encoder": {"tp": 2, "pp": 1, "dp": 4, "layers": [27]}, "llm": {"tp": 2, "pp": 1, "dp": 4, "layers": [32]},
  "microbatches": 3, "schedule": "1f1b", "recomputation": "none", "zero1": true, "sequence_parallel": true)";

TEST(AssumptionBlock, PlansSuggestRespectMemory) {
  const Sandbox sandbox;
  const std::string schedule =
      "schedule --plan p.json " + kData +
      "--modalities image,multi_image --scheduler random --iterations 2 --out s.json ";
  const auto exit_code = [&](const std::string& options) {
    EXPECT_EQ(sandbox.run(schedule + options).exit_code, 0);
    return sandbox.run("simulate --plan p.json --schedule s.json").exit_code;
  };
  testing::write_all(sandbox.path("p.json"), std::string(kFull) + "}");
  EXPECT_EQ(exit_code(""), 3);
  testing::write_all(sandbox.path("p.json"), std::string(kFull) + R"(, "respect_memory": true})");
  EXPECT_EQ(exit_code(""), 0) << "the plan asks for it";
  EXPECT_EQ(exit_code("--no-respect-memory"), 3);
  const RunResult both = sandbox.run(schedule + "--respect-memory --no-respect-memory");
  testing::expect_error(both, {"--respect-memory", "--no-respect-memory"});
}

// The search fills its plans within memory, so they request it. Plans of other planners do so only when
// asked.
TEST(AssumptionBlock, PlansOfASearchAskForMemory) {
  const Sandbox sandbox;
  const std::string plan = "plan " + kData + kSmall;
  const std::string search = plan + "--planner search --layout uniform --budget 1";
  EXPECT_EQ(run_json(sandbox, search)["respect_memory"], true);
  EXPECT_FALSE(run_json(sandbox, search + " --no-respect-memory").contains("respect_memory"));
  EXPECT_FALSE(run_json(sandbox, plan + "--planner dflop").contains("respect_memory"));
  EXPECT_EQ(run_json(sandbox, plan + "--planner dflop --respect-memory")["respect_memory"], true);
}

TEST(AssumptionBlock, CompareHasSpreadMemoryAndHours) {
  const Sandbox sandbox;
  const std::string compare =
      "compare " + kData + kSmall + "--systems pytorch,dflop --recompute full --seed 3 --train-samples 3e6 ";
  const json three = run_json(sandbox, compare);
  ASSERT_EQ(three["seeds"].size(), 2u);
  EXPECT_EQ(three["seeds"][0]["seeds"], 3);
  // The first seed is the table's seed. The speedup of a system over itself is 1 with no spread.
  EXPECT_DOUBLE_EQ(three["seeds"][0]["speedup_vs_pytorch_mean"], 1);
  EXPECT_DOUBLE_EQ(three["seeds"][0]["speedup_vs_pytorch_95"], 0);
  const double first = three["systems"][1]["samples_per_s"];
  EXPECT_LE(three["seeds"][1]["samples_per_s_least"], first);
  EXPECT_GE(three["seeds"][1]["samples_per_s_most"], first);
  const json& memory = three["assumptions"]["memory"];
  ASSERT_EQ(memory.size(), 3u) << "a heading and a line for each plan";
  EXPECT_EQ(memory[1]["systems"], "pytorch");
  EXPECT_EQ(memory[1]["respect_memory"], false);
  EXPECT_EQ(memory[1]["batches"], 64 + 4096) << "random microbatches that come near to the memory";
  EXPECT_EQ(memory[1]["iterations"], 93750.0) << "3e6 samples in batches of 32";
  const json one = run_json(sandbox, compare + "--seeds 1 --overhead data=0.03,restarts=0.02");
  EXPECT_FALSE(one.contains("seeds"));
  EXPECT_EQ(one["systems"][1]["samples_per_s"], first) << "the table is of the first seed";
  const double hours = three["systems"][1]["train_hours"];
  EXPECT_DOUBLE_EQ(hours, 3e6 / first / 3600);
  EXPECT_DOUBLE_EQ(one["systems"][1]["train_hours"], hours * 1.05);
  const json& over_seeds = three["seeds"][1];
  EXPECT_DOUBLE_EQ(over_seeds["train_gpu_hours_95"], over_seeds["train_hours_95"].get<double>() * 8);
  const json time = with_key(one["assumptions"]["time"], "overhead");
  EXPECT_DOUBLE_EQ(time["overhead"], 0.05);
  const json kept = run_json(sandbox, compare + "--seeds 1 --drop-long --max-tokens 4000");
  const std::string last = kept["assumptions"]["time"].back()["text"];
  EXPECT_TRUE(last.starts_with("--train-samples counts only samples that are kept")) << last;
  testing::expect_error(sandbox.run(compare + "--overhead date=0.1"),
                        {"--overhead", "data=0.02", "'date=0.1'"});
  testing::expect_error(sandbox.run(compare + "--overhead allowance"),
                        {"--overhead", "'a100-80g-vtrain' has no allowance"});
}

/// Returns the longest line of a block of 100 words of 4 letters on a terminal with this many columns.
std::size_t longest_line(unsigned short columns) {
  AssumptionBlock block;
  std::string words;
  for (int i = 0; i < 100; ++i) words += "word ";
  block.add("data", words);
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ::grantpt(terminal);
  ::unlockpt(terminal);
  const int shown = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  const winsize size{24, columns, 0, 0};
  EXPECT_EQ(::ioctl(shown, TIOCSWINSZ, &size), 0);
  std::fflush(stdout);
  const int own = ::dup(STDOUT_FILENO);
  ::dup2(shown, STDOUT_FILENO);
  const std::string text = block.terminal_text();
  ::dup2(own, STDOUT_FILENO);
  for (const int file : {own, shown, terminal}) ::close(file);
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

// A line begins with 11 columns for the topic. n words with spaces between them take 5 n - 1 columns: 10
// words fit into 60 - 11 columns, 21 into 118 - 11, and 6 into the smallest width, 40 - 11.
TEST(AssumptionBlock, FitsTheTerminal) {
  EXPECT_EQ(longest_line(60), 11 + 10 * 5 - 1);
  EXPECT_EQ(longest_line(200), 11 + 21 * 5 - 1);
  EXPECT_EQ(longest_line(10), 11 + 6 * 5 - 1);
}

}  // namespace assumptions_test
}  // namespace dflop
