#include "experiments/reports/plan_explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace dflop {
namespace {

using Shares = std::array<std::pair<std::string_view, Seconds>, 4>;

Shares named(const RankShares& shares) {
  return {{{"computes", shares.busy},
           {"is out of balance", shares.imbalance},
           {"idles in bubbles", shares.bubble},
           {"waits for communication", shares.communication}}};
}

/// What a plan spends most more on than the best.
std::string loss(const RankedPlan& plan, const RankedPlan& best) {
  const Shares mine = named(plan.shares);
  const Shares its = named(best.shares);
  std::size_t most = 0;
  const auto more = [&](std::size_t i) { return mine[i].second - its[i].second; };
  for (std::size_t i = 1; i < mine.size(); ++i) {
    if (more(i) > more(most)) most = i;
  }
  return fmt::format("{} {:.3f} s more", mine[most].first, more(most).count());
}

/// "7 7 7 6", and "9x3" for 9 9 9.
std::string layers_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t same = i;
    while (same < layers.size() && layers[same] == layers[i]) ++same;
    text += fmt::format("{}{}", text.empty() ? "" : " ", layers[i]);
    if (same - i > 1) text += fmt::format("x{}", same - i);
    i = same;
  }
  return text;
}

}  // namespace

Table plan_ranking(const PlanResult& result) {
  Table table;
  table.columns = {{"rank", "#"},
                   {"plan", "plan"},
                   {"recomputation", "recompute"},
                   {"layers", "layers E | L"},
                   {"scheduler", "scheduler"},
                   {"objective_s", "objective s", 3},
                   {"bound_s", "bound s", 3},
                   {"peak_memory_bytes", "peak GiB", 1, 0x1p-30},
                   {"busy_s", "busy s", 3},
                   {"imbalance_s", "imbalance s", 3},
                   {"bubble_s", "bubble s", 3},
                   {"communication_s", "comm s", 3},
                   {"slower", "slower %", 2, 100},
                   {"why", "why"}};
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const RankedPlan& p = result.best[i];
    const RankedPlan& best = result.best.front();
    Cell bound;
    if (result.bound) bound = p.bound.count();
    table.rows.push_back({static_cast<std::int64_t>(i + 1), describe(p.plan),
                          std::string(to_string(p.plan.recomputation)),
                          layers_text(p.plan.encoder.layers) + " | " + layers_text(p.plan.llm.layers),
                          p.scheduler, p.objective.count(), bound, p.peak_memory.count, p.shares.busy.count(),
                          p.shares.imbalance.count(), p.shares.bubble.count(), p.shares.communication.count(),
                          p.objective / best.objective - 1, i == 0 ? std::string("best") : loss(p, best)});
  }
  return table;
}

std::string ranking_json(const PlanResult& result) {
  nlohmann::ordered_json json;
  json["schema"] = "dflop.plan_ranking";
  json["version"] = 1;
  json["candidates"] = result.candidates;
  json["exhausted"] = result.exhausted;
  json["objective_s"] = result.objective.count();
  json["bound_s"] = nullptr;
  json["gap"] = nullptr;
  if (result.bound) {
    json["bound_s"] = result.bound->count();
    json["gap"] = result.gap();
  }
  json["plans"] = json_of(plan_ranking(result));
  return json.dump(2) + "\n";
}

std::string describe_proof(const PlanResult& result) {
  if (!result.bound) return "no bound is known for this planner and cost model";
  return fmt::format(
      "no plan of the space that fits with LPT has, with any microbatches of these samples, an objective below {:.4f} s: "
      "the best is within {:.2f} % of it{}",
      result.bound->count(), 100 * result.gap(),
      result.exhausted ? "" : "; the search ended before all smaller bounds were looked into");
}

}  // namespace dflop
