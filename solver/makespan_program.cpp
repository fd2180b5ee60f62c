#include "solver/makespan_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "solver/linear_program.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMostClasses = 6;  // of items with like shape
constexpr double kClose = 1e-4;          // of the makespan: where cutting ends
constexpr double kInside = 0.5;          // how far a trial goes from the best point to that of the program
constexpr int kMostIterations = 20'000;  // of one solution

/// Sums of features of items taken together: [class, feature].
std::vector<double> class_sums(const std::vector<PathBound>& ranks, const Features& items) {
  const std::size_t features = items.size();
  const std::size_t count = items[0].size();
  // By their part of the work on the first rank and on the last: in most pipelines encoder and LLM.
  const PathBound& first = ranks.front();
  const PathBound& last = ranks[ranks.size() - 2];
  std::vector<double> key(count);
  std::vector<double> weight(count);
  for (std::size_t i = 0; i < count; ++i) {
    double f = 0;
    double l = 0;
    for (std::size_t k = 0; k < features; ++k) {
      f += first.weight[k] * items[k][i];
      l += last.weight[k] * items[k][i];
    }
    weight[i] = f + l;
    key[i] = weight[i] > 0 ? f / weight[i] : 0.0;
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key[a] < key[b]; });
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  const std::size_t classes = std::min(kMostClasses, count);
  std::vector<double> sums(classes * features, 0.0);
  double done = 0;
  for (const std::size_t i : order) {
    const double middle = total > 0 ? (done + weight[i] / 2) / total : 0.0;
    const std::size_t c = std::min(classes - 1, static_cast<std::size_t>(middle * classes));
    for (std::size_t k = 0; k < features; ++k) sums[c * features + k] += items[k][i];
    done += weight[i];
  }
  return sums;
}

/// Columns: T, then the part of each class in each microbatch. Times in units of `unit_s`.
class CuttingPlanes {
 public:
  CuttingPlanes(MeanPipeline& pipeline, std::vector<double> sums)
      : pipeline_(pipeline),
        sums_(std::move(sums)),
        microbatches_(pipeline.microbatches()),
        classes_(sums_.size() / pipeline.features()),
        best_(classes_ * microbatches_, 1.0 / microbatches_),
        best_s_(run(best_)),
        unit_s_(std::max(best_s_, std::numeric_limits<double>::min())),
        program_(columns()) {
    for (std::size_t c = 0; c < classes_; ++c) {
      std::vector<int> column(microbatches_);
      std::iota(column.begin(), column.end(), static_cast<int>(1 + c * microbatches_));
      program_.add_row(column, std::vector<double>(microbatches_, 1.0), 1, 1);
    }
    cut(0);
  }

  PathBound solve(int rounds) {
    for (int round = 0; program_.solve(kMostIterations) && round < rounds; ++round) {
      const double least_s = program_.columns()[0] * unit_s_;
      if (best_s_ - least_s <= kClose * best_s_) break;
      std::vector<double> trial(best_.size());
      for (std::size_t c = 0; c < trial.size(); ++c) {
        trial[c] = best_[c] + kInside * (program_.columns()[1 + c] - best_[c]);
      }
      const double trial_s = run(trial);
      cut(least_s);
      if (trial_s < best_s_) {
        best_s_ = trial_s;
        best_ = std::move(trial);
      }
    }
    return mix();
  }

  double best_s() const { return best_s_; }

 private:
  std::vector<LinearProgramColumn> columns() const {
    std::vector<LinearProgramColumn> columns(1 + best_.size(), {0, 0, 1});
    columns[0] = {1, 0, std::numeric_limits<double>::infinity()};
    return columns;
  }

  double run(const std::vector<double>& parts) {
    const std::size_t features = pipeline_.features();
    std::vector<double> loads(microbatches_ * features, 0.0);
    for (std::size_t c = 0; c < classes_; ++c) {
      for (std::size_t j = 0; j < microbatches_; ++j) {
        for (std::size_t k = 0; k < features; ++k) {
          loads[j * features + k] += parts[c * microbatches_ + j] * sums_[c * features + k];
        }
      }
    }
    return pipeline_.run(loads);
  }

  /// Adds the paths of the last run to every rank that ended after `least_s`.
  void cut(double least_s) {
    for (int r = 0; r < pipeline_.ranks(); ++r) {
      if (pipeline_.end_of(r) > least_s) add_path(pipeline_.path_to(r));
    }
  }

  void add_path(PathBound path) {
    const std::size_t features = pipeline_.features();
    std::vector<int> column = {0};
    std::vector<double> value = {1.0};
    for (std::size_t c = 0; c < classes_; ++c) {
      for (std::size_t j = 0; j < microbatches_; ++j) {
        const auto row = path.row(j);
        column.push_back(static_cast<int>(1 + c * microbatches_ + j));
        value.push_back(-std::inner_product(row.begin(), row.end(), &sums_[c * features], 0.0) / unit_s_);
      }
    }
    program_.add_row(column, value, path.constant_s / unit_s_, std::numeric_limits<double>::infinity());
    paths_.push_back(std::move(path));
  }

  /// The mean of all paths by their duals; nothing of a dual but its being a weight is relied on.
  PathBound mix() const {
    const std::span<const double> duals = program_.duals().subspan(classes_);
    double total = 0;
    for (const double dual : duals) total += std::max(dual, 0.0);
    if (!(total > 0) || !std::isfinite(total)) return paths_.front();
    PathBound mix(microbatches_, pipeline_.features());
    for (std::size_t p = 0; p < paths_.size(); ++p) mix.add(paths_[p], std::max(duals[p], 0.0) / total);
    return mix;
  }

  MeanPipeline& pipeline_;
  std::vector<double> sums_;  // [class, feature]
  std::size_t microbatches_;
  std::size_t classes_;
  std::vector<double> best_;  // parts [class, microbatch] of the shortest run
  double best_s_;
  double unit_s_;
  LinearProgram program_;
  std::vector<PathBound> paths_;  // in the order of the program's rows behind those of the classes
};

}  // namespace

PathBound best_path_mix(MeanPipeline pipeline, const Features& items, int rounds) {
  std::vector<double> sums = class_sums(pipeline.rank_bounds(), items);
  return CuttingPlanes(pipeline, std::move(sums)).solve(rounds);
}

}  // namespace dflop
