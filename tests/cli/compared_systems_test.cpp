// Guarantees of `dflop compare` about its rows, on random models, clusters and options.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "experiments/studies/comparison.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/setting.hpp"
#include "tests/cli/run.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace compared_systems_test {

using nlohmann::json;
using testing::Sandbox;

template <typename T>
const T& one_of(Random& random, const std::vector<T>& from) {
  return from[random.below(from.size())];
}

/// Returns a list with one value, or an empty list, which restricts nothing.
template <typename T, typename List>
std::vector<T> one_or_any(Random& random, const List& from) {
  if (random.below(2) == 0) return {};
  return {from[random.below(from.size())]};
}

/// A model of a few layers on a few GPUs, with ample or scarce memory and random options of either setting.
struct RandomCase {
  Sandbox sandbox;
  std::string model = sandbox.path("model.json");
  std::string cluster = sandbox.path("cluster.json");
  ComparisonInput input;

  explicit RandomCase(std::uint64_t seed) {
    Random random(seed);
    json spec = preset("models/" + one_of<std::string>(random, {"llava-ov-llama3-8b", "qwen2.5-vl-7b"}));
    spec["encoder"]["layers"] = 1 + random.below(8);
    spec["llm"]["layers"] = 1 + random.below(8);
    testing::write_all(model, spec.dump());

    json machine = preset("clusters/" + one_of<std::string>(random, {"a100-80g", "a100-80g-vtrain"}));
    machine["gpus_per_node"] = one_of<int>(random, {1, 2, 4});
    machine["gpu"]["memory_bytes"] = one_of<std::int64_t>(random, {16, 24, 32, 80}) << 30;
    testing::write_all(cluster, machine.dump());
    cluster += ":" + std::to_string(1 + random.below(2));
    if (seed % 4 == 0) mix(machine, seed);

    input.gbs = one_of<int>(random, {8, 12, 16, 24});
    input.seed = seed;
    input.options = one_of(random, std::vector<Setting>(settings().begin(), settings().end())).options;
    input.options.zero1 = random.below(2) == 0;
    input.options.sequence_parallel = random.below(2) == 0;
    input.search.budget = one_of<std::int64_t>(random, {1, 30'000});
    input.search.orders = one_or_any<OrderKind>(
        random, std::vector{OrderKind::one_f_one_b, OrderKind::gpipe, OrderKind::zb_h1});
    if (!input.search.orders.empty()) input.options.order = input.search.orders.front();
    input.search.recomputations = one_or_any<Recomputation>(random, all_of<Recomputation>());
    if (!input.search.recomputations.empty())
      input.options.recomputation = input.search.recomputations.front();
    input.search.placements = one_or_any<RankOrder>(random, all_of<RankOrder>());
    if (!input.search.placements.empty()) input.options.placement = input.search.placements.front();
  }

  /// Adds a node of another GPU type with the same memory to the cluster's node.
  void mix(json machine, std::uint64_t seed) {
    json other = preset("clusters/h100");
    other["gpu"]["memory_bytes"] = machine["gpu"]["memory_bytes"];
    json rows = {{{"count", 1}, {"gpu", machine["gpu"]}},
                 {{"count", 1}, {"gpu", other["gpu"]}, {"software", other["software"]}}};
    if (seed % 8 == 0) std::swap(rows[0], rows[1]);
    machine.erase("gpu");
    machine["nodes"] = rows;
    cluster = sandbox.path("mixed.json");
    testing::write_all(cluster, machine.dump());
  }

  static json preset(const std::string& name) {
    return json::parse(testing::read_all(DFLOP_SOURCE_DIR "/experiments/presets/" + name + ".json"));
  }
};

TEST(ComparedSystems, OtherPublishedSystemsAreComparedOnlyByName) {
  const std::vector<std::string_view> others = {"megatron-mimo", "disttrain", "maestro-order"};
  std::size_t usual = 0;
  for (const System& system : systems_to_compare({}, {"lpt"})) {
    EXPECT_EQ(std::ranges::count(others, system.name), 0) << system.name;
    ++usual;
  }
  EXPECT_EQ(usual + others.size(), system_kinds().size());
  std::vector<std::string> schedulers;
  for (const System& system : systems_to_compare(others, {"lpt"})) {
    schedulers.push_back(system.scheduler.name);
    // Schedulers that see costs stay within memory, if only by their order of microbatches.
    EXPECT_EQ(system.scheduler.respect_memory.value_or(false), system.scheduler.name != "random");
  }
  EXPECT_EQ(schedulers, (std::vector<std::string>{"random", "disttrain", "maestro"}));
}

TEST(ComparedSystems, TheSearchIsNeverWorseNothingIsOverMemoryAndRowsCanBeRunAgain) {
  std::set<std::string> names;
  int infeasible = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    const Target target(c.model, c.cluster);
    PreprocessOptions options;
    options.rule = target.model.preprocess;
    options.max_tokens = 4096;
    options.seed = seed;
    c.input.samples = load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options, false);
    c.input.samples.resize(200);
    c.input.batches = make_batches(c.input.samples, c.input.gbs, 2, seed);
    std::vector<System> systems = systems_to_compare({}, {"lpt"}, c.input.search);
    run_systems(systems, target, c.input);

    const System& search = systems.back();
    ASSERT_EQ(search.name, "search");
    for (const System& system : systems) {
      SCOPED_TRACE(system.name);
      if (!system.evaluation) {
        EXPECT_FALSE(system.planned.infeasible_reason.empty());
        ++infeasible;
        continue;
      }
      names.insert(system.name);
      ASSERT_TRUE(search.evaluation) << search.planned.infeasible_reason;
      EXPECT_LE(search.evaluation->mean, system.evaluation->mean);
      EXPECT_LE(system.evaluation->peak_memory, target.cluster.gpu.usable_memory());
      // Lower the row's plan and schedule to instructions, verify them and run them once more.
      const Evaluation again = evaluate(*system.planned.plan, target, system.schedule, 0, target.executor);
      EXPECT_EQ(again.mean, system.evaluation->mean);
      EXPECT_EQ(again.peak_memory, system.evaluation->peak_memory);
      // Planners that simulate report this mean. The others have their own objectives.
      const bool as_planned = system.scheduler.name == "random" && !system.is_search();
      if (system.planned.plan->layout == Layout::uniform && as_planned) {
        EXPECT_DOUBLE_EQ(system.planned.objective.count(), system.evaluation->mean.count());
      }
    }
  }
  const auto usual = std::ranges::count(system_kinds(), false, &SystemKind::by_name_only);
  EXPECT_EQ(names.size(), static_cast<std::size_t>(usual)) << "each system fits somewhere";
  EXPECT_GT(infeasible, 0) << "memory is short somewhere";
}

}  // namespace compared_systems_test
}  // namespace dflop
