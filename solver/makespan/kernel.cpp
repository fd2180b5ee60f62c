#include "solver/makespan/kernel.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "core/error.hpp"

namespace dflop {

/// A Builder unrolls a pipeline into nodes, sorted by how many nodes precede each.
class MakespanKernel::Builder {
 public:
  Builder(MakespanKernel& kernel, const LoadPipeline& pipeline)
      : kernel_(kernel), pipeline_(pipeline), last_(pipeline.shared.size() * kernel.width_, 0) {
    kernel_.times_.push_back({{}, -1});
    nodes_.push_back({});
    depth_.push_back(0);
  }

  void build() {
    for (const LoadStep& step : pipeline_.steps) {
      if (pipeline_.shared[step.rank] != 0) {
        add_shared(step);
      } else {
        add_replicated(step);
      }
    }
    sort();
    for (int r = 0; r < pipeline_.ranks(); ++r) {
      for (int d = 0; d < (pipeline_.shared[r] != 0 ? 1 : kernel_.width_); ++d) {
        kernel_.lasts_.push_back({renamed_[last(r, d)], 0, pipeline_.tail_s[r]});
      }
    }
  }

 private:
  std::int32_t& last(int rank, int d) { return last_[static_cast<std::size_t>(rank) * kernel_.width_ + d]; }

  std::int32_t end_of(std::int32_t step, int d) const {
    return step < 0 ? 0 : ends_[static_cast<std::size_t>(step) * kernel_.width_ + d];
  }

  void add_replicated(const LoadStep& step) {
    for (int d = 0; d < kernel_.width_; ++d) {
      const int bin = step.microbatch * pipeline_.dp + d;
      const std::int32_t message = step.after < 0 ? 0 : time(step.message, bin);
      last(step.rank, d) =
          add({last(step.rank, d), end_of(step.after, d), message, time(step.duration, bin), 0});
      ends_.push_back(last(step.rank, d));
    }
  }

  /// Joins the dp ranks that the step waits for, one after the other, and then adds its duration.
  void add_shared(const LoadStep& step) {
    const int bin = step.microbatch * pipeline_.dp;
    const std::int32_t duration = time(step.duration, bin);
    if (kernel_.width_ > 1 && duration != time(step.duration, bin + 1)) {
      throw Error(ErrorKind::internal, "a shared rank with a load of its own for each dp rank");
    }
    const auto message = [&](int d) { return step.after < 0 ? 0 : time(step.message, bin + d); };
    for (int d = 0; d < kernel_.width_; ++d) {
      const bool takes = d + 1 == kernel_.width_;
      if (!takes && end_of(step.after, d) == end_of(step.after, d + 1) && message(d) == message(d + 1))
        continue;
      last(step.rank, 0) =
          add({last(step.rank, 0), end_of(step.after, d), message(d), takes ? duration : 0, 0});
    }
    ends_.insert(ends_.end(), kernel_.width_, last(step.rank, 0));
  }

  std::int32_t add(const MakespanNode& node) {
    depth_.push_back(1 + std::max(depth_[node.previous], depth_[node.after]));
    nodes_.push_back(node);
    return static_cast<std::int32_t>(nodes_.size()) - 1;
  }

  std::int32_t time(const LoadTime& time, int bin) {
    const int column = time.scale == 0 ? -1 : kernel_.column(time.load, bin);
    const auto key = std::tuple(time.fixed_s, time.scale, column);
    const auto [place, fresh] = known_.try_emplace(key, static_cast<std::int32_t>(kernel_.times_.size()));
    if (fresh) kernel_.times_.push_back({time, column});
    return place->second;
  }

  void sort() {
    std::vector<std::int32_t> order(nodes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::int32_t i) { return depth_[i]; });
    renamed_.resize(nodes_.size());
    for (std::size_t i = 0; i < order.size(); ++i) renamed_[order[i]] = static_cast<std::int32_t>(i);
    for (const std::int32_t i : order) {
      MakespanNode node = nodes_[i];
      node.previous = renamed_[node.previous];
      node.after = renamed_[node.after];
      node.end = renamed_[i];
      kernel_.nodes_.push_back(node);
    }
  }

  MakespanKernel& kernel_;
  const LoadPipeline& pipeline_;
  std::vector<std::int32_t> last_;  // [rank, dp rank]: its last node so far
  std::vector<std::int32_t> ends_;  // [step, dp rank]: its node
  std::vector<MakespanNode> nodes_;
  std::vector<std::int32_t> depth_;
  std::vector<std::int32_t> renamed_;
  std::map<std::tuple<double, double, int>, std::int32_t> known_;
};

MakespanKernel::MakespanKernel(const LoadPipeline& pipeline)
    : dp_(pipeline.dp),
      loads_(static_cast<int>(pipeline.loads.size())),
      columns_of_(pipeline.loads.size() * pipeline.bins()) {
  const bool is_coupled = std::ranges::any_of(pipeline.shared, [](char shared) { return shared != 0; }) ||
                          std::ranges::any_of(pipeline.loads, &Load::of_microbatch);
  if (is_coupled) width_ = dp_;
  for (int l = 0; l < loads_; ++l) {
    const bool together = width_ == 1 || pipeline.loads[l].of_microbatch;
    for (int b = 0; b < pipeline.bins(); ++b)
      columns_of_[b * loads_ + l] = columns_ + (together ? b / dp_ : b);
    columns_ += together ? pipeline.microbatches : pipeline.bins();
  }
  Builder(*this, pipeline).build();

  std::vector<std::vector<std::int32_t>> times_of(columns_);
  for (std::size_t t = 0; t < times_.size(); ++t) {
    if (times_[t].column >= 0) times_of[times_[t].column].push_back(static_cast<std::int32_t>(t));
  }
  for (const auto& times : times_of) {
    column_times_.insert(column_times_.end(), times.begin(), times.end());
    column_ends_.push_back(static_cast<std::int32_t>(column_times_.size()));
  }
  place_ends();
}

/// Assigns places to ends: a new end takes the place of an end that is no longer read, so that all places
/// stay in the nearest cache.
void MakespanKernel::place_ends() {
  const std::size_t always = nodes_.size();
  std::vector<std::size_t> last_read(nodes_.size(), 0);
  for (std::size_t i = 1; i < nodes_.size(); ++i)
    last_read[nodes_[i].previous] = last_read[nodes_[i].after] = i;
  for (const Last& last : lasts_) last_read[last.node] = always;
  last_read[0] = always;

  std::vector<std::int32_t> place(nodes_.size(), 0);
  std::vector<std::int32_t> free;
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    const MakespanNode& node = nodes_[i];
    for (const std::int32_t read : {node.previous, node.after}) {
      if (last_read[read] != i) continue;
      free.push_back(place[read]);
      last_read[read] = always;  // both may be the same
    }
    if (free.empty()) free.push_back(places_++);
    place[i] = free.back();
    free.pop_back();
    lane_nodes_.push_back({place[node.previous], place[node.after], node.message, node.duration, place[i]});
  }
  for (Last& last : lasts_) last.place = place[last.node];
}

namespace {

/// A SmoothMax is a smoothed maximum and its derivative for the first value.
struct SmoothMax {
  double value;
  double slope;
};

/// Returns the smooth maximum. `inverse_s` is 1 / (2 smoothing_s), and 0 without smoothing.
SmoothMax smooth_max(double a, double b, double smoothing_s, double inverse_s) {
  const double near = std::max(0.0, smoothing_s - std::abs(a - b));
  const double smaller = near * inverse_s;
  return {std::max(a, b) + near * smaller / 2, a >= b ? 1.0 - smaller : smaller};
}

double inverse_of(double smoothing_s) {
  return smoothing_s > 0 ? 1 / (2 * smoothing_s) : 0.0;
}

}  // namespace

void MakespanKernel::evaluate(std::span<const double> values, double smoothing_s, CriticalPath& path) const {
  thread_local std::vector<double> times;
  thread_local std::vector<double> true_ends;
  thread_local std::vector<double> ends;
  thread_local std::vector<double> slopes;   // derivative of a node's end for the previous end on its rank
  thread_local std::vector<double> weights;  // derivative of the makespan for a node's end
  times.resize(times_.size());
  for (std::size_t t = 0; t < times.size(); ++t) times[t] = times_[t].at(values);
  true_ends.resize(nodes_.size());
  ends.resize(nodes_.size());
  slopes.resize(nodes_.size());
  true_ends[0] = ends[0] = 0;
  const double inverse_s = inverse_of(smoothing_s);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    const MakespanNode& node = nodes_[i];
    const double message = times[node.message];
    const SmoothMax begin =
        smooth_max(ends[node.previous], ends[node.after] + message, smoothing_s, inverse_s);
    slopes[i] = begin.slope;
    ends[i] = begin.value + times[node.duration];
    true_ends[i] = std::max(true_ends[node.previous], true_ends[node.after] + message) + times[node.duration];
  }
  path.makespan_s = 0;
  for (const Last& last : lasts_)
    path.makespan_s = std::max(path.makespan_s, true_ends[last.node] + last.tail_s);
  weights.assign(nodes_.size(), 0.0);
  path.smooth_s = weigh_lasts(ends, smoothing_s, weights);

  path.gradient.assign(columns_, 0.0);
  const auto add = [&](std::int32_t time, double weight) {
    if (times_[time].column >= 0) path.gradient[times_[time].column] += weight * times_[time].time.scale;
  };
  for (std::size_t i = nodes_.size() - 1; i > 0; --i) {
    if (weights[i] == 0) continue;
    const MakespanNode& node = nodes_[i];
    const double before = weights[i] * slopes[i];
    add(node.duration, weights[i]);
    add(node.message, weights[i] - before);
    weights[node.previous] += before;
    weights[node.after] += weights[i] - before;
  }
}

/// Computes the (smooth) maximum over all ranks, and its derivative for each rank's end.
double MakespanKernel::weigh_lasts(std::span<const double> ends, double smoothing_s,
                                   std::span<double> weights) const {
  double latest = 0;
  for (const Last& last : lasts_) {
    const SmoothMax both =
        smooth_max(latest, ends[last.node] + last.tail_s, smoothing_s, inverse_of(smoothing_s));
    for (const Last& before : lasts_) {
      if (&before == &last) break;
      weights[before.node] *= both.slope;
    }
    weights[last.node] = 1 - both.slope;
    latest = both.value;
  }
  return latest;
}

namespace {

DFLOP_VECTOR_CLONES void run(const MakespanNode* nodes, std::size_t count, const Lanes* times, Lanes* ends) {
  for (std::size_t i = 0; i < count; ++i) {
    const MakespanNode& node = nodes[i];
    auto begin = ends[node.after].value + times[node.message].value;
    const auto before = ends[node.previous].value;
    begin = before > begin ? before : begin;
    ends[node.end].value = begin + times[node.duration].value;
  }
}

DFLOP_VECTOR_CLONES void run_smooth(const MakespanNode* nodes, std::size_t count, const Lanes* times,
                                    float smoothing, Lanes* ends) {
  const float part = 1 / (4 * smoothing);
  for (std::size_t i = 0; i < count; ++i) {
    const MakespanNode& node = nodes[i];
    const auto arrival = ends[node.after].value + times[node.message].value;
    const auto before = ends[node.previous].value;
    const auto more = before > arrival ? before : arrival;
    const auto less = before > arrival ? arrival : before;
    auto near = smoothing - (more - less);
    near = near > 0 ? near : Lanes{}.value;
    ends[node.end].value = (more + near * near * part) + times[node.duration].value;
  }
}

}  // namespace

MakespanLanes::MakespanLanes(const MakespanKernel& kernel)
    : kernel_(&kernel), base_(kernel.times_.size()), times_(kernel.times_.size()), ends_(kernel.places_) {}

std::span<const std::int32_t> MakespanLanes::times_of(int column) const {
  const std::int32_t begin = column == 0 ? 0 : kernel_->column_ends_[column - 1];
  return std::span(kernel_->column_times_).subspan(begin, kernel_->column_ends_[column] - begin);
}

void MakespanLanes::set(std::span<const double> values) {
  changed_.clear();
  for (std::size_t t = 0; t < times_.size(); ++t) {
    base_[t] = static_cast<float>(kernel_->times_[t].at(values));
    times_[t].value = Lanes{}.value + base_[t];
  }
}

void MakespanLanes::set(int column, double value) {
  for (const std::int32_t t : times_of(column)) {
    const LoadTime& time = kernel_->times_[t].time;
    base_[t] = static_cast<float>(time.at(value));
    times_[t].value = Lanes{}.value + base_[t];
  }
}

void MakespanLanes::change(int lane, int column, double value) {
  for (const std::int32_t t : times_of(column)) {
    const LoadTime& time = kernel_->times_[t].time;
    times_[t].value[lane] = static_cast<float>(time.at(value));
    changed_.emplace_back(t, lane);
  }
}

void MakespanLanes::reset() {
  for (const auto& [t, lane] : changed_) times_[t].value[lane] = base_[t];
  changed_.clear();
}

Lanes MakespanLanes::evaluate(double smoothing_s) {
  const std::vector<MakespanNode>& nodes = kernel_->lane_nodes_;
  const auto smoothing = static_cast<float>(smoothing_s);
  if (smoothing > 0) {
    run_smooth(nodes.data(), nodes.size(), times_.data(), smoothing, ends_.data());
  } else {
    run(nodes.data(), nodes.size(), times_.data(), ends_.data());
  }
  Lanes longest;
  for (const MakespanKernel::Last& last : kernel_->lasts_) {
    const auto tail = static_cast<float>(last.tail_s);
    for (int z = 0; z < Lanes::kCount; ++z) {
      const float end = ends_[last.place].value[z] + tail;
      const float near = smoothing - std::abs(end - longest.value[z]);
      const float more = std::max(end, longest.value[z]);
      longest.value[z] = near > 0 ? more + near * near / (4 * smoothing) : more;
    }
  }
  return longest;
}

}  // namespace dflop
