#include "experiments/studies/anomaly.hpp"

#include <algorithm>
#include <map>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "costmodel/sample_costs.hpp"

namespace dflop {
namespace {

constexpr std::uint64_t kAnomalyStream = 0x616e6f6d;
constexpr double kMaxAbove = 1.05;  // max ratio of the actual to the requested fraction

/// Returns the bucket of a sample's tokens in one module; -1 if it has none there.
int slow_bucket(const Sample& sample, const Anomaly& anomaly) {
  const std::int64_t tokens = anomaly.encoder ? sample.encoder().all_tokens() : sample.llm_tokens;
  if (tokens == 0) return -1;
  return static_cast<int>(
      std::floor(16 * std::log2(static_cast<double>(tokens)) + (anomaly.shifted ? 0.5 : 0)));
}

}  // namespace

AnomalousCostModel::AnomalousCostModel(const CostModel& base, const Plan& plan, const ModelSpec& model,
                                       std::span<const Sample> samples, const Anomaly& anomaly,
                                       std::uint64_t seed)
    : CostModelOver(base), anomaly_(anomaly) {
  const Work total = total_work(samples);
  std::map<int, double> shares;
  const auto count = static_cast<double>(samples.size());
  for (const Sample& sample : samples) {
    const int bucket = slow_bucket(sample, anomaly);
    if (bucket >= 0) shares[bucket] += 1 / count;
  }
  // mean_ is the work of an average microbatch of a global batch.
  const int encoder_dp = encoder_parts(plan);
  const auto part = [&](const Workload& work, int bins) {
    const double factor = plan.gbs / count / bins;
    const auto scaled = [&](std::int64_t n) {
      return static_cast<std::int64_t>(std::ceil(static_cast<double>(n) * factor));
    };
    return Workload{
        scaled(work.sequences),
        scaled(work.tokens),
        scaled(work.attention_pairs),
        scaled(work.untrained_tokens),
        {scaled(work.second.sequences), scaled(work.second.tokens), scaled(work.second.attention_pairs)}};
  };
  mean_ = {part(total.encoder, plan.microbatches * encoder_dp), part(total.llm, plan.bins())};
  double largest = 0;
  double largest_of_module = 0;
  for (const Stage& stage : plan_stages(plan, model)) {
    const double time =
        (base.compute(Op::forward, stage, mean_) + base.compute(Op::backward, stage, mean_)).count();
    largest = std::max(largest, time);
    const bool of_module = (anomaly.encoder ? stage.encoder_layers : stage.llm_layers) > 0;
    if (of_module) largest_of_module = std::max(largest_of_module, time);
  }
  scale_ = largest_of_module > 0 ? largest / largest_of_module : 0;

  std::vector<std::pair<int, double>> order(shares.begin(), shares.end());
  Random random(seed, kAnomalyStream);
  random.shuffle(std::span(order));
  for (const auto& [bucket, share] : order) {
    if (fraction_ + share > kMaxAbove * anomaly.fraction) continue;
    fraction_ += share;
    buckets_.push_back(bucket);
  }
  if (!buckets_.empty() || order.empty()) return;
  const auto rarest = std::min_element(order.begin(), order.end(),
                                       [](const auto& x, const auto& y) { return x.second < y.second; });
  fraction_ = rarest->second;
  buckets_.push_back(rarest->first);
}

Seconds AnomalousCostModel::sample_excess(Op op, const Stage& stage, const Sample& sample) const {
  const bool of_module = (anomaly_.encoder ? stage.encoder_layers : stage.llm_layers) > 0;
  if (!of_module || std::ranges::count(buckets_, slow_bucket(sample, anomaly_)) == 0) return Seconds(0);
  return anomaly_.latency * scale_ * base_.compute(op, stage, mean_);
}

}  // namespace dflop
