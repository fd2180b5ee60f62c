#include "costmodel/correction/correction.hpp"

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/program/encoder_share.hpp"
#include "core/refuse.hpp"
#include "core/support/median.hpp"
#include "costmodel/sample_costs.hpp"

namespace dflop {
namespace {

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;

constexpr double kMinNoise = 0.005;              // relative; a simulator without jitter has none
constexpr double kCorrectionMostDeviations = 8;  // no single iteration brings a quiet detector to its limit
constexpr double kNoiseMemory = 0.9;             // weight of the residuals' spread, an iteration later
constexpr double kNormalSpread = 1.4826;         // standard deviations per median absolute residual
constexpr double kMinLevel = 0.01;               // keeps durations positive
constexpr double kMinKnown = 10;  // information required before a change is detected, in priors

/// An Equation is a CorrectionRow as a linear equation in the coefficients of the fit's columns. It is
/// divided by the larger of unit and prediction, so that its error is relative.
struct Equation {
  std::vector<std::pair<Eigen::Index, double>> terms;
  double value = 0;
};

std::size_t column_of(CorrectionFit& fit, const ShapeBucket& bucket) {
  const auto found = std::find(fit.buckets.begin(), fit.buckets.end(), bucket);
  const auto column = static_cast<std::size_t>(found - fit.buckets.begin()) + 1;
  if (found == fit.buckets.end()) {
    fit.buckets.push_back(bucket);
    fit.information.resize(fit.information.size() + column + 1, 0.0);
    for (auto* sums : {&fit.moment, &fit.rise, &fit.fall}) sums->push_back(0.0);
  }
  return column;
}

Equation equation_of(CorrectionFit& fit, const CorrectionRow& row) {
  const double scale = std::max(row.predicted_s, row.unit_s);
  Equation equation{{{0, row.predicted_s / scale}}, (row.observed_s - row.predicted_s) / scale};
  for (const auto& [bucket, count] : row.samples) {
    equation.terms.emplace_back(column_of(fit, bucket), count * row.unit_s / scale);
  }
  return equation;
}

Matrix matrix_of(const CorrectionFit& fit) {
  const auto size = static_cast<Eigen::Index>(fit.columns());
  Matrix matrix(size, size);
  std::size_t next = 0;
  for (Eigen::Index i = 0; i < size; ++i) {
    for (Eigen::Index j = 0; j <= i; ++j) matrix(i, j) = matrix(j, i) = fit.information[next++];
  }
  return matrix;
}

void store(const Matrix& matrix, CorrectionFit& fit) {
  std::size_t next = 0;
  for (Eigen::Index i = 0; i < matrix.rows(); ++i) {
    for (Eigen::Index j = 0; j <= i; ++j) fit.information[next++] = matrix(i, j);
  }
}

/// Sums are weighted sums of one iteration's equations.
struct Sums {
  Matrix information;
  Vector moment;    ///< of values
  Vector surprise;  ///< of residuals
};

Sums sums_of(const std::vector<Equation>& equations, const std::vector<double>& residuals, Eigen::Index size,
             double largest_surprise) {
  Sums sums{Matrix::Zero(size, size), Vector::Zero(size), Vector::Zero(size)};
  for (std::size_t r = 0; r < equations.size(); ++r) {
    const double off = std::abs(residuals[r]);
    const double weight = off > largest_surprise ? largest_surprise / off : 1.0;
    for (const auto& [i, x] : equations[r].terms) {
      for (const auto& [j, y] : equations[r].terms) sums.information(i, j) += weight * x * y;
      sums.moment(i) += weight * x * equations[r].value;
      sums.surprise(i) += weight * x * residuals[r];
    }
  }
  return sums;
}

/// Returns how far each coefficient, estimated from this iteration alone, is from the known value. The unit
/// is the standard deviation of this difference, in which the shrinkage of the known value counts as another
/// error. Zero if too little is known to detect a change.
Vector deviations(const Sums& sums, const Matrix& known, const Vector& solution, double prior,
                  double variance) {
  const auto size = known.rows();
  const Matrix ridge = prior * Matrix::Identity(size, size);
  const Matrix now = (sums.information + ridge).inverse();
  const Vector before = (known + ridge).inverse().diagonal();
  const Vector change = now * sums.surprise;
  const Vector spread = variance * ((now * sums.information * now).diagonal() + before);
  const Vector kept_back = prior * before.cwiseProduct(solution);
  const Vector off = change.array() / (spread.array() + kept_back.array().square()).sqrt();
  return (known.diagonal().array() >= kMinKnown * prior).select(off, 0.0);
}

/// Removes a column and its contribution from the sums, keeping the others' solution unchanged.
void forget(Eigen::Index column, double value, Matrix& information, Vector& moment) {
  moment -= information.col(column) * value;
  information.row(column).setZero();
  information.col(column).setZero();
  moment(column) = 0;
}

/// Updates the detectors with this iteration's deviations and forgets the columns whose detector exceeds its
/// limit. Returns the number of forgotten columns.
std::int64_t forget_changed(CorrectionFit& fit, const Vector& off, const std::vector<double>& solution,
                            const CorrectionOptions& options, Matrix& information, Vector& moment) {
  std::int64_t changes = 0;
  for (Eigen::Index c = 0; c < off.size(); ++c) {
    const auto column = static_cast<std::size_t>(c);
    double& rise = fit.rise[column];
    double& fall = fit.fall[column];
    const double z = std::clamp(off(c), -kCorrectionMostDeviations, kCorrectionMostDeviations);
    rise = std::max(0.0, rise + z - options.slack);
    fall = std::max(0.0, fall - z - options.slack);
    if (std::max(rise, fall) <= options.limit) continue;
    forget(c, solution[column], information, moment);
    rise = fall = 0;
    ++changes;
  }
  return changes;
}

std::string name_of(const CorrectionFit& fit) {
  return fmt::format("{} {}", to_string(fit.kind), to_string(fit.op));
}

void check_sizes(const CorrectionFit& fit) {
  const std::size_t columns = fit.columns();
  const bool good = fit.information.size() == columns * (columns + 1) / 2 && fit.moment.size() == columns &&
                    fit.rise.size() == columns && fit.fall.size() == columns;
  if (good) return;
  refuse_input(
      "correction",
      "expected sums of {} columns of {}, found {} elements of information, {} of moment, {} of rise and "
      "{} of fall",
      columns, name_of(fit), fit.information.size(), fit.moment.size(), fit.rise.size(), fit.fall.size());
}

void check(const CorrectionRow& row) {
  const bool good = std::isfinite(row.observed_s) && row.observed_s >= 0 && std::isfinite(row.predicted_s) &&
                    row.predicted_s >= 0 && std::isfinite(row.unit_s) && row.unit_s > 0;
  if (good) return;
  refuse_input("correction",
               "expected observed and predicted seconds >= 0 and a unit > 0, found {:f}, {:f} and {:f}",
               row.observed_s, row.predicted_s, row.unit_s);
}

}  // namespace

Correction::Correction(CorrectionOptions options) : options_(options) {}

Correction::Correction(std::vector<CorrectionFit> fits, CorrectionOptions options)
    : options_(options), fits_(std::move(fits)) {
  for (std::size_t f = 0; f < fits_.size(); ++f) {
    check_sizes(fits_[f]);
    solve(f);
  }
}

const CorrectionFit* Correction::find(StageKind kind, Op op) const {
  for (const CorrectionFit& fit : fits_) {
    if (fit.kind == kind && fit.op == op) return &fit;
  }
  return nullptr;
}

CorrectionFit& Correction::find_or_add(StageKind kind, Op op) {
  if (const CorrectionFit* fit = find(kind, op)) return fits_[static_cast<std::size_t>(fit - fits_.data())];
  CorrectionFit fit;
  fit.kind = kind;
  fit.op = op;
  for (auto* sums : {&fit.information, &fit.moment, &fit.rise, &fit.fall}) sums->push_back(0.0);
  fits_.push_back(std::move(fit));
  solutions_.push_back({0.0});
  return fits_.back();
}

void Correction::learn(std::span<const CorrectionRow> rows) {
  std::map<std::pair<StageKind, Op>, std::vector<const CorrectionRow*>> of_fit;
  for (const CorrectionRow& row : rows) {
    check(row);
    of_fit[{row.kind, row.op}].push_back(&row);
  }
  for (const auto& [key, own] : of_fit) learn(find_or_add(key.first, key.second), own);
}

void Correction::learn(CorrectionFit& fit, std::span<const CorrectionRow* const> rows) {
  std::vector<Equation> equations;
  for (const CorrectionRow* row : rows) equations.push_back(equation_of(fit, *row));
  const auto index = static_cast<std::size_t>(&fit - fits_.data());
  std::vector<double>& solution = solutions_[index];
  solution.resize(fit.columns(), 0.0);
  std::vector<double> residuals;
  std::vector<double> sizes;
  for (const Equation& equation : equations) {
    double residual = equation.value;
    for (const auto& [column, x] : equation.terms) residual -= x * solution[column];
    residuals.push_back(residual);
    sizes.push_back(std::abs(residual));
  }
  const auto size = static_cast<Eigen::Index>(fit.columns());
  const Sums sums = sums_of(equations, residuals, size, options_.largest_surprise);
  Matrix information = matrix_of(fit);
  Vector moment = Eigen::Map<const Vector>(fit.moment.data(), size);

  if (fit.iterations > 0) {
    const double variance = std::max(fit.variance, kMinNoise * kMinNoise);
    const Vector off = deviations(sums, information, Eigen::Map<const Vector>(solution.data(), size),
                                  options_.prior, variance);
    changes_ += forget_changed(fit, off, solution, options_, information, moment);
  }
  store(options_.memory * information + sums.information, fit);
  Eigen::Map<Vector>(fit.moment.data(), size) = options_.memory * moment + sums.moment;
  solve(index);
  const double spread = kNormalSpread * median(std::move(sizes));
  const double memory = fit.iterations > 0 ? kNoiseMemory : 0.0;
  fit.variance = memory * fit.variance + (1 - memory) * spread * spread;
  ++fit.iterations;
}

void Correction::solve(std::size_t f) {
  const CorrectionFit& fit = fits_[f];
  const auto size = static_cast<Eigen::Index>(fit.columns());
  const Eigen::LDLT<Matrix> factors(matrix_of(fit) + options_.prior * Matrix::Identity(size, size));
  const Vector solution = factors.solve(Eigen::Map<const Vector>(fit.moment.data(), size));
  // Sums of squares are positive.
  if (!factors.isPositive() || !solution.allFinite()) {
    refuse_input("correction", "expected observations for the sums of {}, found none", name_of(fit));
  }
  solutions_.resize(fits_.size());
  solutions_[f].assign(solution.begin(), solution.end());
}

double Correction::level(StageKind kind, Op op) const {
  const CorrectionFit* fit = find(kind, op);
  if (fit == nullptr) return 1.0;
  return std::max(kMinLevel, 1.0 + solutions_[static_cast<std::size_t>(fit - fits_.data())][0]);
}

double Correction::penalty(StageKind kind, Op op, const ShapeBucket& bucket) const {
  const CorrectionFit* fit = find(kind, op);
  if (fit == nullptr) return 0;
  const auto found = std::find(fit->buckets.begin(), fit->buckets.end(), bucket);
  if (found == fit->buckets.end()) return 0;
  return solutions_[static_cast<std::size_t>(fit - fits_.data())]
                   [static_cast<std::size_t>(found - fit->buckets.begin() + 1)];
}

Work Correction::reference(StageKind kind, Op op) const {
  const CorrectionFit* fit = find(kind, op);
  return fit == nullptr ? Work{} : fit->reference;
}

// These functions turn a timeline into rows.

namespace {

int floor_log(double value, int parts) {
  return static_cast<int>(std::floor(parts * std::log2(value)));
}

/// A Place is one microbatch on one dp rank, or on all ranks of a separate encoder.
struct Place {
  StageKind kind;
  Op op;
  int microbatch;
  int dp_rank;  ///< -1: all

  auto operator<=>(const Place&) const = default;
};

struct Observed {
  double observed_s = 0;
  double predicted_s = 0;
  std::set<std::uint16_t> stages;
};

/// A Total sums up the works of one kind of stage and op.
struct Total {
  Work work;
  std::int64_t count = 0;
};

}  // namespace

StageKind kind_of(const Stage& stage) {
  if (stage.encoder_layers > 0) return stage.llm_layers > 0 ? StageKind::both : StageKind::encoder;
  return StageKind::llm;
}

ShapeBucket bucket_of(bool encoder, const Workload& work) {
  const auto tokens = static_cast<double>(work.all_tokens());
  const double length = static_cast<double>(work.attention_pairs + work.second.attention_pairs) / tokens;
  return {encoder, floor_log(tokens, 16), length > 0 ? floor_log(length, 2) : 0};
}

std::vector<ShapeBucket> buckets_of(StageKind kind, const Sample& sample) {
  std::vector<ShapeBucket> buckets;
  const Workload encoder = kind == StageKind::llm ? Workload{} : sample.encoder();
  const Workload llm = kind == StageKind::encoder ? Workload{} : sample.llm();
  if (!encoder.empty()) buckets.push_back(bucket_of(true, encoder));
  if (!llm.empty()) buckets.push_back(bucket_of(false, llm));
  return buckets;
}

void Correction::learn(const Timeline& timeline, const CostModel& base, const Plan& plan,
                       std::span<const Sample> batch, const Assignment& assignment) {
  std::map<std::int32_t, int> dp_ranks;  // by first rank
  for (const GroupUsage& group : timeline.groups) dp_ranks[group.first_rank] = group.dp_rank;
  std::map<Place, Observed> places;
  std::map<std::pair<StageKind, Op>, Total> totals;
  for (const Span& span : timeline.spans) {
    if (!is_compute(span.op) || span.work < 0 || timeline.stage_shapes.empty()) continue;
    const auto dp_rank = dp_ranks.find(span.rank);
    if (span.microbatch < 0 || span.microbatch >= plan.microbatches || dp_rank == dp_ranks.end()) {
      refuse_input("correction", "expected a timeline of the plan, found microbatch {} on rank {}",
                   span.microbatch, span.rank);
    }
    const Stage& stage = timeline.stage_shapes[span.stage];
    const Work& work = timeline.works[span.work];
    const Seconds predicted = base.compute(span.op, stage, work);
    if (predicted.count() <= 0) continue;
    const StageKind kind = kind_of(stage);
    const bool shared = kind == StageKind::encoder && has_encoder_ranks(plan.layout);
    Observed& place = places[{kind, span.op, span.microbatch, shared ? -1 : dp_rank->second}];
    place.observed_s += Seconds(span.duration).count();
    place.predicted_s += predicted.count();
    place.stages.insert(span.stage);
    Total& total = totals[{kind, span.op}];
    total.work.encoder += work.encoder;
    total.work.llm += work.llm;
    ++total.count;
  }
  for (const auto& [key, total] : totals) {
    CorrectionFit& fit = find_or_add(key.first, key.second);
    if (fit.iterations > 0) continue;
    fit.reference = {mean_part(total.work.encoder, total.count), mean_part(total.work.llm, total.count)};
  }

  const SamplesOfBins bins = samples_of_bins(plan, assignment);
  std::vector<CorrectionRow> rows;
  for (const auto& [place, observed] : places) {
    CorrectionRow row{place.kind, place.op, observed.observed_s, observed.predicted_s, 0, {}};
    const Work reference = Correction::reference(place.kind, place.op);
    for (const std::uint16_t stage : observed.stages) {
      row.unit_s += base.compute(place.op, timeline.stage_shapes[stage], reference).count();
    }
    std::map<ShapeBucket, double> counts;
    for (int d = 0; d < plan.llm.dp; ++d) {
      if (place.dp_rank >= 0 && place.dp_rank != d) continue;
      for (const std::int32_t i : bins[place.microbatch * plan.llm.dp + d]) {
        for (const ShapeBucket& bucket : buckets_of(place.kind, batch[i])) counts[bucket] += 1;
      }
    }
    row.samples.assign(counts.begin(), counts.end());
    rows.push_back(std::move(row));
  }
  learn(rows);
}

}  // namespace dflop
