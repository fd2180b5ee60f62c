// A Solution says how good the answer of a search is, and how a bound proves this.
#pragma once

#include <cstdint>
#include <string>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// A BoundKind says how a bound was proven.
enum class BoundKind : std::uint8_t {
  none,
  simple,           ///< sums, largest items or counts; for the makespan: the work of each stage
  linear_program,   ///< a linear program for the pipeline's makespan with fractional loads
  integer_program,  ///< branch and bound
};

/// A ScheduleStatus says how a search reached its answer.
enum class ScheduleStatus : std::uint8_t {
  heuristic,   ///< a solution without proof; a search may end with it within 0.1 % of its bound
  optimal,     ///< proven
  node_limit,  ///< best found when the node or step budget ran out
  time_limit,  ///< best found when the time ran out
  fallback,    ///< a heuristic's solution, because the requested method declined or failed
  infeasible,  ///< no assignment obeys the caps, or none was found; Solution::reason says which
};

template <>
inline constexpr NameTable<BoundKind, 4> kNames<BoundKind> = {
    {{BoundKind::none, "none"},
     {BoundKind::simple, "simple"},
     {BoundKind::linear_program, "linear_program"},
     {BoundKind::integer_program, "integer_program"}}};

template <>
inline constexpr NameTable<ScheduleStatus, 6> kNames<ScheduleStatus> = {
    {{ScheduleStatus::heuristic, "heuristic"},
     {ScheduleStatus::optimal, "optimal"},
     {ScheduleStatus::node_limit, "node_limit"},
     {ScheduleStatus::time_limit, "time_limit"},
     {ScheduleStatus::fallback, "fallback"},
     {ScheduleStatus::infeasible, "infeasible"}}};

/// Returns whether a value equals a lower bound within rounding, so that the value is proven optimal.
constexpr bool meets_bound(double value, double bound) {
  return value <= bound * (1.0 + 1e-9);
}

/// A Solution holds the value of a search's answer and the bound that rates it. Types that hold such an
/// answer derive from it.
struct Solution {
  Seconds value{0};  ///< the objective's value
  Seconds bound{0};  ///< no answer has a smaller value
  BoundKind bound_kind = BoundKind::simple;
  ScheduleStatus status = ScheduleStatus::heuristic;
  std::string reason = {};  ///< why it is infeasible or a fallback

  bool feasible() const { return status != ScheduleStatus::infeasible; }
  /// Returns whether the bound proves the value optimal.
  bool met() const { return meets_bound(value.count(), bound.count()); }
  /// Returns (value - bound) / bound, the proven gap; zero if there is no bound.
  double gap() const { return bound.count() > 0 ? (value - bound) / bound : 0.0; }
};

}  // namespace dflop
