// Methods put items into bins. This header finds them by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/scheduler.hpp"
#include "solver/assignment_problem.hpp"

namespace dflop {

/// A Budget is the unit in which a method's work is limited if there is no time limit.
enum class Budget : std::uint8_t {
  none,   ///< its work cannot be limited
  steps,  ///< steps of a search
  nodes,  ///< nodes of branch and bound
};

/// A Method is one way to put items into bins: a row of the table in solver/schedulers/methods.cpp.
struct Method {
  std::string_view name;
  Objective objective;  ///< default objective of the method
  Budget budget;
  /// If true, the method looks at costs, and its default BinOrder is `alike`; otherwise `solver`.
  bool minimizes;
  /// Finds bins with a small largest load; empty if none were found. The result may break caps: then solve()
  /// searches for an assignment that obeys them, and reports it as fallback.
  AssignmentSolution (*find_bins)(const BinProblem& problem, const SolveLimits& limits);
  /// Finds bins with a small makespan that obey the caps. If null, find_bins() is used for makespans, too:
  /// solve() reports the makespan of its result.
  AssignmentSolution (*find_makespan)(const AssignmentProblem& problem, const SolveLimits& limits) = nullptr;
  /// If true, the method's name implies its objective, so the objective that a plan was made for does not
  /// change it.
  bool keeps_objective = false;
  /// Puts the bins of find_bins() in the method's own order for a makespan; items of a bin stay together.
  /// Null: the method has no such order. If the order breaks a cap, the bins stay as found.
  void (*order_bins)(const AssignmentProblem& problem, std::vector<std::int32_t>& bin) = nullptr;
  /// What the user must know about the method, for help; may be empty.
  std::string_view note = {};

  /// Returns an assignment that puts every item in exactly one bin, leaves no bin empty unless allowed, and
  /// obeys all caps; or a solution with status infeasible and the reason. The bound of a makespan comes from
  /// problem.bounds, if there are any. Bins are in the order of limits.bin_order or, if that is not set, the
  /// method's own (order_bins(), `minimizes`); bins of find_makespan() stay as found. Several threads may
  /// call it at once.
  /// @throws Error (input) if there are fewer items than bins and no bin may be empty.
  AssignmentSolution solve(const AssignmentProblem& problem, const SolveLimits& limits) const;
};

/// Returns all methods in listing order: the built-in ones, then the registered ones.
std::span<const Method> methods();

/// Returns the method with this name.
/// @throws Error (usage) for a name that no method has.
const Method& find_method(std::string_view name);

/// Adds a custom method to the table. Call it before any other thread uses the table, for example at the
/// start of main(). Lists, help and errors of commands then include the method. Its name must stay valid,
/// like a literal's. experiments/examples/own_scheduler.cpp is an example.
/// @throws Error (usage) if the name is taken, if the method has no name or no find_bins(), or for more than
/// 64 custom methods.
void register_method(const Method& method);

/// Removes a registered method from the table. No other thread may use the table meanwhile, and no scheduler
/// of this method or of one registered later may still exist.
/// @throws Error (usage) for a name that no registered method has.
void unregister_method(std::string_view name);

}  // namespace dflop
