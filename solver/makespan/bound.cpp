#include "solver/makespan/bound.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace dflop {

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
