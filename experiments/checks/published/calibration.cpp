#include "experiments/checks/published/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/refuse.hpp"
#include "core/support/parallel.hpp"
#include "core/support/random.hpp"
#include "costmodel/least_squares.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr double kNoise = 0.05;       // log errors beyond this value count less
constexpr double kPriorFactor = 3;    // changing a parameter by this factor
constexpr double kPriorShare = 0.15;  // costs as much as errors of kNoise in this fraction, squared, of the
                                      // rows
constexpr double kSmallMove = 0.99;

// A parameter that is zero in the cluster has no logarithm. If rows depend on such a time, its fit starts at
// this value. The launch time is a lower bound on passes, so a start value below all passes would have no
// slope.
constexpr double kFirstTime = 1e-3;

// Rows determine a parameter if resetting it to the cluster's own value costs more than this multiple of the
// cost of the rows' noise: two standard errors, squared. Rows from simulations have no noise, so errors up to
// kNoError do not count.
constexpr double kDecided = 4;
constexpr double kNoError = 1e-3;
constexpr int kStepsOfTrial = 8;  // few, because trials start at the optimum of the remaining parameters

double every_card(const ClusterSpec& cluster) {
  return cluster.gpus_per_node * cluster.inter_node.bandwidth_bytes_per_s;
}

/// Bounds are the min and max of a parameter.
struct Bounds {
  double lower;
  double upper;
};
constexpr Bounds kEfficiency{0.2, 1};
constexpr Bounds kHalfPoint{1, 1000};
constexpr Bounds kTime{1e-7, 1e-2};

/// Makes the parameter for a number, or a time, in a part of the cluster.
template <typename Part>
FitParameter field(const char* key, Part ClusterSpec::*part, double Part::*number, Bounds bounds) {
  return {key, [=](const ClusterSpec& c) { return c.*part.*number; },
          [=](ClusterSpec& c, double value) { c.*part.*number = value; }, bounds.lower, bounds.upper};
}

template <typename Part>
FitParameter field(const char* key, Part ClusterSpec::*part, Seconds Part::*time) {
  return {key, [=](const ClusterSpec& c) { return (c.*part.*time).count(); },
          [=](ClusterSpec& c, double value) { c.*part.*time = Seconds(value); }, kTime.lower, kTime.upper};
}

/// A RowIndex refers to a row that a mask selects.
struct RowIndex {
  std::size_t set;
  std::size_t row;
  double weight;          ///< square root of the row's share of its set
  double correction = 1;  ///< factor from the estimate to the simulation
};

std::vector<RowIndex> masked_rows(const std::vector<PreparedSet>& sets, const RowMask& mask) {
  std::vector<RowIndex> rows;
  std::vector<double> counts;
  for (const std::vector<bool>& flags : mask) {
    counts.push_back(static_cast<double>(std::count(flags.begin(), flags.end(), true)));
  }
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    for (std::size_t r = 0; r < mask[s].size(); ++r) {
      const auto parts = static_cast<double>(sets.size());
      if (mask[s][r]) rows.push_back({s, r, std::sqrt(total / parts / counts[s])});
    }
  }
  return rows;
}

/// Returns the time of a row as fits compute it: a simulation if its microbatches differ, else an estimate.
Seconds approximate(const PreparedSet& set, std::size_t row, const ClusterSpec& cluster) {
  return set.is_recording() ? predict(set.runs[row], set.programs[row], cluster).iteration
                            : estimate(set.runs[row], set.skeletons[row], cluster);
}

/// Returns log(predicted / measured) for each row.
std::vector<double> log_errors(const std::vector<PreparedSet>& sets, const std::vector<RowIndex>& rows,
                               const ClusterSpec& cluster) {
  std::vector<double> errors(rows.size());
  parallel_for(rows.size(), [&](std::size_t i) {
    const PreparedSet& set = sets[rows[i].set];
    const std::size_t r = rows[i].row;
    const Seconds predicted = rows[i].correction * approximate(set, r, cluster);
    errors[i] = rows[i].weight * std::log(predicted / set.set.rows[r].iteration);
  });
  return errors;
}

/// Corrects the rows' estimates to equal simulations at `cluster`. They then nearly equal simulations at
/// similar clusters.
void correct_estimates(const std::vector<PreparedSet>& sets, const ClusterSpec& cluster,
                       std::vector<RowIndex>& rows) {
  parallel_for(rows.size(), [&](std::size_t i) {
    const PreparedSet& set = sets[rows[i].set];
    const std::size_t r = rows[i].row;
    if (set.is_recording()) return;
    rows[i].correction =
        predict(set.runs[r], set.programs[r], cluster).iteration / approximate(set, r, cluster);
  });
}

double first_value(const FitParameter& parameter, const ClusterSpec& cluster) {
  const double own = parameter.get(cluster);
  return std::clamp(own > 0 ? own : kFirstTime, parameter.lower, parameter.upper);
}

/// Returns the parameters that change the prediction of at least one row at the start of the fit. The others
/// keep their values.
std::vector<FitParameter> parameters_that_matter(const std::vector<PreparedSet>& sets,
                                                 const std::vector<RowIndex>& rows,
                                                 const ClusterSpec& cluster, const ClusterNotes& notes) {
  std::vector<FitParameter> matter;
  const std::vector<double> base = log_errors(sets, rows, cluster);
  for (const FitParameter& parameter : fit_parameters(cluster, notes)) {
    ClusterSpec moved = cluster;
    parameter.set(moved, kSmallMove * first_value(parameter, cluster));
    if (log_errors(sets, rows, moved) != base) matter.push_back(parameter);
  }
  return matter;
}

/// A Fitted is a cluster in which only the parameters `open` were fitted, and the cost of the rows' errors.
struct Fitted {
  std::vector<FitParameter> open;
  ClusterSpec cluster;
  double cost = 0;
};

/// A RowFit fits parameters of a cluster to rows.
class RowFit {
 public:
  RowFit(const std::vector<PreparedSet>& sets, const RowMask& mask, const ClusterSpec& cluster,
         const ClusterNotes& notes)
      : sets_(sets), rows_(masked_rows(sets, mask)), own_(cluster), notes_(notes) {}

  ClusterSpec run() {
    Fitted best = first();
    correct_estimates(sets_, best.cluster, rows_);
    return without_undecided(fitted(best.open, best.cluster)).cluster;
  }

 private:
  double cost(const ClusterSpec& cluster) const {
    return robust_cost(log_errors(sets_, rows_, cluster), kNoise);
  }

  /// Fits `open`, starting from the values in `from`. If the cluster has its own value for a parameter, a
  /// weak pull toward it decides between solutions that fit the rows equally well.
  Fitted fitted(const std::vector<FitParameter>& open, const ClusterSpec& from, int most_steps = 200) const {
    if (open.empty()) return {open, own_, cost(own_)};
    const auto with = [&](const std::vector<double>& logs) {
      ClusterSpec changed = own_;
      for (std::size_t i = 0; i < open.size(); ++i) open[i].set(changed, std::exp(logs[i]));
      return changed;
    };
    LeastSquares problem;
    problem.most_steps = most_steps;
    for (const FitParameter& parameter : open) {
      problem.lower.push_back(std::log(parameter.lower));
      problem.upper.push_back(std::log(parameter.upper));
      problem.start.push_back(
          std::clamp(std::log(first_value(parameter, from)), problem.lower.back(), problem.upper.back()));
    }
    const double prior = kPriorShare * kNoise * std::sqrt(static_cast<double>(rows_.size()));
    problem.residuals = [&](const std::vector<double>& logs) {
      std::vector<double> residuals = log_errors(sets_, rows_, with(logs));
      for (std::size_t i = 0; i < logs.size(); ++i) {
        if (open[i].get(own_) <= 0) continue;
        residuals.push_back(prior * (logs[i] - std::log(first_value(open[i], own_))) /
                            std::log(kPriorFactor));
      }
      return residuals;
    };
    problem.robust_scale = kNoise;
    const ClusterSpec cluster = with(minimize(problem).point);
    return {open, cluster, cost(cluster)};
  }

  /// Returns whether the rows prefer `more` to `less`, which has fewer open parameters.
  bool decide(const Fitted& more, const Fitted& less) const {
    const auto rows = static_cast<double>(rows_.size());
    const double noise = 2 * more.cost / std::max(1.0, rows - static_cast<double>(more.open.size()));
    return 2 * (less.cost - more.cost) > std::max(kDecided * noise, rows * kNoError * kNoError);
  }

  /// Fits all parameters that matter. Parameters that are zero in the cluster are fitted only if that is
  /// better, because such a fit starts away from the cluster's values.
  Fitted first() const {
    const std::vector<FitParameter> all = parameters_that_matter(sets_, rows_, own_, notes_);
    std::vector<FitParameter> valued;
    std::copy_if(all.begin(), all.end(), std::back_inserter(valued),
                 [&](const FitParameter& parameter) { return parameter.get(own_) > 0; });
    Fitted best = fitted(valued, own_);
    if (valued.size() == all.size()) return best;
    Fitted other = fitted(all, own_);
    return decide(other, best) ? other : best;
  }

  /// Resets every parameter that the rows do not determine to the cluster's own value, beginning with those
  /// that matter least, and fits the others again.
  Fitted without_undecided(Fitted best) const {
    std::vector<std::pair<double, std::string>> order;
    for (const FitParameter& parameter : best.open) {
      ClusterSpec moved = best.cluster;
      parameter.set(moved, parameter.get(own_));
      order.emplace_back(cost(moved), parameter.key);
    }
    std::stable_sort(order.begin(), order.end());
    for (const auto& [rise, key] : order) {
      std::vector<FitParameter> fewer = best.open;
      std::erase_if(fewer, [&key = key](const FitParameter& parameter) { return parameter.key == key; });
      Fitted less = fitted(fewer, best.cluster, kStepsOfTrial);
      if (!decide(best, less)) best = std::move(less);
    }
    return best;
  }

  const std::vector<PreparedSet>& sets_;
  std::vector<RowIndex> rows_;
  const ClusterSpec& own_;
  const ClusterNotes& notes_;
};

/// Checks the program of a recording.
/// @throws Error (input) if the program is not from a training of the model, or lacks the shapes to check
/// this.
void require_of_model(const Program& program, const ModelSpec& model, const std::string& where) {
  int layers = 0;
  for (const Stage& stage : program.stages) layers += stage.llm_layers;
  const bool has_works = std::any_of(program.works.begin(), program.works.end(),
                                     [](const Work& work) { return !work.llm.empty(); });
  if (layers == 0 || !has_works) {
    refuse_input(where,
                 "expected the shapes of stages and the work of instructions, as in timelines of "
                 "'simulate' and 'train', found none");
  }
  if (layers == model.llm.layers) return;
  refuse_input(where, "expected the {} LLM layers of '{}', found {}", model.llm.layers, model.name, layers);
}

}  // namespace

std::vector<FitParameter> fit_parameters(const ClusterSpec& cluster, const ClusterNotes& notes) {
  using C = ClusterSpec;
  using S = SoftwareSpec;
  // Files with bandwidths above the line rate are rejected, and the exponential of a bound's logarithm may
  // slightly exceed it.
  const auto around = [](const Link& link, const std::optional<double>& line_rate) {
    const double most = 1.5 * link.bandwidth_bytes_per_s;
    return Bounds{link.bandwidth_bytes_per_s / 4, std::min(most, (1 - 1e-9) * line_rate.value_or(most))};
  };
  const Bounds inside = around(cluster.intra_node, notes.intra_node_line_rate_bytes_per_s);
  const Bounds between = around(cluster.inter_node, notes.inter_node_line_rate_bytes_per_s);
  return {
      field("software.gemm_efficiency", &C::software, &S::gemm_efficiency, kEfficiency),
      field("software.gemm_half_tokens", &C::software, &S::gemm_half_tokens, kHalfPoint),
      field("software.gemm_half_width", &C::software, &S::gemm_half_width, kHalfPoint),
      field("software.attention_forward_efficiency", &C::software, &S::attention_forward_efficiency,
            kEfficiency),
      field("software.attention_backward_efficiency", &C::software, &S::attention_backward_efficiency,
            kEfficiency),
      field("software.memory_efficiency", &C::software, &S::memory_efficiency, kEfficiency),
      field("software.kernel_overhead_s", &C::software, &S::kernel_overhead),
      field("software.layer_launch_s", &C::software, &S::layer_launch),
      field("intra_node.latency_s", &C::intra_node, &Link::latency),
      field("intra_node.bandwidth_bytes_per_s", &C::intra_node, &Link::bandwidth_bytes_per_s, inside),
      field("inter_node.latency_s", &C::inter_node, &Link::latency),
      field("inter_node.bandwidth_bytes_per_s", &C::inter_node, &Link::bandwidth_bytes_per_s, between),
      {"software.message_overhead_s", [](const C& c) { return c.software.message_overhead.count(); },
       [](C& c, double value) { c.software.message_overhead = Seconds(value); }, kTime.lower, kTime.upper},
      {"software.node_ring_bandwidth_bytes_per_s",
       [](const C& c) {
         return c.software.node_ring_bandwidth_bytes_per_s > 0 ? c.software.node_ring_bandwidth_bytes_per_s
                                                               : every_card(c);
       },
       [](C& c, double value) { c.software.node_ring_bandwidth_bytes_per_s = value; },
       every_card(cluster) / 20, every_card(cluster)},
  };
}

PreparedSet prepare(TruthSet set) {
  PreparedSet prepared{std::move(set), {}, {}, {}};
  for (const TruthRow& row : prepared.set.rows) {
    prepared.runs.push_back(truth_case(prepared.set.kind, row));
    prepared.programs.push_back(truth_program(prepared.runs.back()));
    prepared.skeletons.push_back(skeleton(prepared.programs.back()));
  }
  return prepared;
}

PreparedSet prepare_recording(const std::string& path, const ModelSpec& model) {
  PreparedSet prepared;
  prepared.set.file = path;
  const TimelineFile recording = parse_timelines(read_text_file(path), path);
  for (std::size_t i = 0; i < recording.iterations.size(); ++i) {
    const Timeline& timeline = recording.iterations[i];
    TruthRow row;
    row.row = static_cast<std::int64_t>(i);
    row.iteration = Seconds(timeline.makespan);
    row.peak_memory_max_rank = peak_memory(timeline);
    prepared.set.rows.push_back(row);
    prepared.programs.push_back(recorded_program(timeline, path, static_cast<int>(i)).program);
    require_of_model(prepared.programs.back(), model, fmt::format("{}: iterations[{}]", path, i));
    TruthCase run;
    run.model = model;
    prepared.runs.push_back(run);
  }
  return prepared;
}

std::vector<Prediction> predict(const PreparedSet& set, const ClusterSpec& cluster) {
  std::vector<Prediction> predictions(set.runs.size());
  parallel_for(predictions.size(),
               [&](std::size_t i) { predictions[i] = predict(set.runs[i], set.programs[i], cluster); });
  return predictions;
}

ClusterSpec fit(const std::vector<PreparedSet>& sets, const RowMask& mask, const ClusterSpec& cluster,
                const ClusterNotes& notes) {
  return RowFit(sets, mask, cluster, notes).run();
}

HeldOut cross_validate(const std::vector<PreparedSet>& sets, const std::vector<std::vector<int>>& fold,
                       const ClusterSpec& cluster, const ClusterNotes& notes,
                       const std::function<void(int, int)>& progress) {
  int parts = 0;
  HeldOut held;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    for (const int part : fold[s]) parts = std::max(parts, part + 1);
    held.errors.emplace_back(fold[s].size());
  }
  for (int part = 0; part < parts; ++part) {
    progress(part, parts);
    RowMask mask;
    for (const std::vector<int>& numbers : fold) {
      mask.emplace_back();
      for (const int number : numbers) mask.back().push_back(number != part);
    }
    const ClusterSpec fitted = fit(sets, mask, cluster, notes);
    for (std::size_t s = 0; s < sets.size(); ++s) {
      const std::vector<double> errors = time_errors(sets[s].set, predict(sets[s], fitted));
      for (std::size_t r = 0; r < errors.size(); ++r) {
        if (!mask[s][r]) held.errors[s][r] = errors[r];
      }
    }
  }
  return held;
}

std::vector<std::vector<int>> random_folds(const std::vector<PreparedSet>& sets, int folds,
                                           std::uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<int>> result;
  for (const PreparedSet& set : sets) {
    std::vector<int> numbers(set.runs.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i) % folds;
    random.shuffle(std::span(numbers));
    result.push_back(std::move(numbers));
  }
  return result;
}

std::vector<std::vector<int>> family_folds(const std::vector<PreparedSet>& sets) {
  std::map<int, int> part_of;  // from the hidden width
  std::vector<std::vector<int>> result;
  for (const PreparedSet& set : sets) {
    result.emplace_back();
    for (const TruthCase& run : set.runs) {
      const auto part = part_of.try_emplace(run.model.llm.hidden, static_cast<int>(part_of.size()));
      result.back().push_back(part.first->second);
    }
  }
  return result;
}

}  // namespace dflop
