// This report is what dflop fidelity prints, writes and draws.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/fidelity/study.hpp"

namespace dflop {

/// A FidelitySummary has absolute errors over the plans, of which there is at least one.
struct FidelitySummary {
  double mean_error = 0;
  double max_error = 0;
  double mean_engine_error = 0;
  double max_engine_error = 0;
};
FidelitySummary summary_of(const std::vector<PlanFidelity>& plans);

/// Returns a row for each plan.
Table fidelity_table(const std::vector<PlanFidelity>& plans);

/// Returns a row for each plan and two below: means and maxima of absolute errors.
Table fidelity_table_with_summary(const std::vector<PlanFidelity>& plans);

/// Returns a row for each plan and kind of operation.
Table operations_table(const std::vector<PlanFidelity>& plans);
/// Returns a row for each kind of operation, all plans together.
Table all_operations_table(const std::vector<PlanFidelity>& plans);

/// Returns all as JSON: {"plans", "summary", "operations"}.
std::string fidelity_json(const std::vector<PlanFidelity>& plans);

/// Draws bars of each plan's measured, predicted and replayed iteration.
std::string fidelity_svg(const std::vector<PlanFidelity>& plans);

/// Makes a page of all this, which `command` made.
std::string fidelity_page(const std::string& command, const std::vector<PlanFidelity>& plans);

}  // namespace dflop
