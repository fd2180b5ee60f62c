#include "solver/makespan/bound.hpp"

#include <ClpSimplex.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <utility>

namespace dflop {
namespace {

/// A LinearProgram is the least cost . x with x >= 0 and rows a . x >= `least`, in parts equal to it.
class LinearProgram {
 public:
  /// @return the column
  int add_column(double cost);

  void add_row(std::span<const int> column, std::span<const double> value, double least, bool equal = false);

  /// Returns the value of each row in the dual after at most `most_iterations` of the dual simplex method;
  /// optimal if it ended before. They are as good as the solver: who needs a proof checks them.
  std::vector<double> duals(int most_iterations) const;

 private:
  std::vector<double> cost_;
  std::vector<double> least_;
  std::vector<char> equal_;
  std::vector<int> begin_ = {0};  // of each row's entries, and their end
  std::vector<int> column_;
  std::vector<double> value_;
};

int LinearProgram::add_column(double cost) {
  cost_.push_back(cost);
  return static_cast<int>(cost_.size()) - 1;
}

void LinearProgram::add_row(std::span<const int> column, std::span<const double> value, double least,
                            bool equal) {
  column_.insert(column_.end(), column.begin(), column.end());
  value_.insert(value_.end(), value.begin(), value.end());
  begin_.push_back(static_cast<int>(column_.size()));
  least_.push_back(least);
  equal_.push_back(equal ? 1 : 0);
}

std::vector<double> LinearProgram::duals(int most_iterations) const {
  const int rows = static_cast<int>(least_.size());
  const int columns = static_cast<int>(cost_.size());
  const CoinPackedMatrix matrix(false, columns, rows, static_cast<CoinBigIndex>(value_.size()), value_.data(),
                                column_.data(), begin_.data(), nullptr);
  std::vector<double> most(rows, COIN_DBL_MAX);
  for (int r = 0; r < rows; ++r) {
    if (equal_[r] != 0) most[r] = least_[r];
  }
  ClpSimplex simplex;
  simplex.setLogLevel(0);
  simplex.loadProblem(matrix, nullptr, nullptr, cost_.data(), least_.data(), most.data());
  simplex.setMaximumIterations(most_iterations);
  simplex.dual();
  return std::vector<double>(simplex.dualRowSolution(), simplex.dualRowSolution() + rows);
}

constexpr double kWindow = 0.125;  // of the work between two shapes, that makes a shape

/// Returns what the items come to on a rank, by feature.
std::vector<double> rank_work(const PathBound& rank, const Features& items) {
  std::vector<double> work;
  for (std::size_t k = 0; k < items.size(); ++k) {
    double weight = 0;
    for (std::size_t r = 0; r < rank.rows(); ++r) weight += rank.row(r)[k] / static_cast<double>(rank.rows());
    work.push_back(weight * std::accumulate(items[k].begin(), items[k].end(), 0.0));
  }
  return work;
}

/// Returns the rank whose work is made of other features than that of the first: one of the LLM, where that
/// is one of the encoder.
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

/// Shapes are a few kinds of items that all items are taken as mixtures of. An item's key is its part of work
/// on the first rank in that on the first and the one least like it: in most pipelines encoder and LLM.
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
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return key_[a] < key_[b]; });
    pick(shapes);
  }

  /// Returns the sums of features of all items, by shape: [shape, feature]. An item is the mixture of the two
  /// shapes around it that has its work on both ranks. Items all lie between shapes, not around them, so that
  /// a bound that holds for the shapes nearly holds for each item.
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
  /// Picks the shapes of the items around quantiles of the work, from the least key to the largest.
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

/// A MakespanProgram has rows for each step, what it waits for on its rank and elsewhere; then the ends of
/// ranks; then the classes.
class MakespanProgram {
 public:
  MakespanProgram(const MeanPipeline& pipeline, std::vector<double> sums, double unit_s)
      : pipeline_(pipeline), sums_(std::move(sums)), unit_s_(unit_s) {
    shapes_ = sums_.size() / pipeline.features();
    first_part_ = static_cast<int>(1 + pipeline.steps().size());
    program_.add_column(1);
    for (std::size_t i = 0; i < pipeline.steps().size(); ++i) program_.add_column(0);
    for (std::size_t c = 0; c < shapes_ * pipeline.microbatches(); ++c) program_.add_column(0);
    for (std::size_t i = 0; i < pipeline.steps().size(); ++i) add_step(i);
    for (int r = 0; r < pipeline.ranks(); ++r) {
      const std::int32_t last = pipeline.last_step(r);
      rank_row_.push_back(rows_);
      start(0);
      if (last >= 0) entry(1 + last, -1);
      finish(pipeline.tail_s(r));
    }
    for (std::size_t c = 0; c < shapes_; ++c) {
      column_.clear();
      for (int j = 0; j < pipeline.microbatches(); ++j) column_.push_back(part(c, j));
      program_.add_row(column_, std::vector<double>(column_.size(), 1.0), 1, true);
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
    return first_part_ + static_cast<int>(c) * pipeline_.microbatches() + microbatch;
  }

  void entry(int column, double value) {
    column_.push_back(column);
    value_.push_back(value);
  }
  void start(int column) {
    column_.clear();
    value_.clear();
    entry(column, 1);
  }
  void finish(double least_s) {
    program_.add_row(column_, value_, least_s / unit_s_);
    ++rows_;
  }

  void add_step(std::size_t i) {
    const MeanPipeline::Step& step = pipeline_.steps()[i];
    const auto& duration = pipeline_.times()[step.duration];
    rank_rows_.push_back(-1);
    after_rows_.push_back(-1);
    if (step.same_rank >= 0 || step.after < 0) {
      rank_rows_.back() = rows_;
      start(static_cast<int>(1 + i));
      if (step.same_rank >= 0) entry(1 + step.same_rank, -1);
      add_work(step.microbatch, duration.weight);
      finish(duration.fixed_s);
    }
    if (step.after < 0) return;
    const auto& message = pipeline_.times()[step.message];
    std::vector<double> weight = duration.weight;
    for (std::size_t k = 0; k < weight.size(); ++k) weight[k] += message.weight[k];
    after_rows_.back() = rows_;
    start(static_cast<int>(1 + i));
    entry(1 + step.after, -1);
    add_work(step.microbatch, weight);
    finish(duration.fixed_s + message.fixed_s);
  }

  void add_work(int microbatch, const std::vector<double>& weight) {
    for (std::size_t c = 0; c < shapes_; ++c) {
      const double work = std::inner_product(weight.begin(), weight.end(), &sums_[c * weight.size()], 0.0);
      if (work != 0) entry(part(c, microbatch), -work / unit_s_);
    }
  }

  const MeanPipeline& pipeline_;
  std::vector<double> sums_;  // [class, feature]
  double unit_s_;
  std::size_t shapes_;
  int first_part_;
  int rows_ = 0;
  std::vector<int> rank_rows_;   // per step
  std::vector<int> after_rows_;  // per step; -1: none
  std::vector<int> rank_row_;    // per rank: its end
  std::vector<int> column_;      // of the row that is being made
  std::vector<double> value_;
  LinearProgram program_;
};

/// Finds the paths that bound the makespan of these items best together, from the dual solution of
///
///   min T  with  T >= end of each rank's last step + its tail,
///                end of a step >= end of the one before on its rank + its duration,
///                end of a step >= end of the one that it waits for + message + its duration,
///                durations affine in what is in their microbatch, and
///                each shape's items in parts over all microbatches.
///
/// Each item is taken as a mixture of two shapes, which may go apart. A dual solution is a flow of one unit
/// from the end of the iteration back to its start, a weight on every path; MeanPipeline::bound() makes one
/// of whatever the solver returned, at its end or before.
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
  if (best_ != BoundKind::linear_program || mean_.features() == 0) return;
  if (mean_.steps().size() > limits.steps) return;
  use(best_paths(mean_, features, limits));
}

void MakespanBounds::use(const PathFlow& flow) {
  if (best_ != BoundKind::linear_program || flow.waits.size() != mean_.steps().size()) return;
  if (flow.ends.size() != static_cast<std::size_t>(mean_.ranks())) return;
  PathBound dual = mean_.bound(flow);
  dual.reduce();
  const std::lock_guard lock(mutex_);
  flows_.push_back(flow);
  duals_.push_back(std::make_shared<const PathBound>(std::move(dual)));
}

std::vector<PathFlow> MakespanBounds::flows() const {
  const std::lock_guard lock(mutex_);
  return flows_;
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
  constexpr double kRounding = 1e-11;
  return *std::min_element(way.begin(), way.end()) * (1 - kRounding);
}

double MakespanBounds::largest_way(const Features& features) const {
  std::set<std::size_t> largest;
  for (const auto& values : features) {
    if (!values.empty()) largest.insert(std::max_element(values.begin(), values.end()) - values.begin());
  }
  double way = 0;
  for (const std::size_t item : largest) way = std::max(way, way_of(features, item));
  return way;
}

MakespanBound MakespanBounds::bound(const Features& features) const {
  if (best_ == BoundKind::none) return {};
  MakespanBound bound{largest_way(features), BoundKind::simple};
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
