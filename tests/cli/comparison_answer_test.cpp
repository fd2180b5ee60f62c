// The narrow table of a comparison and the sentences below it, for results of any kind.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "experiments/cli/option_values.hpp"
#include "experiments/reports/comparison.hpp"
#include "experiments/reports/comparison_page.hpp"
#include "experiments/studies/data.hpp"
#include "tests/cli/run.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace comparison_answer_test {

/// Returns a row with iterations of `seconds`. With 0, the plan is infeasible and there are none.
System row(const std::string& name, const std::string& planner, double seconds,
           std::optional<bool> fits_further = true) {
  System system{.name = name, .planner = planner, .scheduler = {"random"}};
  if (seconds == 0) {
    system.planned.infeasible_reason = "needs 99 GiB";
    return system;
  }
  Plan plan;
  plan.layout = Layout::uniform;
  plan.llm = {.tp = 2, .pp = 1, .dp = 4, .layers = {}};
  plan.microbatches = 8;
  system.planned.plan = plan;
  system.evaluation = Evaluation{};
  system.evaluation->mean = Seconds(seconds);
  system.evaluation->samples_per_s = 100 / seconds;
  system.evaluation->idle_fraction = 0.125;
  system.evaluation->peak_memory = Bytes{std::int64_t{40} << 30};
  system.fits_further = fits_further;
  return system;
}

/// Spends 1 s on each use of time, and the rest of the iteration on bubbles.
TimeBreakdown mostly_bubbles(const System& system) {
  TimeBreakdown time;
  for (const TimeUse use : all_of<TimeUse>()) time[use] = Seconds(1);
  time[TimeUse::bubbles] += system.evaluation->mean - time.sum();
  return time;
}

std::vector<std::string> answer(const std::vector<System>& systems) {
  return comparison_answer(systems, mostly_bubbles);
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "missing: " << part << "\nin: " << text;
}

void expect_not_in(const std::string& part, const std::string& text) {
  EXPECT_EQ(text.find(part), std::string::npos) << part << "\nin: " << text;
}

// 25 / 20 = 1.25 and 30 / 20 = 1.5 times as fast; 25 - 20 = 5 s, all of them bubbles. The published method
// takes 24 / 30 of megatron-default's time, 1.25 times as fast, 24 / 26 of pytorch's and 24 / 25 of
// megatron's.
TEST(CompareAnswer, SaysWhichPlanIsFastestAndWhy) {
  const std::vector<System> systems = {row("pytorch", "pytorch", 26), row("megatron", "megatron", 25),
                                       row("megatron-default", "megatron-default", 30),
                                       row("dflop", "dflop", 24), row("search", "search", 20)};
  const std::vector<std::string> said = answer(systems);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(
      said[0],
      "The fastest plan is tp2 pp1 dp4 mb8 (search): 20.000 s an iteration. It is 1.25 times as fast as the "
      "best uniform baseline (megatron) and 1.50 times as fast as the default set by hand "
      "(megatron-default). Compared with megatron, the mean GPU saves 5.00 s an iteration, mostly 5.00 s of "
      "pipeline bubbles.");
  EXPECT_EQ(said[1],
            "The published method (dflop) is 1.25 times as fast as the baseline set by hand as in papers "
            "(megatron-default), 1.08 times as fast as the tuned pytorch and 1.04 times as fast as the tuned "
            "megatron.");
}

TEST(CompareAnswer, SaysWhereThePublishedMethodIsSlowerOrEqual) {
  const std::vector<System> systems = {row("pytorch", "pytorch", 24.01), row("megatron", "megatron", 16),
                                       row("dflop", "dflop", 24)};
  EXPECT_EQ(
      answer(systems)[1],
      "The published method (dflop) is as fast as the tuned pytorch and takes 1.50 times as long as the tuned "
      "megatron.");
}

TEST(CompareAnswer, NamesThePartsThatTakeThePlanLonger) {
  const std::vector<System> systems = {row("megatron", "megatron", 25), row("search", "search", 20)};
  const std::vector<std::string> said = comparison_answer(systems, [](const System& system) {
    TimeBreakdown time;
    const bool is_search = system.name == "search";
    time[TimeUse::imbalance] = Seconds(is_search ? 1 : 6);
    time[TimeUse::recomputation] = Seconds(is_search ? 2 : 0);
    time[TimeUse::exposed_communication] = Seconds(is_search ? 1 : 3);
    time[TimeUse::compute] = Seconds(16);
    return time;
  });
  // 5 s and 2 s less, 2 s more; each is at least a fifth of 25 - 20 = 5 s.
  expect_in(
      "saves 5.00 s an iteration, mostly 5.00 s of idle time from imbalance and 2.00 s of waiting for messages "
      "and gradient reductions, though it adds 2.00 s of recomputation.",
      said[0]);
  EXPECT_EQ(said.size(), 1u) << "there is no published method";
}

TEST(CompareAnswer, ATunedBaselineMayBeTheFastest) {
  const std::vector<System> systems = {row("pytorch", "pytorch", 20), row("megatron", "megatron", 25),
                                       row("megatron-default", "megatron-default", 0),
                                       row("search", "search", 20)};
  EXPECT_EQ(uniform_baseline(systems), &systems[0]);
  const std::string said = answer(systems)[0];
  EXPECT_EQ(
      said,
      "The fastest plan is tp2 pp1 dp4 mb8 (pytorch): 20.000 s an iteration. search takes as long. It is a tuned "
      "uniform baseline: no other row is faster. The default set by hand (megatron-default) does not fit.");
}

TEST(CompareAnswer, WithoutTunedBaselinesTheHandSetOneIsTheReference) {
  const std::vector<System> systems = {row("megatron-default", "megatron-default", 30),
                                       row("search", "search", 20)};
  const std::string said = answer(systems)[0];
  expect_in(
      "It is 1.50 times as fast as the default set by hand (megatron-default). Compared with "
      "megatron-default, the mean GPU saves 10.0 s",
      said);
  expect_not_in("uniform", said);
  expect_in("speedup: over megatron-default, which is set by hand", decision_legend(systems));
}

TEST(CompareAnswer, ASingleRowHasNothingToCompareWith) {
  const std::vector<std::string> search = answer({row("search", "search", 20)});
  EXPECT_EQ(search,
            std::vector<std::string>{"The fastest plan is tp2 pp1 dp4 mb8 (search): 20.000 s an iteration."});
  EXPECT_EQ(answer({row("dflop", "dflop", 20)}).size(), 1u);
  EXPECT_EQ(answer({row("search", "search", 0)}),
            std::vector<std::string>{"No system has a plan that fits."});
  EXPECT_EQ(answer({row("megatron", "megatron", 20), row("dflop", "dflop", 0)})[1],
            "The published method (dflop) has no plan that fits.");
}

// A plan that does not fit further batches comes after those that do, however fast it is.
TEST(CompareAnswer, PlansThatFitAllBatchesComeFirst) {
  const std::vector<System> systems = {row("pytorch", "pytorch", 20, false), row("megatron", "megatron", 25),
                                       row("search", "search", 22)};
  EXPECT_EQ(best_first(systems), (std::vector<const System*>{&systems[2], &systems[1], &systems[0]}));
  EXPECT_EQ(uniform_baseline(systems), &systems[1]);
  expect_in("pytorch takes 20.000 s, but its plan does not fit all further batches of the data.",
            answer(systems)[0]);
  expect_in("a run with this one may end out of memory", answer({row("search", "search", 20, false)})[0]);
  expect_in("fits partly:", decision_legend(systems));
  expect_not_in("partly", decision_legend({systems[1]}));
}

TEST(CompareAnswer, TheTableFitsAHundredColumnsAndGroupsRows) {
  std::vector<System> systems = {row("megatron", "megatron", 25), row("dflop", "dflop", 1234.5),
                                 row(std::string(60, 'n'), "none", 24, std::nullopt),
                                 row("search", "search", 20, false),
                                 row("megatron-default", "megatron-default", 0)};
  Plan& longest = *systems[1].planned.plan;
  longest.layout = Layout::disaggregated;
  longest.encoder = {.tp = 16, .pp = 12, .dp = 128, .layers = {}};
  longest.llm = {.tp = 16, .pp = 128, .dp = 128, .layers = {}};
  longest.microbatches = 1024;
  longest.placement = RankOrder::replica_major;
  const std::string text = decision_text(systems, 0);
  for (const std::string_view line : split(text, '\n')) EXPECT_LE(line.size(), kNarrowColumns) << line;
  // Kinds are ordered by their best rows: a user's plan, baselines, the published method. The search comes
  // last, as its plan fits only some batches.
  std::size_t last = 0;
  for (const char* heading : {"your plans:\n  nnn", "baselines:\n  megatron ", "\n  megatron-default ",
                              "published method and variants:\n  dflop ", "found by search:\n  search "}) {
    const std::size_t place = text.find(heading);
    ASSERT_NE(place, std::string::npos) << heading << text;
    EXPECT_GE(place, last) << heading << text;
    last = place;
  }
  for (const char* part : {"128", "replica-major", "unknown", "partly", "infeasible", "mb1024"})
    expect_in(part, text);
  // On a terminal of 60 columns, each row becomes a block.
  expect_in("system   search\nkind     search\n", decision_text(systems, 60));
}

TEST(CompareAnswer, ThePageHasTablesTheAnswerAndNothingFromOutside) {
  std::vector<System> systems = {row("megatron", "megatron", 25), row("dflop", "dflop", 0),
                                 row("search", "search", 20), row("slow", "none", 40)};
  for (System& system : systems) {
    if (!system.evaluation) continue;
    Timeline timeline;
    timeline.makespan = std::chrono::duration_cast<Nanoseconds>(system.evaluation->mean);
    timeline.groups = {GroupUsage{}};
    system.evaluation->timelines = {timeline};
  }
  const std::string page = comparison_page(
      systems,
      {.title = "m on c", .answer = answer(systems), .all_columns = {{{"system", "system"}}, {{"<own>"}}}});
  expect_in("<p>The fastest plan is tp2 pp1 dp4 mb8 (search)", page);
  expect_in("<tr class='best'><td data-title='system' data-value='search'>", page);
  expect_in("dflop is infeasible: needs 99 GiB", page);
  expect_in("&lt;own&gt;", page);
  // The best plan and the best uniform baseline come first, then all rows.
  const std::size_t pair = page.find("<h3>search: ");
  const std::size_t baseline = page.find("<h3>megatron: ");
  const std::size_t all = page.find("First iterations of all rows");
  const std::size_t slow = page.find("<h3>slow: ");
  EXPECT_LT(pair, baseline);
  EXPECT_LT(baseline, all);
  EXPECT_LT(all, slow);
  ASSERT_NE(slow, std::string::npos);
  for (const char* outside : {" src=", "href=", "url(", "@import", "https:"}) expect_not_in(outside, page);
}

// The parts add up to the iteration, and each part is present only if the plan has a reason for it.
TEST(CompareAnswer, TheBreakdownAddsUpToTheIteration) {
  const Target target("llava-ov-llama3-8b", "a100-80g:1");
  PreprocessOptions options;
  options.rule = target.model.preprocess;
  ComparisonInput input;
  input.samples = load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options, false);
  input.samples.resize(400);
  input.gbs = 32;
  input.seed = 3;
  input.batches = make_batches(input.samples, input.gbs, 2, input.seed);
  std::vector<System> systems = systems_to_compare({"pytorch", "megatron-default", "dflop"}, {"lpt"});
  run_systems(systems, target, input);
  input.search.layouts = {Layout::shared};
  input.search.budget = 1;
  std::vector<System> shared = systems_to_compare({"search"}, {"lpt"}, input.search);
  run_systems(shared, target, input);
  systems.push_back(shared.front());
  // On half of the GPUs of two nodes, the iteration takes as long, and the mean GPU is unused half of the
  // time.
  const Target two_nodes("llava-ov-llama3-8b", "a100-80g:2");
  const System& half = systems.front();
  const TimeBreakdown unused = time_breakdown(two_nodes, *half.planned.plan, half.schedule);
  EXPECT_NEAR(unused[TimeUse::unused_gpus] / half.evaluation->mean, 0.5, 1e-6);
  EXPECT_NEAR(unused.sum().count(), half.evaluation->mean.count(), 1e-6);
  for (const System& system : systems) {
    SCOPED_TRACE(system.name);
    ASSERT_TRUE(system.evaluation) << system.planned.infeasible_reason;
    const Plan& plan = *system.planned.plan;
    const TimeBreakdown time = time_breakdown(target, plan, system.schedule);
    const Seconds mean = system.evaluation->mean;
    EXPECT_NEAR(time.sum().count(), mean.count(), 1e-6);
    for (const Seconds part : time.parts) EXPECT_GE(part.count(), -1e-9);
    EXPECT_EQ(time[TimeUse::recomputation] > Seconds(1e-9), plan.recomputation != Recomputation::none);
    EXPECT_EQ(time[TimeUse::tensor_communication] > Seconds(1e-9), plan.encoder.tp > 1 || plan.llm.tp > 1);
    const Seconds idle =
        time[TimeUse::imbalance] + time[TimeUse::bubbles] + time[TimeUse::exposed_communication];
    const double used = 1 - time[TimeUse::unused_gpus] / mean;
    EXPECT_NEAR(idle / mean, system.evaluation->idle_fraction * used, 1e-6);
  }
}

TEST(CompareAnswer, TextIsNarrowAndWideOnRequest) {
  const testing::Sandbox sandbox;
  const std::string command =
      "compare --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 --gbs 16 "
      "--iterations 1 --seeds 1 --systems megatron,dflop --train-samples 1000 --gpu-hour-cost 2 ";
  const testing::RunResult narrow = sandbox.run(command);
  ASSERT_EQ(narrow.exit_code, 0) << narrow.err;
  const std::string table = narrow.out.substr(0, narrow.out.find("\nassumed and chosen:"));
  for (const std::string_view line : split(table, '\n')) EXPECT_LE(line.size(), kNarrowColumns) << line;
  expect_in("\nThe fastest plan is ", table);
  expect_in("\nThe published method (dflop) ", table);
  expect_in("\ntraining:\n", table);
  expect_in("GPU-hours", table);
  expect_not_in("free to choose", narrow.out);
  const testing::RunResult wide = sandbox.run(command + "--wide");
  ASSERT_EQ(wide.exit_code, 0) << wide.err;
  for (const char* part : {"recompute", "gap %", "p95 s", "tokens/s", "MFU %", "x pytorch", "GPU-hours",
                           "\nfree to choose:\n", "\nThe fastest plan is "})
    expect_in(part, wide.out);
  EXPECT_EQ(sandbox.run(command + "--format json").out, sandbox.run(command + "--format json --wide").out);
}

}  // namespace comparison_answer_test
}  // namespace dflop
