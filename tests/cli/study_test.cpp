// dflop study repeats the published evaluation, with verdicts that follow from the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "experiments/checks/paper/habits.hpp"
#include "experiments/checks/paper/hand_set.hpp"
#include "experiments/checks/paper/studies.hpp"
#include "experiments/studies/data.hpp"
#include "tests/cli/run.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace study_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

const StudyKind& study(std::string_view name) {
  return *std::ranges::find(study_kinds(), name, &StudyKind::name);
}

FigureRow system_row(const std::string& name, double samples_per_s) {
  return {name, "plan", {{"samples_per_s", samples_per_s}}};
}

/// A cell in which dflop's throughput equals the gain and dflop-paper's is lower. Hand-set baselines have 1
/// and 0.5 samples a second, and both have 2 at their best.
CellResult cell_of(const StudyCell& cell, double gain) {
  return {cell,
          {{"data", "", {{"flop_ratio", 1}}},
           system_row("pytorch-hand", 1),
           system_row("megatron-hand", 0.5),
           system_row("pytorch", 2),
           system_row("megatron", 2),
           system_row("dflop", gain),
           system_row("dflop-paper", gain / 2)}};
}

std::vector<Claim> claims_of(std::string_view name, const std::vector<double>& gains) {
  const std::vector<StudyCell> cells = study(name).cells();
  std::vector<CellResult> results;
  for (std::size_t c = 0; c < cells.size(); ++c)
    results.push_back(cell_of(cells[c], gains[c % gains.size()]));
  return study(name).claims(results);
}

TEST(Study, RankCorrelationCountsPairs) {
  using Points = std::vector<std::pair<double, double>>;
  EXPECT_EQ(rank_correlation(Points{{1, 10}, {2, 20}, {3, 21}}), 1);
  EXPECT_EQ(rank_correlation(Points{{1, 3}, {2, 2}, {3, 1}}), -1);
  // Two of three pairs rise and one falls: (2 - 1) / 3.
  EXPECT_DOUBLE_EQ(rank_correlation(Points{{1, 1}, {2, 3}, {3, 2}}), 1.0 / 3);
  EXPECT_EQ(rank_correlation(Points{{1, 1}}), 0);
}

TEST(Study, GainComparesTheBetterReadingWithTheBetterBaseline) {
  constexpr std::array<std::string_view, 2> kByHand = {"pytorch-hand", "megatron-hand"};
  const CellResult cell = cell_of({}, 1.5);
  const auto gain = gain_of(cell, kByHand);
  ASSERT_TRUE(gain);
  EXPECT_DOUBLE_EQ(gain->factor, 1.5);  // relative to pytorch-hand's 1; megatron-hand has 0.5
  EXPECT_EQ(gain->method->name, "dflop");
  EXPECT_EQ(gain->baseline->name, "pytorch-hand");
  CellResult none = cell;
  std::erase_if(none.rows, [](const FigureRow& row) { return row.name.starts_with("dflop"); });
  EXPECT_FALSE(gain_of(none, kByHand));
}

// The published gains are 1.2 to 3.6 in all cells. Against baselines at their best, gains are half of those
// against hand-set baselines.
TEST(Study, VerdictsFollowFromFigures) {
  const auto verdicts = [](std::string_view name, const std::vector<double>& gains) {
    std::vector<Verdict> found;
    for (const Claim& claim : claims_of(name, gains)) found.push_back(claim.verdict);
    return found;
  };
  using enum Verdict;
  using Verdicts = std::vector<Verdict>;
  EXPECT_EQ(verdicts("end-to-end", {1.3, 2.3}), (Verdicts{reproduced, reproduced, not_reproduced}));
  EXPECT_EQ(verdicts("end-to-end", {1.3, 2.5}), (Verdicts{reproduced, reproduced, partly}));
  EXPECT_EQ(verdicts("end-to-end", {0.59, 1.3}), (Verdicts{partly, partly, not_reproduced}));
  EXPECT_EQ(verdicts("end-to-end", {0.59}), (Verdicts{not_reproduced, not_reproduced, not_reproduced}));
  EXPECT_EQ(verdicts("audio", {4.0}), (Verdicts{reproduced, reproduced, reproduced}));
  EXPECT_EQ(verdicts("audio", {0.9}), (Verdicts{not_reproduced, partly, not_reproduced}));
  // For each baseline, 1 to 8 nodes, then 8 to 128: growth throughout, or none.
  EXPECT_EQ(verdicts("nodes", {1, 2, 3, 4, 5, 6, 7, 8}), Verdicts(6, reproduced));
  EXPECT_EQ(verdicts("nodes", {1}), Verdicts(6, not_reproduced));
}

TEST(Study, AllHaveCellsOfTheirOwnNames) {
  for (const StudyKind& kind : study_kinds()) {
    SCOPED_TRACE(kind.name);
    const std::vector<StudyCell> cells = kind.cells();
    EXPECT_FALSE(cells.empty());
    for (std::size_t a = 0; a < cells.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) EXPECT_NE(cells[a].label, cells[b].label);
    }
    EXPECT_FALSE(kind.claims(std::vector<CellResult>(cells.size(), cell_of(cells[0], 1))).empty());
  }
}

/// An 8B model on one node of eight GPUs, and a global batch of 16 samples.
struct OneNode {
  Target target{"llava-ov-llama3-8b", "a100-80g:1"};
  ComparisonInput input;

  explicit OneNode(const std::string& setting) {
    PreprocessOptions options;
    options.rule = target.model.preprocess;
    options.max_tokens = target.model.max_tokens;
    input.samples =
        load_samples(std::string(DFLOP_SOURCE_DIR) + "/traces/datasets/paper_mix.csv", options, false);
    input.gbs = 16;
    input.batches = make_batches(input.samples, input.gbs, 1, 1);
    input.options = find_setting(setting).options;
  }
};

// One node of eight GPUs: an 8B model with bf16 states does not fit one GPU (80 GB), so the rules continue to
// two.
TEST(Study, BaselinesSetByHandAreTheSmallestThatFit) {
  const OneNode node("published");
  for (const std::string_view name : hand_set_names()) {
    SCOPED_TRACE(name);
    const System system = run_hand_set(name, node.target, node.input);
    ASSERT_TRUE(system.evaluation) << system.planned.infeasible_reason;
    const Plan& plan = *system.planned.plan;
    EXPECT_EQ(plan.layout, Layout::uniform);
    EXPECT_EQ(plan.microbatches * plan.llm.dp, node.input.gbs);  // one sample per microbatch
    EXPECT_EQ(plan.ranks(), 8);
    if (name != "megatron-hand") continue;
    EXPECT_EQ(plan.llm.pp, 4);
    EXPECT_EQ(plan.encoder.layers, (std::vector<int>{27, 0, 0, 0}));
    EXPECT_EQ(plan.llm.layers.front(), 0);
  }
}

// A habit only takes choices away, or work that counts as padding is added, so none makes the baseline
// faster.
TEST(Study, HabitsOfABaselineCostThroughput) {
  const OneNode node("tuned");
  const System tuned = run_habit(habits().front(), node.target, node.input);
  ASSERT_TRUE(tuned.evaluation) << tuned.planned.infeasible_reason;
  EXPECT_TRUE(tuned.planned.plan->zero1);
  for (const Habit& habit : habits()) {
    SCOPED_TRACE(habit.name);
    const System system = run_habit(habit, node.target, node.input);
    ASSERT_TRUE(system.evaluation) << system.planned.infeasible_reason;
    const Plan& plan = *system.planned.plan;
    EXPECT_GE(system.evaluation->mean, tuned.evaluation->mean);
    EXPECT_EQ(plan.zero1, !habit.keeps_states);
    if (habit.recomputes) {
      EXPECT_EQ(plan.recomputation, Recomputation::full);
    }
    if (habit.encoder_alone) {
      EXPECT_EQ(plan.llm.layers.front(), 0);
    }
    if (habit.pads) {
      EXPECT_EQ(plan.microbatches * plan.llm.dp * 4, 16);
    }
  }
}

// Groups of two of five samples, in some order: each group has two equal lengths, and the last has one
// sample. No sample is lost, and none becomes shorter than it was.
TEST(Study, PaddedSamplesAreAsLongAsTheLongestOfTheirGroup) {
  Batch batch(5);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].id = std::to_string(i);
    batch[i].llm_tokens = static_cast<std::int64_t>(10 + i);
  }
  const Batch all = padded({batch}, 2, 7).front();
  ASSERT_EQ(all.size(), 5U);
  const auto own = [](const Sample& sample) { return 10 + std::stoll(sample.id); };
  EXPECT_EQ(all[0].llm_tokens, std::max(own(all[0]), own(all[1])));
  EXPECT_EQ(all[1].llm_tokens, all[0].llm_tokens);
  EXPECT_EQ(all[2].llm_tokens, std::max(own(all[2]), own(all[3])));
  EXPECT_EQ(all[3].llm_tokens, all[2].llm_tokens);
  EXPECT_EQ(all[4].llm_tokens, own(all[4]));
  std::set<std::string> ids;
  for (const Sample& sample : all) ids.insert(sample.id);
  EXPECT_EQ(ids.size(), 5U);
}

// The second run takes all figures from the folder, including measured ones, so it writes the same bytes.
TEST(Study, ResumesAfterItsLastCell) {
  const Sandbox sandbox;
  const RunResult first = sandbox.run("study --study idle --out s --format json");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const json result = json::parse(first.out);
  EXPECT_EQ(result["schema"], "dflop.study");
  EXPECT_EQ(result["claims"].size(), 8u);  // four with each setting
  EXPECT_EQ(first.err.find("kept"), std::string::npos);
  for (const char* file : {"report.html", "figures.csv", "claims.csv", "study.json"})
    EXPECT_TRUE(sandbox.has(std::string("s/") + file)) << file;
  const std::string page = testing::read_all(sandbox.path("s/report.html"));
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("href"), std::string::npos);  // it refers to no outside resource

  // One of the two cells is lost, and the other no longer holds a cell.
  std::vector<std::filesystem::path> cells;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox.path("s/cells")))
    cells.push_back(entry.path());
  ASSERT_EQ(cells.size(), 2u);
  const RunResult second = sandbox.run("study --study idle --out s --format json");
  EXPECT_EQ(second.out, first.out);
  EXPECT_NE(second.err.find("kept"), std::string::npos) << second.err;
  testing::write_all(cells[0], "{}");
  const RunResult third = sandbox.run("study --study idle --out s --format csv");
  EXPECT_EQ(third.exit_code, 0) << third.err;
  EXPECT_EQ(std::ranges::count(third.err, '\n'), 3) << third.err;  // one per cell, one for the files
  EXPECT_NE(third.err.find(": kept\n"), std::string::npos) << third.err;
  EXPECT_NE(third.err.find(" s\n"), std::string::npos) << third.err;
}

TEST(Study, UnsupportedStudiesAreRejected) {
  const Sandbox sandbox;
  expect_error(sandbox.run("study --study best --out s"), {"--study", "end-to-end", "best"});
  const RunResult result = sandbox.run("study --study idle --out s --data-folder nowhere");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("nowhere/paper_mix.csv"), std::string::npos) << result.err;
}

}  // namespace study_test
}  // namespace dflop
