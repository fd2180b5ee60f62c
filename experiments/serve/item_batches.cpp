#include "experiments/serve/item_batches.hpp"

#include <utility>

#include "core/refuse.hpp"
#include "solver/schedulers/methods.hpp"
#include "traces/files/items.hpp"

namespace dflop {
namespace {

constexpr int kMaxItemBins = 65'536;
constexpr std::size_t kMaxItems = std::size_t{1} << 16;
constexpr std::string_view kCost = "a cost, in the same unit for all items, such as seconds,";
constexpr std::int64_t kMaxCap = std::int64_t{1} << 50;

std::vector<double> read_costs(const JsonValue& json, std::string_view key, double most,
                               std::string_view what) {
  const JsonValue list = json.at(key);
  std::vector<double> costs = list.numbers();
  if (costs.size() > kMaxItems) list.refuse("expected at most {} items, found {}", kMaxItems, costs.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] >= 0 && costs[i] <= most) continue;
    list.refuse("item {}: expected {} from 0 to {:g}, found {:g}", i, what, most, costs[i]);
  }
  return costs;
}

class ItemScheduler final : public Scheduler {
 public:
  ItemScheduler(std::string method, const ItemBins& bins, std::shared_ptr<const ItemBatches> batches)
      : method_(std::move(method)), bins_(bins), batches_(std::move(batches)) {
    find_method(method_);
  }

  std::string_view name() const override { return method_; }

  ScheduleResult schedule(const ScheduleRequest& request) const override {
    const std::shared_ptr<const ItemCosts> costs = batches_->of(request.iteration);
    SolveLimits limits;
    limits.seed = request.seed;
    limits.stream = costs->stream.value_or(request.iteration);
    limits.steps = request.limits.steps.value_or(request.limits.node_budget.value_or(0));
    limits.time = request.limits.time_limit;
    limits.stop = request.stop;
    if (request.improved) {
      limits.improved = [&](std::span<const std::int32_t> bin, double value) {
        ScheduleResult better;
        better.value = Seconds(value);
        better.objective = bins_.objective;
        better.assignment = {bins_.bins / bins_.dp, bins_.dp, {bin.begin(), bin.end()}};
        request.improved(better);
      };
    }
    return schedule_items(*costs, bins_, method_, limits);
  }

 private:
  std::string method_;
  ItemBins bins_;
  std::shared_ptr<const ItemBatches> batches_;
};

}  // namespace

ItemCosts read_item_costs(const JsonValue& json) {
  ItemCosts costs;
  costs.llm = read_costs(json, "llm", kLongestItem, kCost);
  if (costs.llm.empty()) json.at("llm").refuse("expected at least one item, found none");
  const auto require_as_many = [&](std::string_view key, const std::vector<double>& list) {
    if (list.size() == costs.llm.size()) return;
    json.at(key).refuse("expected {} items, as in 'llm', found {}", costs.llm.size(), list.size());
  };
  costs.encoder.assign(costs.llm.size(), 0.0);
  if (json.has("encoder")) costs.encoder = read_costs(json, "encoder", kLongestItem, kCost);
  require_as_many("encoder", costs.encoder);
  if (json.has("stream")) costs.stream = json.at("stream").unsigned_integer();
  if (!json.has("tokens")) return costs;
  costs.tokens = read_costs(json, "tokens", kMaxItemTokens, "tokens");
  require_as_many("tokens", costs.tokens);
  return costs;
}

ItemBins read_item_bins(const JsonValue& json) {
  ItemBins bins;
  bins.bins = json.at("bins").integer(1, kMaxItemBins);
  if (json.has("dp")) bins.dp = json.at("dp").integer(1, bins.bins);
  if (bins.bins % bins.dp != 0) json.at("bins").refuse_type("a multiple of dp = {}", bins.dp);
  if (json.has("encoder_dp")) bins.encoder_dp = json.at("encoder_dp").integer(0, kMaxItemBins);
  if (json.has("objective"))
    bins.objective = json.at("objective").choice({Objective::bins, Objective::published});
  if (json.has("token_cap")) bins.token_cap = json.at("token_cap").integer<std::int64_t>(1, kMaxCap);
  if (json.has("allow_empty")) bins.allow_empty = json.at("allow_empty").boolean();
  return bins;
}

ScheduleResult schedule_items(const ItemCosts& costs, const ItemBins& bins, std::string_view method,
                              const SolveLimits& limits) {
  // An encoder rank gets the items of several bins. This is the part of one bin in its load: e x dp / encoder
  // dp.
  const double share = bins.encoder_dp > 0 ? static_cast<double>(bins.dp) / bins.encoder_dp : 1.0;
  std::vector<double> encoder = costs.encoder;
  for (double& cost : encoder) cost *= share;
  AssignmentProblem problem;
  problem.bins = {.encoder_s = encoder, .llm_s = costs.llm, .bins = bins.bins, .dp = bins.dp};
  problem.bins.shared_encoder = bins.encoder_dp > 0 && bins.objective != Objective::published;
  problem.bins.allow_empty = bins.allow_empty;
  if (bins.token_cap) {
    if (costs.tokens.empty())
      refuse_input("", "expected 'tokens' for each item, which 'token_cap' needs, found none");
    problem.bins.caps.push_back({"LLM tokens", costs.tokens, static_cast<double>(*bins.token_cap)});
  }
  const AssignmentSolution found = find_method(method).solve(problem, limits);
  ScheduleResult result;
  static_cast<Solution&>(result) = found;
  result.objective = bins.objective;
  if (found.feasible()) result.assignment = {bins.bins / bins.dp, bins.dp, found.bin};
  return result;
}

void ItemBatches::add(std::uint64_t iteration, std::shared_ptr<const ItemCosts> costs) {
  const std::lock_guard lock(mutex_);
  costs_[iteration] = std::move(costs);
}

std::shared_ptr<const ItemCosts> ItemBatches::of(std::uint64_t iteration) const {
  const std::lock_guard lock(mutex_);
  return costs_.at(iteration);
}

void ItemBatches::forget_before(std::uint64_t iteration) {
  const std::lock_guard lock(mutex_);
  costs_.erase(costs_.begin(), costs_.lower_bound(iteration));
}

std::shared_ptr<const Scheduler> item_scheduler(std::string method, const ItemBins& bins,
                                                std::shared_ptr<const ItemBatches> batches) {
  return std::make_shared<ItemScheduler>(std::move(method), bins, std::move(batches));
}

}  // namespace dflop
