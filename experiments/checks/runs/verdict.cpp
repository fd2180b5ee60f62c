#include "experiments/checks/runs/verdict.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace dflop {
namespace {

constexpr double kTrimmed = 0.2;  // fraction of the values cut at each end
constexpr double kMaxCorrelation = 0.9;
constexpr double kMaxBlocks = 1e5;

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the correlation of neighboring values, 0 if it is negative.
double neighbor_correlation(std::span<const double> values) {
  const double mean = mean_of(values);
  double own = 0;
  double shifted = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    own += (values[i] - mean) * (values[i] - mean);
    if (i > 0) shifted += (values[i] - mean) * (values[i - 1] - mean);
  }
  return own > 0 ? std::clamp(shifted / own, 0.0, kMaxCorrelation) : 0;
}

Interval as_fractions(const Interval& of) {
  return {std::expm1(of.mean), std::expm1(of.low), std::expm1(of.high)};
}

/// Returns how many more blocks would make the interval narrow enough to lie on one side of the tolerance.
/// The width shrinks with the square root of the number of blocks.
std::optional<std::int64_t> more_blocks(const Interval& error, double tolerance, std::size_t blocks) {
  const double half = (error.high - error.low) / 2;
  const double room = std::abs(tolerance - std::abs(error.mean));
  const auto now = static_cast<double>(blocks);
  const double needed = room > 0 ? now * (half / room) * (half / room) : kMaxBlocks;
  if (needed >= kMaxBlocks) return std::nullopt;
  return std::max<std::int64_t>(1, std::llround(std::ceil(needed - now)));
}

}  // namespace

Interval trimmed_interval(std::span<const double> values, double level) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t count = sorted.size();
  const auto cut = static_cast<std::size_t>(kTrimmed * static_cast<double>(count));
  const double mean = mean_of(std::span(sorted).subspan(cut, count - 2 * cut));
  std::vector<double> kept(values.begin(), values.end());  // winsorized, in order of time
  for (double& value : kept) value = std::clamp(value, sorted[cut], sorted[count - 1 - cut]);
  const double center = mean_of(kept);
  double squares = 0;
  for (const double value : kept) squares += (value - center) * (value - center);
  const auto n = static_cast<double>(count);
  const auto left = static_cast<double>(count - 2 * cut);
  const double correlation = neighbor_correlation(kept);
  const double deviation =
      std::sqrt(squares / (n - 1) * (1 + correlation) / (1 - correlation)) / (left / n * std::sqrt(n));
  const boost::math::students_t student(left - 1);
  const double half = boost::math::quantile(student, (1 + level) / 2) * deviation;
  return {mean, mean - half, mean + half};
}

Judgment judge(std::span<const double> measured, std::span<const double> predicted,
               const JudgeOptions& options) {
  std::vector<double> errors(measured.begin(), measured.end());
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] -= predicted[i];
  const double difference = trimmed_interval(predicted, options.level).mean;
  const Interval error = trimmed_interval(errors, options.level);
  const double tolerance = std::max(std::log1p(options.tolerance), options.share * std::abs(difference));
  Judgment result;
  result.predicted = std::expm1(difference);
  result.measured = as_fractions(trimmed_interval(measured, options.level));
  result.error = as_fractions(error);
  result.tolerance = std::expm1(tolerance);
  if (-tolerance <= error.low && error.high <= tolerance) {
    result.verdict = LiveVerdict::confirmed;
  } else if (error.low > tolerance || error.high < -tolerance) {
    result.verdict = LiveVerdict::refuted;
  } else {
    result.more_blocks = more_blocks(error, tolerance, measured.size());
  }
  return result;
}

std::vector<double> paired_blocks(std::span<const double> first, std::span<const double> second) {
  std::vector<double> blocks;
  for (std::size_t i = 0; i + 1 < first.size(); i += 2) {
    blocks.push_back((std::log(second[i] / first[i]) + std::log(second[i + 1] / first[i + 1])) / 2);
  }
  return blocks;
}

}  // namespace dflop
