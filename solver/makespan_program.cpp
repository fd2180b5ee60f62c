#include "solver/makespan_program.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "solver/linear_program.hpp"

namespace dflop {
namespace {

constexpr int kMostIterations = 200'000;

/// Sums of features of items taken together: [class, feature].
std::vector<double> class_sums(const std::vector<PathBound>& ranks, const Features& items,
                               std::size_t most_classes) {
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
  const std::size_t classes = std::min(most_classes, count);
  std::vector<double> sums(classes * features, 0.0);
  double done = 0;
  for (const std::size_t i : order) {
    const double middle = total > 0 ? (done + weight[i] / 2) / total : 0.0;
    const std::size_t c =
        std::min(classes - 1, static_cast<std::size_t>(middle * static_cast<double>(classes)));
    for (std::size_t k = 0; k < features; ++k) sums[c * features + k] += items[k][i];
    done += weight[i];
  }
  return sums;
}

/// Rows: for each step, what it waits for on its rank and elsewhere; then the ends of ranks; then the
/// classes.
class MakespanProgram {
 public:
  MakespanProgram(const MeanPipeline& pipeline, std::vector<double> sums, double unit_s)
      : pipeline_(pipeline), sums_(std::move(sums)), unit_s_(unit_s) {
    classes_ = sums_.size() / pipeline.features();
    first_part_ = static_cast<int>(1 + pipeline.steps().size());
    program_.add_column(1);
    for (std::size_t i = 0; i < pipeline.steps().size(); ++i) program_.add_column(0);
    for (std::size_t c = 0; c < classes_ * pipeline.microbatches(); ++c) program_.add_column(0);
    for (std::size_t i = 0; i < pipeline.steps().size(); ++i) add_step(i);
    for (int r = 0; r < pipeline.ranks(); ++r) {
      const std::int32_t last = pipeline.last_step(r);
      rank_row_.push_back(rows_);
      start(0);
      if (last >= 0) entry(1 + last, -1);
      finish(pipeline.tail_s(r));
    }
    for (std::size_t c = 0; c < classes_; ++c) {
      column_.clear();
      for (int j = 0; j < pipeline.microbatches(); ++j) column_.push_back(part(c, j));
      program_.add_row(column_, std::vector<double>(column_.size(), 1.0), 1, true);
    }
  }

  PathBound solve() const {
    const std::vector<double> duals =
        program_.duals(kMostIterations).value_or(std::vector<double>(rows_, 1.0));
    const auto dual = [&](int row) { return row < 0 ? 0.0 : std::max(duals[row], 0.0); };
    PathBound bound(pipeline_.microbatches(), pipeline_.features());
    std::vector<double> flow(pipeline_.steps().size(), 0.0);  // that leaves each step's end
    double total = 0;
    for (const int row : rank_row_) total += dual(row);
    for (int r = 0; r < pipeline_.ranks(); ++r) {
      const double part = total > 0 ? dual(rank_row_[r]) / total : 1.0 / pipeline_.ranks();
      bound.constant_s += part * pipeline_.tail_s(r);
      if (pipeline_.last_step(r) >= 0) flow[pipeline_.last_step(r)] += part;
    }
    for (std::size_t i = flow.size(); i-- > 0;) {
      if (flow[i] <= 0) continue;
      const MeanPipeline::Step& step = pipeline_.steps()[i];
      const double here = dual(rank_rows_[i]);
      const double there = dual(after_rows_[i]);
      double waiting = here + there > 0 ? there / (here + there) : 0.0;
      if (step.after < 0) waiting = 0;
      pipeline_.add(bound, step.duration, step.microbatch, flow[i]);
      if (step.same_rank >= 0) flow[step.same_rank] += (1 - waiting) * flow[i];
      if (step.after < 0 || waiting == 0) continue;
      pipeline_.add(bound, step.message, step.microbatch, waiting * flow[i]);
      flow[step.after] += waiting * flow[i];
    }
    return bound;
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
    for (std::size_t c = 0; c < classes_; ++c) {
      const double work = std::inner_product(weight.begin(), weight.end(), &sums_[c * weight.size()], 0.0);
      if (work != 0) entry(part(c, microbatch), -work / unit_s_);
    }
  }

  const MeanPipeline& pipeline_;
  std::vector<double> sums_;  // [class, feature]
  double unit_s_;
  std::size_t classes_;
  int first_part_;
  int rows_ = 0;
  std::vector<int> rank_rows_;   // per step
  std::vector<int> after_rows_;  // per step; -1: none
  std::vector<int> rank_row_;    // per rank: its end
  std::vector<int> column_;      // of the row that is being made
  std::vector<double> value_;
  LinearProgram program_;
};

}  // namespace

PathBound best_path_mix(const MeanPipeline& pipeline, const Features& items, std::size_t classes) {
  const std::vector<PathBound> ranks = pipeline.rank_bounds();
  double unit_s = 0;
  for (const PathBound& rank : ranks) unit_s = std::max(unit_s, rank.at(items));
  return MakespanProgram(pipeline, class_sums(ranks, items, classes), unit_s > 0 ? unit_s : 1.0).solve();
}

}  // namespace dflop
