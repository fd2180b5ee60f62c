#include "solver/makespan/bound.hpp"

#include <ClpSimplex.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

namespace dflop {
namespace {

/// A sum of products has at most this relative error: thousands of roundings of 1e-16.
constexpr double kRounding = 1e-11;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::size_t kBlock = 256;  // items whose min costs are kept at once

/// Returns whether each value of `a` is at least the value of `b`.
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
      if (other < r || !nowhere_below(row(other), row(r))) return true;  // of equal rows, keep the first
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
    : microbatches(pipeline.microbatches),
      features(pipeline.loads.empty() ? 0 : pipeline.loads[0].mix.size()),
      last(pipeline.ranks(), -1),
      tail_s(pipeline.tail_s),
      links(pipeline.links) {
  std::vector<LoadTime> keys;  // of `times`
  const auto place_of = [&](const LoadTime& time) {
    const auto same = [&](const LoadTime& other) {
      return other.fixed_s == time.fixed_s && other.scale == time.scale &&
             (other.load == time.load || time.scale == 0);
    };
    const auto known = std::find_if(keys.begin(), keys.end(), same);
    const auto place = static_cast<std::int32_t>(known - keys.begin());
    if (known != keys.end()) return place;
    keys.push_back(time);
    Time& out = times.emplace_back(Time{time.fixed_s, std::vector<double>(features, 0.0)});
    if (time.scale == 0) return place;
    const Load& load = pipeline.loads[time.load];
    const double scale = load.of_microbatch ? time.scale : time.scale / pipeline.dp;
    for (std::size_t k = 0; k < features; ++k) out.weight[k] = scale * load.mix[k];
    return place;
  };
  for (const LoadStep& step : pipeline.steps) {
    const std::int32_t message = step.after < 0 ? 0 : place_of(step.message);
    steps.push_back(
        {step.microbatch, place_of(step.duration), last[step.rank], step.after, message, step.rank});
    last[step.rank] = static_cast<std::int32_t>(steps.size()) - 1;
  }
}

void MeanPipeline::add(PathBound& bound, std::int32_t time, int microbatch, double part) const {
  bound.constant_s += part * times[time].fixed_s;
  double* weight = &bound.weight[microbatch * features];
  for (std::size_t k = 0; k < features; ++k) weight[k] += part * times[time].weight[k];
}

PathBound MeanPipeline::bound(const PathFlow& flow) const {
  const auto weight = [](double value) { return std::isfinite(value) ? std::max(value, 0.0) : 0.0; };
  double total = 0;
  for (const double end : flow.ends) total += weight(end);
  PathBound bound(microbatches, features);
  std::vector<double> part(steps.size(), 0.0);  // fraction of all paths that go through a step
  for (int r = 0; r < ranks(); ++r) {
    const double end = total > 0 ? weight(flow.ends[r]) / total : 1.0 / ranks();
    bound.constant_s += end * tail_s[r];
    if (last[r] >= 0) part[last[r]] += end;
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (part[i] == 0) continue;
    const Step& step = steps[i];
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
  const auto fixed = [&](std::int32_t time) { return times[time].fixed_s; };
  std::vector<double> before(steps.size(), 0.0);
  std::vector<double> behind(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    behind[i] = tail_s[step.rank];
    if (step.after >= 0)
      before[i] = before[step.after] + fixed(steps[step.after].duration) + fixed(step.message);
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Step& step = steps[i];
    if (step.after < 0) continue;
    behind[step.after] = std::max(behind[step.after], fixed(step.message) + fixed(step.duration) + behind[i]);
  }
  std::vector<double> fill(ranks(), kInfinity);
  std::vector<double> drain(ranks(), kInfinity);
  std::vector<PathBound> bounds(ranks(), PathBound(microbatches, features));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const int r = steps[i].rank;
    fill[r] = std::min(fill[r], before[i]);
    drain[r] = std::min(drain[r], behind[i]);
    add(bounds[r], steps[i].duration, steps[i].microbatch);
  }
  PathBound mean(microbatches, features);
  for (int r = 0; r < ranks(); ++r) {
    bounds[r].constant_s += last[r] < 0 ? tail_s[r] : fill[r] + drain[r];
    if (r < ranks() - links) mean.add(bounds[r], 1.0 / (ranks() - links));
  }
  bounds.push_back(std::move(mean));
  return bounds;
}

namespace {

/// A LinearProgram is min cost . x with x >= 0 and rows least <= a . x <= most.
struct LinearProgram {
  std::vector<double> cost;  // per column
  std::vector<double> least;
  std::vector<double> most;
  std::vector<int> begin = {0};  // of each row's entries, and their end
  std::vector<int> column;
  std::vector<double> value;

  int rows() const { return static_cast<int>(least.size()); }

  void add_entry(int at, double a) {
    column.push_back(at);
    value.push_back(a);
  }
  /// Makes a row of the entries added since the last one.
  void end_row(double at_least, double at_most = COIN_DBL_MAX) {
    begin.push_back(static_cast<int>(column.size()));
    least.push_back(at_least);
    most.push_back(at_most);
  }

  /// Returns the dual value of each row after at most `most_iterations` iterations of the dual simplex
  /// method. The values are optimal if the method ended before that. They are not verified: a caller that
  /// needs a proof must check them.
  std::vector<double> duals(int most_iterations) const {
    const CoinPackedMatrix matrix(false, static_cast<int>(cost.size()), rows(),
                                  static_cast<CoinBigIndex>(value.size()), value.data(), column.data(),
                                  begin.data(), nullptr);
    ClpSimplex simplex;
    simplex.setLogLevel(0);
    simplex.loadProblem(matrix, nullptr, nullptr, cost.data(), least.data(), most.data());
    simplex.setMaximumIterations(most_iterations);
    simplex.dual();
    return {simplex.dualRowSolution(), simplex.dualRowSolution() + rows()};
  }
};

constexpr double kWindow = 0.125;  // fraction of the work between two shapes that forms a shape

/// Returns the total work of the items on a rank, by feature.
std::vector<double> rank_work(const PathBound& rank, const Features& items) {
  std::vector<double> work;
  for (std::size_t k = 0; k < items.size(); ++k) {
    double weight = 0;
    for (std::size_t r = 0; r < rank.rows(); ++r) weight += rank.row(r)[k] / static_cast<double>(rank.rows());
    work.push_back(weight * std::accumulate(items[k].begin(), items[k].end(), 0.0));
  }
  return work;
}

/// Returns the rank whose work depends on features in proportions that differ most from the first rank's: an
/// LLM rank, if the first is an encoder rank.
const PathBound& least_like_first(const std::vector<PathBound>& ranks, const Features& items) {
  const std::vector<double> first = rank_work(ranks.front(), items);
  const PathBound* least = &ranks.front();
  double least_like = 2;
  for (const PathBound& rank : ranks) {
    const std::vector<double> work = rank_work(rank, items);
    const auto product = [](const std::vector<double>& a, const std::vector<double>& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    const double norm = product(first, first) * product(work, work);
    const double like = norm > 0 ? product(first, work) / std::sqrt(norm) : 1.0;
    if (like >= least_like) continue;
    least = &rank;
    least_like = like;
  }
  return *least;
}

/// Shapes are a few kinds of items; every item is treated as a mixture of them. An item's key is its work on
/// the first rank, as a fraction of its work on two ranks: the first and the least similar one. In most
/// pipelines, these are an encoder rank and an LLM rank.
class Shapes {
 public:
  Shapes(const std::vector<PathBound>& ranks, const Features& items, std::size_t shapes)
      : items_(items), weight_(items[0].size()), key_(items[0].size()) {
    const PathBound& first = ranks.front();
    const PathBound& last = least_like_first(ranks, items);
    for (std::size_t i = 0; i < key_.size(); ++i) {
      double f = 0;
      for (std::size_t k = 0; k < items.size(); ++k) {
        f += first.weight[k] * items[k][i];
        weight_[i] += (first.weight[k] + last.weight[k]) * items[k][i];
      }
      key_[i] = weight_[i] > 0 ? f / weight_[i] : 0.0;
    }
    order_.resize(key_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return key_[i]; });
    pick(shapes);
  }

  /// Returns the sums of features of all items, by shape: [shape, feature]. An item is treated as the mixture
  /// of its two neighboring shapes that has the same work on both ranks. All items lie between shapes, so a
  /// bound that holds for the shapes nearly holds for each item.
  std::vector<double> sums() const {
    const std::size_t features = items_.size();
    if (shapes_.empty()) return std::vector<double>(features, 0.0);
    std::vector<double> sums(shapes_.size(), 0.0);
    std::vector<double> amount(shape_key_.size(), 0.0);
    std::size_t s = 0;
    for (const std::size_t i : order_) {
      while (s + 2 < amount.size() && key_[i] > shape_key_[s + 1]) ++s;
      const std::size_t next = std::min(s + 1, amount.size() - 1);
      const double width = shape_key_[next] - shape_key_[s];
      const double part = width > 0 ? std::clamp((key_[i] - shape_key_[s]) / width, 0.0, 1.0) : 0.0;
      amount[s] += (1 - part) * weight_[i];
      amount[next] += part * weight_[i];
    }
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] = amount[k / features] * shapes_[k];
    return sums;
  }

 private:
  /// Picks the shapes from the items around quantiles of the work, from the smallest key to the largest.
  void pick(std::size_t shapes) {
    const double total = std::accumulate(weight_.begin(), weight_.end(), 0.0);
    const double window = kWindow / static_cast<double>(shapes);
    for (std::size_t s = 0; s < shapes; ++s) {
      const double quantile = static_cast<double>(s) / static_cast<double>(shapes - 1);
      std::vector<double> sum(items_.size(), 0.0);
      double weight = 0;
      double key = 0;
      double done = 0;
      for (const std::size_t i : order_) {
        const double begin = done / total;
        done += weight_[i];
        if (begin > quantile + window || done / total < quantile - window) continue;
        for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += items_[k][i];
        weight += weight_[i];
        key += weight_[i] * key_[i];
      }
      if (!(weight > 0)) continue;
      for (const double value : sum) shapes_.push_back(value / weight);
      shape_key_.push_back(key / weight);
    }
  }

  const Features& items_;
  std::vector<double> weight_;  // per item: work on both ranks
  std::vector<double> key_;     // per item
  std::vector<std::size_t> order_;
  std::vector<double> shapes_;  // [shape, feature], of unit weight
  std::vector<double> shape_key_;
};

/// A MakespanProgram is a linear program. Its first rows are the waits of each step, on its own rank and on
/// others; then come the rows of the ranks' ends, and last the rows of the shapes.
class MakespanProgram {
 public:
  MakespanProgram(const MeanPipeline& pipeline, std::vector<double> sums, double unit_s)
      : pipeline_(pipeline), sums_(std::move(sums)), unit_s_(unit_s) {
    shapes_ = sums_.size() / pipeline.features;
    first_part_ = static_cast<int>(1 + pipeline.steps.size());
    program_.cost.assign(first_part_ + shapes_ * pipeline.microbatches, 0.0);
    program_.cost[0] = 1;
    for (std::size_t i = 0; i < pipeline.steps.size(); ++i) add_step(i);
    for (int r = 0; r < pipeline.ranks(); ++r) {
      const std::int32_t last = pipeline.last[r];
      rank_row_.push_back(program_.rows());
      program_.add_entry(0, 1);
      if (last >= 0) program_.add_entry(1 + last, -1);
      program_.end_row(pipeline.tail_s[r] / unit_s_);
    }
    for (std::size_t c = 0; c < shapes_; ++c) {
      for (int j = 0; j < pipeline.microbatches; ++j) program_.add_entry(part(c, j), 1);
      program_.end_row(1, 1);
    }
  }

  PathFlow solve(int most_iterations) const {
    const std::vector<double> duals = program_.duals(most_iterations);
    const auto dual = [&](int row) { return row < 0 ? 0.0 : duals[row]; };
    PathFlow flow;
    for (const int row : rank_row_) flow.ends.push_back(dual(row));
    for (std::size_t i = 0; i < rank_rows_.size(); ++i) {
      const double here = std::max(dual(rank_rows_[i]), 0.0);
      const double there = std::max(dual(after_rows_[i]), 0.0);
      flow.waits.push_back(here + there > 0 ? there / (here + there) : 0.0);
    }
    return flow;
  }

 private:
  int part(std::size_t c, int microbatch) const {
    return first_part_ + static_cast<int>(c) * pipeline_.microbatches + microbatch;
  }

  void add_step(std::size_t i) {
    const MeanPipeline::Step& step = pipeline_.steps[i];
    MeanPipeline::Time time = pipeline_.times[step.duration];
    rank_rows_.push_back(-1);
    after_rows_.push_back(-1);
    if (step.same_rank >= 0 || step.after < 0) {
      rank_rows_.back() = program_.rows();
      add_wait(i, step.same_rank, time);
    }
    if (step.after < 0) return;
    const MeanPipeline::Time& message = pipeline_.times[step.message];
    time.fixed_s += message.fixed_s;
    for (std::size_t k = 0; k < time.weight.size(); ++k) time.weight[k] += message.weight[k];
    after_rows_.back() = program_.rows();
    add_wait(i, step.after, time);
  }

  /// Adds the row of a step that ends at least `time` after another one; -1: after the start.
  void add_wait(std::size_t step, std::int32_t other, const MeanPipeline::Time& time) {
    program_.add_entry(static_cast<int>(1 + step), 1);
    if (other >= 0) program_.add_entry(1 + other, -1);
    const std::size_t features = time.weight.size();
    for (std::size_t c = 0; c < shapes_; ++c) {
      const double work =
          std::inner_product(time.weight.begin(), time.weight.end(), &sums_[c * features], 0.0);
      if (work != 0) program_.add_entry(part(c, pipeline_.steps[step].microbatch), -work / unit_s_);
    }
    program_.end_row(time.fixed_s / unit_s_);
  }

  const MeanPipeline& pipeline_;
  std::vector<double> sums_;  // [class, feature]
  double unit_s_;
  std::size_t shapes_;
  int first_part_;
  std::vector<int> rank_rows_;   // per step
  std::vector<int> after_rows_;  // per step; -1: none
  std::vector<int> rank_row_;    // per rank: its end
  LinearProgram program_;
};

/// Finds the paths that together give the best bound on the makespan of these items, from the dual solution
/// of
///
///   min T  with  T >= end of each rank's last step + its tail,
///                end of a step >= end of the previous one on its rank + its duration,
///                end of a step >= end of the one that it waits for + message + its duration,
///                durations affine in the contents of their microbatch, and
///                each shape's items divided over all microbatches.
///
/// Each item is a mixture of two shapes, which may be in different microbatches. A dual solution is a flow of
/// one unit from the end of the iteration back to its start, that is, a weight on every path.
/// MeanPipeline::bound() makes a valid flow from any values that the solver returned, even if it was stopped
/// early.
PathFlow best_paths(const MeanPipeline& pipeline, const Features& items, const ProgramLimits& limits) {
  const std::vector<PathBound> ranks = pipeline.rank_bounds();
  double unit_s = 0;
  for (const PathBound& rank : ranks) unit_s = std::max(unit_s, rank.at(items));
  std::vector<double> sums = Shapes(ranks, items, limits.shapes).sums();
  return MakespanProgram(pipeline, std::move(sums), unit_s > 0 ? unit_s : 1.0).solve(limits.iterations);
}

}  // namespace

MakespanBounds::MakespanBounds(LoadPipeline pipeline, BoundKind best)
    : pipeline_(std::move(pipeline)),
      best_(best),
      mean_(pipeline_),
      ranks_(mean_.rank_bounds()),
      same_before_(pipeline_.steps.size(), -1) {
  for (PathBound& rank : ranks_) rank.reduce();
  if (best_ != BoundKind::linear_program) return;
  std::vector<std::int32_t> last(static_cast<std::size_t>(pipeline_.ranks()) * pipeline_.microbatches, -1);
  for (std::size_t i = 0; i < pipeline_.steps.size(); ++i) {
    const LoadStep& step = pipeline_.steps[i];
    std::int32_t& before = last[step.rank * pipeline_.microbatches + step.microbatch];
    same_before_[i] = std::exchange(before, static_cast<std::int32_t>(i));
  }
}

void MakespanBounds::prepare(const Features& features, const ProgramLimits& limits) {
  if (best_ != BoundKind::linear_program || mean_.features == 0) return;
  if (mean_.steps.size() > limits.steps) return;
  use(best_paths(mean_, features, limits));
}

void MakespanBounds::use(const PathFlow& flow) {
  if (best_ != BoundKind::linear_program || flow.waits.size() != mean_.steps.size()) return;
  if (flow.ends.size() != static_cast<std::size_t>(mean_.ranks())) return;
  PathBound dual = mean_.bound(flow);
  dual.reduce();
  const std::lock_guard lock(mutex_);
  flows_.push_back(flow);
  duals_.push_back(std::make_shared<const PathBound>(std::move(dual)));
}

double MakespanBounds::way_of(const Features& features, std::size_t item) const {
  const auto time = [&](const LoadTime& t) {
    double load = 0;
    if (t.scale != 0) {
      const std::vector<double>& mix = pipeline_.loads[t.load].mix;
      for (std::size_t k = 0; k < mix.size(); ++k) load += mix[k] * features[k][item];
    }
    return t.at(load);
  };
  std::vector<double> end(pipeline_.steps.size());
  std::vector<double> way(pipeline_.microbatches, 0.0);
  for (std::size_t i = 0; i < end.size(); ++i) {
    const LoadStep& step = pipeline_.steps[i];
    double begin = same_before_[i] < 0 ? 0.0 : end[same_before_[i]];
    if (step.after >= 0) begin = std::max(begin, end[step.after] + time(step.message));
    end[i] = begin + time(step.duration);
    way[step.microbatch] = std::max(way[step.microbatch], end[i] + pipeline_.tail_s[step.rank]);
  }
  return *std::min_element(way.begin(), way.end()) * (1 - kRounding);
}

MakespanBound MakespanBounds::bound(const Features& features) const {
  if (best_ == BoundKind::none) return {};
  MakespanBound bound{0, BoundKind::simple};
  std::set<std::size_t> largest;
  for (const auto& values : features) {
    if (!values.empty()) largest.insert(std::ranges::max_element(values) - values.begin());
  }
  for (const std::size_t item : largest) bound.seconds = std::max(bound.seconds, way_of(features, item));
  for (const PathBound& rank : ranks_) bound.seconds = std::max(bound.seconds, rank.at(features));
  std::vector<std::shared_ptr<const PathBound>> duals;
  {
    const std::lock_guard lock(mutex_);
    duals = duals_;
  }
  for (const auto& dual : duals) {
    const double seconds = dual->at(features);
    if (seconds > bound.seconds) bound = {seconds, BoundKind::linear_program};
  }
  return bound;
}

}  // namespace dflop
