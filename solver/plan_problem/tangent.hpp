// Affine lower envelopes of a cost model's durations.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// The counts of a Work: sequences, tokens and attention pairs of the encoder, then of the LLM.
inline constexpr std::size_t kWorkCounts = 6;
using WorkCounts = std::array<double, kWorkCounts>;

WorkCounts work_counts(const Work& work);

/// fixed_s + slope . counts, in seconds.
struct WorkTime {
  double fixed_s = 0;
  WorkCounts slope{};

  double at(const WorkCounts& counts) const;
};

/// A tangent plane of a duration that is convex in the counts that `work` has, and does not fall: nowhere
/// above it, for works that have the same counts above zero. It touches at or near `work`, where the function
/// is straight along every axis, as far as a difference reaches, and so differentiable; a plane through a
/// kink with the differences along each axis need not lie below the function. Zero if no such point is found,
/// as for a function that is curved everywhere.
WorkTime tangent(const std::function<Seconds(const Work&)>& duration, const Work& work);

/// The plane through `work` with mean differences: a guess, for any function.
WorkTime mean_plane(const std::function<Seconds(const Work&)>& duration, const Work& work);

}  // namespace dflop
