#include "experiments/trust/headroom.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>

#include "core/support/parallel.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMostBatches = 64;
constexpr std::size_t kLeastBatches = 8;
constexpr std::size_t kSamplesInAll = std::size_t{1} << 18;
/// Batches are those of a seed that nobody gives.
constexpr std::uint64_t kHeadroomSeeds = 0x6865'6164'0000'0000;

double gib(Bytes bytes) {
  return static_cast<double>(bytes.count) * 0x1p-30;
}

Bytes peak_of_batch(const Plan& plan, const Target& target, const Batch& batch,
                    const Assignment& assignment) {
  const PipelineOrder order =
      order_for_batch(plan, target.model, target.cost, batch, assignment, target.cluster.gpu.usable_memory());
  return memory_peak(plan, target.model, target.cost, batch, assignment, order).bytes;
}

}  // namespace

double Headroom::chance_of_run(double iterations) const {
  return chance >= 1 ? 1 : -std::expm1(iterations * std::log1p(-chance));
}

double overrun_chance(std::span<const double> peaks, double limit) {
  const auto count = static_cast<double>(peaks.size());
  if (peaks.empty()) return 0;
  const double mean = std::accumulate(peaks.begin(), peaks.end(), 0.0) / count;
  double squares = 0;
  double above = 0;
  for (const double peak : peaks) {
    squares += (peak - mean) * (peak - mean);
    above += peak > limit ? 1 : 0;
  }
  const double deviation = peaks.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  if (deviation <= 0) return above / count;
  const double scale = deviation * std::sqrt(6.0) / std::numbers::pi;
  const double location = mean - std::numbers::egamma * scale;
  return std::max(above / count, -std::expm1(-std::exp(-(limit - location) / scale)));
}

Headroom estimate_headroom(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                           const std::string& scheduler, bool respects_memory, std::uint64_t seed) {
  const std::size_t count =
      std::clamp(kSamplesInAll / static_cast<std::size_t>(plan.gbs), kLeastBatches, kMostBatches);
  const std::uint64_t other_seed = seed ^ kHeadroomSeeds;
  const std::vector<Batch> batches = make_batches(samples, plan.gbs, static_cast<int>(count), other_seed);
  const std::unique_ptr<Scheduler> filler = make_scheduler(scheduler);
  Headroom headroom{.scheduler = scheduler, .respects_memory = respects_memory, .batches = count};
  headroom.usable = target.cluster.gpu.usable_memory();
  ScheduleLimits limits;
  if (respects_memory) limits.memory = headroom.usable;
  std::vector<std::optional<double>> found(count);
  parallel_for(count, [&](std::size_t k) {
    const ScheduleResult filled =
        filler->schedule({batches[k], plan, target.model, target.cost, other_seed, k, limits});
    if (filled.feasible())
      found[k] = static_cast<double>(peak_of_batch(plan, target, batches[k], filled.assignment).count);
  });
  std::vector<double> peaks;
  for (const std::optional<double>& peak : found) {
    if (peak) peaks.push_back(*peak);
  }
  const auto limit = static_cast<double>(headroom.usable.count);
  const auto above = std::ranges::count_if(peaks, [&](double peak) { return peak > limit; });
  headroom.overruns = count - peaks.size() + static_cast<std::size_t>(above);
  headroom.chance = static_cast<double>(headroom.overruns) / static_cast<double>(count);
  if (peaks.empty()) return headroom;
  const double sum = std::accumulate(peaks.begin(), peaks.end(), 0.0);
  headroom.mean = {static_cast<std::int64_t>(sum / static_cast<double>(peaks.size()))};
  headroom.most = {static_cast<std::int64_t>(*std::ranges::max_element(peaks))};
  if (!respects_memory) headroom.chance = overrun_chance(peaks, limit);
  return headroom;
}

std::string describe(const Headroom& headroom, double iterations) {
  const double chance = 100 * headroom.chance_of_run(iterations);
  const std::string percent = chance > 99 ? "> 99" : chance < 0.1 ? "< 0.1" : fmt::format("{:.2g}", chance);
  std::string text = fmt::format("{:.1f} GiB in the mean, {:.1f} at most of {:.1f}; ", gib(headroom.mean),
                                 gib(headroom.most), gib(headroom.usable));
  if (headroom.overruns == 0) {
    text += fmt::format("all of {} batches fit", headroom.batches);
  } else {
    text += fmt::format("{} of {} batches {}", headroom.overruns, headroom.batches,
                        headroom.respects_memory ? "cannot be kept within it" : "do not fit");
  }
  if (headroom.respects_memory && headroom.overruns == 0) return text;
  return text + fmt::format("; {} % of runs of {:.0f} iterations end out of memory", percent, iterations);
}

}  // namespace dflop
