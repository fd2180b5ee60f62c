// What dflop fidelity prints, writes and draws.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/fidelity/study.hpp"

namespace dflop {

/// Absolute errors over the plans, which there are.
struct FidelitySummary {
  double mean_error = 0;
  double max_error = 0;
  double mean_engine_error = 0;
  double max_engine_error = 0;
};
FidelitySummary summary_of(const std::vector<PlanFidelity>& plans);

/// A row for each plan.
Table fidelity_table(const std::vector<PlanFidelity>& plans);

/// The same and two rows below: means and maxima of absolute errors.
Table fidelity_table_with_summary(const std::vector<PlanFidelity>& plans);

/// A row for each plan and kind of operation.
Table operations_table(const std::vector<PlanFidelity>& plans);
/// A row for each kind of operation, all plans together.
Table all_operations_table(const std::vector<PlanFidelity>& plans);

/// {"plans", "summary", "operations"}.
std::string fidelity_json(const std::vector<PlanFidelity>& plans);

/// Bars of each plan's measured, predicted and replayed iteration.
std::string fidelity_svg(const std::vector<PlanFidelity>& plans);

/// A page of all this. `command` made it.
std::string fidelity_page(const std::string& command, const std::vector<PlanFidelity>& plans);

}  // namespace dflop
