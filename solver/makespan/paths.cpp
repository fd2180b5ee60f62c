#include "solver/makespan/paths.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace dflop {
namespace {

/// Rounding may add this part to a sum of products: thousands of roundings of 1e-16.
constexpr double kRounding = 1e-11;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::size_t kBlock = 256;  // items whose least costs are kept at once

/// Returns whether each of `a` is at least that of `b`.
bool nowhere_below(std::span<const double> a, std::span<const double> b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return x >= y; });
}

}  // namespace

void PathBound::add(const PathBound& other, double times) {
  constant_s += times * other.constant_s;
  for (std::size_t k = 0; k < weight.size(); ++k) weight[k] += times * other.weight[k];
}

void PathBound::reduce() {
  std::vector<double> kept;
  const auto dominated = [&](std::size_t r) {
    for (std::size_t other = 0; other < rows(); ++other) {
      if (other == r || !nowhere_below(row(r), row(other))) continue;
      if (other < r || !nowhere_below(row(other), row(r))) return true;  // of equal ones the first stays
    }
    return false;
  };
  for (std::size_t r = 0; r < rows(); ++r) {
    if (!dominated(r)) kept.insert(kept.end(), row(r).begin(), row(r).end());
  }
  weight = std::move(kept);
}

double PathBound::at(const Features& items) const {
  if (features == 0) return constant_s - kRounding * std::abs(constant_s);
  const std::size_t count = items[0].size();
  double sum = 0;
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t size = std::min(kBlock, count - first);
    std::array<double, kBlock> least;
    least.fill(kInfinity);
    for (std::size_t r = 0; r < rows(); ++r) {
      std::array<double, kBlock> cost{};
      for (std::size_t k = 0; k < features; ++k) {
        const double w = weight[r * features + k];
        if (w == 0) continue;
        const double* values = items[k].data() + first;
        for (std::size_t i = 0; i < size; ++i) cost[i] += w * values[i];
      }
      for (std::size_t i = 0; i < size; ++i) least[i] = std::min(least[i], cost[i]);
    }
    sum += std::accumulate(least.begin(), least.begin() + static_cast<std::ptrdiff_t>(size), 0.0);
  }
  return constant_s + sum - kRounding * (std::abs(constant_s) + sum);
}

MeanPipeline::MeanPipeline(const LoadPipeline& pipeline)
    : microbatches_(pipeline.microbatches),
      features_(pipeline.loads.empty() ? 0 : pipeline.loads[0].mix.size()),
      last_(pipeline.ranks(), -1),
      tail_s_(pipeline.tail_s) {
  for (const LoadStep& step : pipeline.steps) {
    const std::int32_t message = step.after < 0 ? 0 : time_of(step.message, pipeline);
    steps_.push_back({step.microbatch, time_of(step.duration, pipeline), last_[step.rank], step.after,
                      message, step.rank});
    last_[step.rank] = static_cast<std::int32_t>(steps_.size()) - 1;
  }
}

std::int32_t MeanPipeline::time_of(const LoadTime& time, const LoadPipeline& pipeline) {
  const auto same = [&](const LoadTime& other) {
    return other.fixed_s == time.fixed_s && other.scale == time.scale &&
           (other.load == time.load || time.scale == 0);
  };
  const auto known = std::find_if(keys_.begin(), keys_.end(), same);
  if (known != keys_.end()) return static_cast<std::int32_t>(known - keys_.begin());
  Time out{time.fixed_s, std::vector<double>(features_, 0.0)};
  if (time.scale != 0) {
    const Load& load = pipeline.loads[time.load];
    const double scale = load.of_microbatch ? time.scale : time.scale / pipeline.dp;
    for (std::size_t k = 0; k < features_; ++k) out.weight[k] = scale * load.mix[k];
  }
  keys_.push_back(time);
  times_.push_back(std::move(out));
  return static_cast<std::int32_t>(keys_.size()) - 1;
}

void MeanPipeline::add(PathBound& bound, std::int32_t time, int microbatch, double part) const {
  bound.constant_s += part * times_[time].fixed_s;
  double* weight = &bound.weight[microbatch * features_];
  for (std::size_t k = 0; k < features_; ++k) weight[k] += part * times_[time].weight[k];
}

PathBound MeanPipeline::bound(const PathFlow& flow) const {
  const auto weight = [](double value) { return std::isfinite(value) ? std::max(value, 0.0) : 0.0; };
  double total = 0;
  for (const double end : flow.ends) total += weight(end);
  PathBound bound(microbatches_, features_);
  std::vector<double> part(steps_.size(), 0.0);  // of all paths, that go through a step
  for (int r = 0; r < ranks(); ++r) {
    const double end = total > 0 ? weight(flow.ends[r]) / total : 1.0 / ranks();
    bound.constant_s += end * tail_s_[r];
    if (last_[r] >= 0) part[last_[r]] += end;
  }
  for (std::size_t i = steps_.size(); i-- > 0;) {
    if (part[i] == 0) continue;
    const Step& step = steps_[i];
    const double waiting = step.after < 0 ? 0.0 : std::min(weight(flow.waits[i]), 1.0) * part[i];
    add(bound, step.duration, step.microbatch, part[i]);
    if (step.same_rank >= 0) part[step.same_rank] += part[i] - waiting;
    if (waiting == 0) continue;
    add(bound, step.message, step.microbatch, waiting);
    part[step.after] += waiting;
  }
  return bound;
}

std::vector<PathBound> MeanPipeline::rank_bounds() const {
  const auto fixed = [&](std::int32_t time) { return times_[time].fixed_s; };
  std::vector<double> before(steps_.size(), 0.0);
  std::vector<double> behind(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    behind[i] = tail_s_[step.rank];
    if (step.after >= 0)
      before[i] = before[step.after] + fixed(steps_[step.after].duration) + fixed(step.message);
  }
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    if (step.after < 0) continue;
    behind[step.after] = std::max(behind[step.after], fixed(step.message) + fixed(step.duration) + behind[i]);
  }
  std::vector<double> fill(ranks(), kInfinity);
  std::vector<double> drain(ranks(), kInfinity);
  std::vector<PathBound> bounds(ranks(), PathBound(microbatches_, features_));
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const int r = steps_[i].rank;
    fill[r] = std::min(fill[r], before[i]);
    drain[r] = std::min(drain[r], behind[i]);
    add(bounds[r], steps_[i].duration, steps_[i].microbatch);
  }
  PathBound mean(microbatches_, features_);
  for (int r = 0; r < ranks(); ++r) {
    bounds[r].constant_s += last_[r] < 0 ? tail_s_[r] : fill[r] + drain[r];
    mean.add(bounds[r], 1.0 / ranks());
  }
  bounds.push_back(std::move(mean));
  return bounds;
}

}  // namespace dflop
