// Spread over seeds, memory of further batches and conditions of a role, compared with values derived by
// hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "experiments/studies/data.hpp"
#include "experiments/studies/headroom.hpp"
#include "experiments/trust/roles.hpp"
#include "experiments/trust/spread.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/cli/run.hpp"
#include "tests/cli/sweep_fixture.hpp"
#include "traces/files/plan.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace trust_test {

using nlohmann::json;

// 1, 2, 3: mean 2, standard deviation 1; Student's t with 2 degrees of freedom at 0.975 is 4.302653.
TEST(Spread, IsStudentsInterval) {
  const Spread spread = spread_of(std::vector<double>{3, 1, 2});
  EXPECT_DOUBLE_EQ(spread.mean, 2);
  EXPECT_NEAR(spread.half_width, 4.302653 / std::sqrt(3.0), 1e-6);
  EXPECT_EQ(spread.least, 1);
  EXPECT_EQ(spread.most, 3);
  EXPECT_EQ(spread_of(std::vector<double>{5}).half_width, 0);
  EXPECT_EQ(spread_of({}).count, 0u);
}

// Peaks at the quantiles of a distribution reproduce its tail. Gumbel's F(x) = exp(-exp(-x)) leaves 1 - F(5)
// = 0.0067 above 5. F(x) = exp(-(1 - x)^2) ends at 1: it leaves 1 - F(0.9) = 1 - exp(-0.01) above 0.9, and
// nothing above 1.1, whatever a Gumbel distribution of the same mean and variance would leave.
TEST(Headroom, ChanceComesFromAnExtremeValueDistribution) {
  std::vector<double> gumbel;
  std::vector<double> ending;
  for (int i = 0; i < 1000; ++i) {
    const double minus_log = -std::log((i + 0.5) / 1000);
    gumbel.push_back(-std::log(minus_log));
    ending.push_back(1 - std::sqrt(minus_log));
  }
  EXPECT_NEAR(overrun_chance(gumbel, 5), 1 - std::exp(-std::exp(-5.0)), 5e-4);
  EXPECT_NEAR(overrun_chance(ending, 0.9), 1 - std::exp(-0.01), 5e-4);
  EXPECT_EQ(overrun_chance(ending, 1.1), 0);
  // Quantiles of exp(-x): this is also the fraction above x.
  std::vector<double> exponential;
  for (int i = 0; i < 1000; ++i) exponential.push_back(-std::log((i + 0.5) / 1000));
  EXPECT_NEAR(exponential_tail(exponential, 6), std::exp(-6), 0.1 * std::exp(-6));
  EXPECT_EQ(exponential_tail(std::vector<double>(100, 5.0), 6), 0);
  // Equal values are all above or all below. With one of four above, the chance is never below a quarter.
  EXPECT_EQ(overrun_chance(std::vector<double>{5, 5}, 6), 0);
  EXPECT_EQ(overrun_chance(std::vector<double>{5, 5}, 4), 1);
  EXPECT_GE(overrun_chance(std::vector<double>{1, 1, 1, 9}, 8), 0.25);
  Headroom headroom;
  headroom.chance = 0.1;
  EXPECT_NEAR(headroom.chance_of_run(3), 1 - 0.9 * 0.9 * 0.9, 1e-12);
}

// 640 samples: sample i has i LLM tokens and, if i is even, 1000 - i encoder tokens. One in 64 makes ten
// longest samples: 639, 0, 638, 2, ...
TEST(FurtherBatches, HoldEachOfTheLongestSamplesOnce) {
  std::vector<Sample> samples;
  for (int i = 0; i < 640; ++i) {
    Sample& sample = samples.emplace_back();
    sample.id = std::to_string(i);
    sample.llm_tokens = i;
    if (i % 2 == 0) sample.encoder_sequences = {{1, 1000 - i, 1}};
  }
  const std::vector<std::string> longest = {"639", "0", "638", "2", "637", "4", "636", "6", "635", "8"};
  const FurtherBatches further = further_batches(samples, 16, 5);
  ASSERT_EQ(further.longest.size(), longest.size());
  for (std::size_t k = 0; k < longest.size(); ++k) {
    EXPECT_EQ(further.longest[k].size(), 16u);
    EXPECT_EQ(further.longest[k].front().id, longest[k]);
    std::set<std::string> ids;
    for (const Sample& sample : further.longest[k]) ids.insert(sample.id);
    EXPECT_GE(ids.size(), 15u) << "all are of one pass, or of two where one ends";
    EXPECT_EQ(std::ranges::count(further.longest[k], longest[k], &Sample::id), 1);
  }
  EXPECT_EQ(further.drawn.size(), 64u);
  const std::vector<Batch> drawn = make_batches(samples, 16, 64, 5);
  for (std::size_t k = 0; k < drawn.size(); ++k)
    EXPECT_EQ(further.drawn[k].front().id, drawn[k].front().id) << "they are those of a run";
  // Planners see 64 drawn batches and ten with the longest samples, the latter in three more draws, and the
  // batches of the reported estimate.
  EXPECT_EQ(batches_to_fit(samples, 16, 5).size(), (64u + 10) + 3 * 10 + (64 + 10));
  EXPECT_EQ(batches_to_fit(samples, 16, 5).front().front().id, "639");
  // Large batches are fewer, with at least one that has the longest sample.
  EXPECT_EQ(further_batches(samples, 512, 5).drawn.size(), 32u);
  samples.resize(3);
  const FurtherBatches few = further_batches(samples, 1, 5);
  ASSERT_EQ(few.longest.size(), 1u);
  EXPECT_EQ(few.longest[0].front().id, "2");
}

// In this batch the sample of 32,768 tokens is its own microbatch, and together with the next largest it
// needs 76.1 of 76.0 GiB. No lower cap is above that sample, but the bins in LPT's order fit.
TEST(Headroom, LongSamplesAreKeptWithinMemoryByAnotherOrderOfBins) {
  const Plan plan = parse_plan(R"({"schema": "dflop.plan", "version": 1, "planner": "search",
    "model": "llava-ov-llama3-8b", "cluster": "a100-80g:4", "gbs": 512, "layout": "uniform",
    "encoder": {"tp": 2, "pp": 2, "dp": 8, "layers": [13, 12, 2, 0]},
    "llm": {"tp": 2, "pp": 2, "dp": 8, "layers": [0, 0, 17, 15]}, "chunks": 2, "microbatches": 20, "schedule": "zb-v",
    "recomputation": "none", "gradient_bucket_bytes": 26214400, "zero1": true, "sequence_parallel": true,
    "objective": "makespan", "respect_memory": true})",
                               "plan");
  const Target target(plan.model, plan.cluster, "", {}, nullptr);
  PreprocessOptions options;
  options.rule = target.model.preprocess;
  options.max_tokens = target.model.max_tokens;
  const auto samples = load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options, false);
  const Bytes usable = target.cluster.gpu.usable_memory();
  const auto lpt = make_scheduler("lpt", {.prove = false});
  std::size_t too_large = 0;
  for (const std::uint64_t seed : {std::uint64_t{0x6865'6164'0000'0001}, std::uint64_t{3}}) {
    for (const Batch& batch : further_batches(samples, plan.gbs, seed).longest) {
      const auto free = filled_peak(target.problem(), plan, batch, *lpt, 1, 0, {});
      too_large += free && *free > usable ? 1 : 0;
      const auto kept = filled_peak(target.problem(), plan, batch, *lpt, 1, 0, usable);
      ASSERT_TRUE(kept) << batch.front().id;
      EXPECT_LE(*kept, usable);
    }
  }
  EXPECT_GT(too_large, 0u);
}

// The real mix has one video that is much longer than all others and occurs once per pass. If its batches
// fit, no other batch needs more: a whole pass of 250 batches with LPT confirms this.
TEST(Headroom, OneLongSampleThatFitsIsNoRisk) {
  const testing::Sandbox sandbox;
  const std::string data = "--data traces/datasets/vision_mix.csv ";
  const testing::RunResult planned = sandbox.run(
      "plan --planner megatron --recompute none " + data +
      "--model llava-ov-llama3-8b --cluster a100-80g:1 --gbs 64 --iterations 1 --format json --out p.json");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const json memory = json::parse(planned.out, nullptr, false)["assumptions"]["memory"];
  ASSERT_EQ(
      sandbox.run("schedule --plan p.json " + data + "--iterations 250 --seed 3 --scheduler lpt --out s.json")
          .exit_code,
      0);
  const testing::RunResult run = sandbox.run("simulate --plan p.json --schedule s.json --format json");
  ASSERT_EQ(run.exit_code, 0) << "no batch of the pass overruns the memory";
  const json by_lpt = memory.back();
  EXPECT_EQ(by_lpt["scheduler"], "lpt");
  EXPECT_EQ(by_lpt["longest_samples_fit"], true);
  EXPECT_LT(by_lpt["out_of_memory_chance"], 0.1);
  // The pass holds the longest sample, and small additions to it make little difference.
  EXPECT_NEAR(by_lpt["longest_samples_bytes"].get<double>(),
              json::parse(run.out, nullptr, false)["peak_memory_bytes"].get<double>(), 2e9);
  // The planner filled its trials at random, which is also reported.
  EXPECT_EQ(memory.front()["scheduler"], "random");
}

// With tp 1 and no recomputation, a sample of 32,000 tokens needs 115 GiB. A plan for the planned batches,
// which do not have it, is better than none if a note says so.
TEST(Headroom, APlanWithoutMemoryForLongSamplesIsReported) {
  const testing::Sandbox sandbox;
  std::string records =
      "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,"
      "n_texts,prompt_tokens,answer_tokens,text_tokens\n";
  for (int i = 0; i < 63; ++i) records += fmt::format("s{},,,text,,,,,,,,,1,0,500,500\n", i);
  testing::write_all(sandbox.path("d.csv"), records + "long,,,text,,,,,,,,,1,0,32000,32000\n");
  const std::string plan =
      "plan --planner search --budget 20000 --data d.csv --model llava-ov-llama3-8b --cluster a100-80g:1 "
      "--gbs 16 --iterations 1 --tp 1 --pp 2 --dp 4 --recompute none --format ";
  const testing::RunResult planned = sandbox.run(plan + "json");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_NE(planned.err.find("note: search: no plan was found that fits further batches with the longest "
                             "sample, of 32000 LLM tokens"),
            std::string::npos)
      << planned.err;
  const json memory = json::parse(planned.out, nullptr, false)["assumptions"]["memory"][0];
  EXPECT_EQ(memory["longest_samples_fit"], false);
  EXPECT_GT(memory["out_of_memory_chance"], 0.99);
  const testing::RunResult table = sandbox.run(plan + "csv");
  EXPECT_NE(table.out.find(" !,"), std::string::npos) << table.out;  // marks the plan
  EXPECT_NE(table.err.find("the plan (! in tables) does not fit some further batches"), std::string::npos)
      << table.err;
}

constexpr const char* kPlan = R"({"schema": "dflop.plan", "version": 1, "planner": "hand",
  "model": "llava-ov-llama3-8b", "cluster": "a100-80g-vtrain:1", "gbs": 16, "layout": "uniform",
  "encoder": {"tp": 2, "pp": 2, "dp": 2, "layers": [27, 0]}, "llm": {"tp": 2, "pp": 2, "dp": 2, "layers": [8, 24]},
  "microbatches": 4, "schedule": "1f1b", "recomputation": "full", "zero1": true, "sequence_parallel": true})";

class Roles : public testing::SweepTest {
 protected:
  Roles() {
    testing::write_all(sandbox_.path("p.json"), kPlan);
    EXPECT_EQ(
        sandbox_.run("schedule --plan p.json --data small.csv --iterations 2 --scheduler lpt --out s.json")
            .exit_code,
        0);
  }

  json simulate(const std::string& options, int exit_code = 0) const {
    const testing::RunResult result =
        sandbox_.run("simulate --plan p.json --schedule s.json --format json " + options);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    return json::parse(result.out, nullptr, false);
  }
};

// Messages within a tensor-parallel group are part of compute. With free communication they take no time,
// however fast links are. If every rank's links have half of their bandwidth, a step takes as long as on a
// cluster with such links, except for latencies, which slow links stretch.
TEST_F(Roles, LinksOfTensorParallelGroupsAreLinks) {
  const auto seconds = [&](const std::string& options) {
    return simulate(options)["iteration_s_mean"].get<double>();
  };
  const double usual = seconds("");
  const double free = seconds("--network none");
  EXPECT_NEAR(free, seconds("--network none --intra-node-bandwidth x1000"), 1e-6);
  EXPECT_LT(free, 0.99 * usual);
  std::string every;
  for (int rank = 0; rank < 8; ++rank) every += " --slow-link rank=" + std::to_string(rank) + ":0.5";
  const double halved = seconds("--intra-node-bandwidth x0.5");
  EXPECT_GT(halved, 1.01 * usual);
  EXPECT_NEAR(seconds(every), halved, 0.01 * halved);
}

// The tp groups start at ranks 0, 2, 4 and 6. Each is slowed here by its own rank, one after another.
TEST_F(Roles, WorstAndEachCoverAllGpus) {
  double worst = 0;
  double sum = 0;
  int worst_gpu = -1;
  for (const int rank : {0, 2, 4, 6}) {
    const double mean = simulate("--slow rank=" + std::to_string(rank) + ":1.5")["iteration_s_mean"];
    sum += mean;
    if (mean > worst) worst_gpu = rank;
    worst = std::max(worst, mean);
  }
  const json of_worst = simulate("--slow gpu=worst:1.5");
  EXPECT_EQ(of_worst["iteration_s_mean"], worst);
  EXPECT_EQ(of_worst["roles"]["worst_gpu"], worst_gpu);
  EXPECT_EQ(of_worst["roles"]["gpus"], 4);
  const json of_each = simulate("--slow gpu=each:1.5");
  EXPECT_NEAR(of_each["iteration_s_mean"], sum / 4, 1e-9);
  EXPECT_EQ(of_each["roles"]["worst_s"], worst);
  EXPECT_LT(sum / 4, worst);
  EXPECT_EQ(simulate("--slow gpu=2:1.5")["iteration_s_mean"],
            simulate("--slow rank=2:1.5")["iteration_s_mean"]);
}

TEST_F(Roles, AStageOrAGpuFails) {
  simulate("--fail stage=1:0.01", 3);
  simulate("--fail gpu=worst:0.01", 3);
  const std::string run = "simulate --plan p.json --schedule s.json ";
  testing::expect_error(sandbox_.run(run + "--slow gpu=wurst:2"), {"--slow", "gpu=worst", "'gpu=wurst:2'"});
  testing::expect_error(sandbox_.run(run + "--slow gpu=worst:2 --fail gpu=each:1"), {"--fail", "gpu=each:1"});
  testing::expect_error(sandbox_.run(run + "--slow gpu=8:2"), {"--slow", "a GPU of the plan", "gpu=8"});
}

TEST_F(Roles, RecordingsAndPipelinesHaveNoTurns) {
  testing::write_all(sandbox_.path("pipe.json"), testing::two_stages());
  testing::expect_error(sandbox_.run("simulate --pipeline pipe.json --slow gpu=worst:2"),
                        {"--slow", "rank=R or stage=S", "gpu=worst"});
  // Neither replay's help nor its error mentions the rejected roles.
  ASSERT_EQ(sandbox_.run("simulate --pipeline pipe.json --out t.json").exit_code, 0);
  for (const std::string option : {"--slow", "--slow-link", "--fail"}) {
    const testing::RunResult refused = sandbox_.run("replay --trace t.json " + option + " gpu=worst:0.5");
    testing::expect_error(refused, {option, "rank=R:", "stage=S:", "found 'gpu=worst:0.5'"});
    EXPECT_EQ(refused.err.find("gpu=each"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(sandbox_.run("replay --help-all").out.find("gpu="), std::string::npos);
  EXPECT_NE(sandbox_.run("simulate --help").out.find("gpu=each:F"), std::string::npos);
}

TEST_F(Roles, HelpAndErrorOfReplayNameTheSameOrders) {
  testing::write_all(sandbox_.path("pipe.json"), testing::two_stages());
  ASSERT_EQ(sandbox_.run("simulate --pipeline pipe.json --out t.json").exit_code, 0);
  const std::string help = std::regex_replace(sandbox_.run("replay --help").out, std::regex("\\s+"), " ");
  const std::string err = sandbox_.run("replay --trace t.json --pipeline-schedule none").err;
  EXPECT_NE(err.find("gpipe|1f1b|interleaved|zb-h1|zb-h2|zb-v|eager-1f1b,"), std::string::npos) << err;
  EXPECT_NE(help.find("zb-h1, zb-h2, zb-v or eager-1f1b"), std::string::npos) << help;
}

// One text of 600 has 120,000 tokens, the others 1,000. The plans for the two batches, which do not have it,
// reserve no memory for its activations.
TEST_F(Roles, SweepsMarkPlansThatDoNotHoldFurtherBatches) {
  std::string text =
      "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,n_texts,"
      "prompt_tokens,answer_tokens,text_tokens\n";
  for (int i = 0; i < 600; ++i) {
    const std::string tokens = i == 300 ? "120000" : "1000";
    text += fmt::format("x{},s,,text,m,,,,,,,,1,{},0,{}\n", i, tokens, tokens);
  }
  testing::write_all(sandbox_.path("text.csv"), text);
  const auto cell = [&](const std::string& options) {
    write("spec.json", spec({{"data", {"text.csv"}},
                             {"planner", {"pytorch"}},
                             {"recompute", {"none"}},
                             {"options", {options}}}));
    EXPECT_EQ(sandbox_.run("sweep --spec spec.json --out " + options.substr(13) + ".sqlite").exit_code, 0);
    return rows(options.substr(13) + ".sqlite")[0];
  };
  const json marked = cell("--max-tokens 131072");
  EXPECT_EQ(marked["status"], "ok");
  EXPECT_TRUE(marked["plan"].get<std::string>().ends_with(" !")) << marked;
  EXPECT_NE(marked["reason"].get<std::string>().find("may not fit: a further batch needs"),
            std::string::npos);
  const json plain = cell("--max-tokens 2000");
  EXPECT_EQ(plain["status"], "ok");
  EXPECT_FALSE(plain["plan"].get<std::string>().ends_with(" !")) << plain;
  EXPECT_TRUE(plain["reason"].is_null());
}

// auto minimizes the makespan for megatron's plans and the published objective for dflop's plans, which
// request it.
TEST_F(Roles, SweepsNoteASchedulerWithDifferentObjectives) {
  const auto noted = [&](json text) {
    text["axes"]["planner"] = {"megatron", "dflop"};
    write("spec.json", text);
    std::filesystem::remove(sandbox_.path("all.sqlite"));
    EXPECT_EQ(sandbox_.run("sweep --spec spec.json --out all.sqlite").exit_code, 0);
    const std::string err = sandbox_.run("sweep export --db all.sqlite").err;
    return err.find(
               "auto makes microbatches in plans of megatron for 'makespan' and plans of dflop for 'published'") !=
           std::string::npos;
  };
  EXPECT_TRUE(noted(spec({{"scheduler", {"auto"}}})));
  EXPECT_FALSE(noted(spec({{"scheduler", {"lpt"}}, {"options", {"--objective makespan"}}})));
}

TEST_F(Roles, SweepsHaveSeedsRolesAndRepeats) {
  const json text = spec(
      {{"planner", {"megatron", "dflop"}},
       {"conditions", {"none", "--slow rank=0:1.5", "--slow gpu=worst:1.5", "--jitter 0.2 --repeat 4"}}});
  write("spec.json", text);
  const testing::RunResult run = sandbox_.run("sweep --spec spec.json --out all.sqlite --seeds 3");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("different roles in different plans"), std::string::npos) << run.err;
  const json cells = rows("all.sqlite");
  ASSERT_EQ(cells.size(), 2u * 4 * 3);
  const json groups = rows("all.sqlite", "--over-seeds");
  ASSERT_EQ(groups.size(), 2u * 4);
  for (const json& group : groups) {
    EXPECT_EQ(group["seeds"], 3);
    std::vector<double> values;
    for (const json& cell : cells) {
      if (cell["planner"] == group["planner"] && cell["conditions"] == group["conditions"])
        values.push_back(cell["samples_per_s"]);
    }
    const Spread spread = spread_of(values);
    EXPECT_DOUBLE_EQ(group["samples_per_s_over_seeds"], spread.mean);
    EXPECT_DOUBLE_EQ(group["samples_per_s_95"], spread.half_width);
  }
  // The worst GPU is at least as slow as the first, and both make a run longer.
  const auto mean_of = [&](const std::string& conditions) {
    for (const json& group : groups) {
      if (group["planner"] == "dflop" && group["conditions"] == conditions)
        return group["iteration_s_mean_over_seeds"].get<double>();
    }
    return 0.0;
  };
  EXPECT_LE(mean_of("none"), mean_of("--slow rank=0:1.5"));
  EXPECT_LE(mean_of("--slow rank=0:1.5"), mean_of("--slow gpu=worst:1.5"));
  EXPECT_NE(mean_of("none"), mean_of("--jitter 0.2 --repeat 4"));
}

}  // namespace trust_test
}  // namespace dflop
