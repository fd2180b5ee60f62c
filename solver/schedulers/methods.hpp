// Methods put items into bins, and are found by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/scheduler.hpp"
#include "solver/assignment_problem.hpp"

namespace dflop {

/// A Budget says what the work of a method is counted in where no time limit ends it.
enum class Budget : std::uint8_t {
  none,   ///< it does what it does
  steps,  ///< of a search
  nodes,  ///< of branch and bound
};

/// A Method is one way to put items into bins: a row of the table in solver/schedulers/methods.cpp.
struct Method {
  std::string_view name;
  Objective objective;  ///< what it makes small where nothing else is asked for
  Budget budget;
  bool minimises;  ///< it looks at costs; its own BinOrder is then alike, else solver
  /// Finds bins of which the largest load is small; without any where none were found. It may break caps:
  /// then an assignment that obeys them is searched for, and reported as fallback.
  AssignmentSolution (*find_bins)(const BinProblem& problem, const SolveLimits& limits);
  /// Finds the bins of a pipeline's makespan, caps obeyed. Null: it balances bins as it does for its own
  /// objective, and the makespan of what came out is reported.
  AssignmentSolution (*find_makespan)(const AssignmentProblem& problem, const SolveLimits& limits) = nullptr;
  /// Its name says what it makes small, so that the objective that a plan was made for does not change it.
  bool keeps_objective = false;

  /// Puts every item in exactly one bin, no bin empty unless allowed, all caps obeyed; or has status
  /// infeasible and says why. The bound is that of problem.bounds where there is one. Bins are in the order
  /// of limits.bin_order or the method's own, those of find_makespan as it found them. Safe to call from
  /// several threads at once.
  /// @throws Error (input) if there are fewer items than bins and no bin may be empty.
  AssignmentSolution solve(const AssignmentProblem& problem, const SolveLimits& limits) const;
};

/// Returns all methods in the order in which they are to be listed: the built-in ones, then the registered
/// ones.
std::span<const Method> methods();

/// Returns the method of a name.
/// @throws Error (usage) for a name that no method has.
const Method& find_method(std::string_view name);

/// Adds a method of one's own to the table, before any other thread uses it, as at the start of main().
/// Lists, help and errors of commands then have the method as they have the built-in ones. Its name must stay
/// valid, as that of a literal does. experiments/examples/own_scheduler.cpp is an example.
/// @throws Error (usage) for a name that a method has, a method without a name or find_bins, and more than 64
/// methods of one's own.
void register_method(const Method& method);

/// Takes a registered method out of the table while no other thread uses it. No scheduler of the method, nor
/// of one registered after it, may be left.
/// @throws Error (usage) for a name that no registered method has.
void unregister_method(std::string_view name);

}  // namespace dflop
