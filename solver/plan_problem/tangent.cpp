#include "solver/plan_problem/tangent.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace dflop {
namespace {

constexpr std::int64_t kStepPart = 16;  // a difference is over this part of a count
constexpr int kTries = 12;
constexpr double kNextTry = 1.09;
constexpr double kStraight = 1e-12;  // of a duration: differences that rounding makes
constexpr double kSlack = 1e-9;      // by which planes are lowered, for rounding of differences

using Counts = std::array<std::int64_t, kWorkCounts>;

Counts counts_of(const Work& work) {
  return {work.encoder.sequences, work.encoder.tokens, work.encoder.attention_pairs,
          work.llm.sequences,     work.llm.tokens,     work.llm.attention_pairs};
}

Work work_of(const Counts& counts) {
  return {{counts[0], counts[1], counts[2]}, {counts[3], counts[4], counts[5]}};
}

/// Differences to both sides along an axis, per count.
struct Slopes {
  double up = 0;
  double down = 0;
};

Slopes slopes(const std::function<Seconds(const Work&)>& duration, const Counts& at, std::size_t axis) {
  const std::int64_t step = at[axis] / kStepPart;
  Counts above = at;
  Counts below = at;
  above[axis] += step;
  below[axis] -= step;
  const double value = duration(work_of(at)).count();
  return {(duration(work_of(above)).count() - value) / static_cast<double>(step),
          (value - duration(work_of(below)).count()) / static_cast<double>(step)};
}

std::optional<WorkTime> straight_tangent(const std::function<Seconds(const Work&)>& duration,
                                         const Counts& at) {
  const double value = duration(work_of(at)).count();
  WorkTime plane{value * (1 - kSlack), {}};
  for (std::size_t k = 0; k < kWorkCounts; ++k) {
    if (at[k] == 0) continue;
    const auto count = static_cast<double>(at[k]);
    const auto [up, down] = slopes(duration, at, k);
    if (std::abs(up - down) * count > kStraight * kStepPart * value) return std::nullopt;
    plane.slope[k] = std::max(0.0, down) * (1 - kSlack);
    plane.fixed_s -= std::max(0.0, down) * count;
  }
  return plane;
}

/// The counts times `scale`, large enough for differences.
Counts scaled_counts(const Work& work, double scale) {
  Counts at = counts_of(work);
  for (std::int64_t& count : at) {
    if (count == 0) continue;
    count = std::max(kStepPart, static_cast<std::int64_t>(std::llround(scale * static_cast<double>(count))));
  }
  return at;
}

}  // namespace

WorkCounts work_counts(const Work& work) {
  const Counts counts = counts_of(work);
  WorkCounts out{};
  std::copy(counts.begin(), counts.end(), out.begin());
  return out;
}

double WorkTime::at(const WorkCounts& counts) const {
  return std::inner_product(counts.begin(), counts.end(), slope.begin(), fixed_s);
}

WorkTime tangent(const std::function<Seconds(const Work&)>& duration, const Work& work) {
  double scale = 1;
  for (int round = 0; round < kTries; ++round, scale *= kNextTry) {
    if (const auto plane = straight_tangent(duration, scaled_counts(work, scale))) return *plane;
  }
  return {};
}

WorkTime mean_plane(const std::function<Seconds(const Work&)>& duration, const Work& work) {
  const Counts at = scaled_counts(work, 1);
  WorkTime plane{duration(work_of(at)).count(), {}};
  for (std::size_t k = 0; k < kWorkCounts; ++k) {
    if (at[k] == 0) continue;
    const auto [up, down] = slopes(duration, at, k);
    plane.slope[k] = std::max(0.0, (up + down) / 2);
    plane.fixed_s -= plane.slope[k] * static_cast<double>(at[k]);
  }
  return plane;
}

}  // namespace dflop
