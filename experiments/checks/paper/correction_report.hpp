// This file reports the Adaptive Correction study.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/plan.hpp"
#include "costmodel/correction/drift.hpp"
#include "experiments/checks/paper/correction_study.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/studies/made_by.hpp"

namespace dflop {

/// Returns a table with a row for each anomaly.
Table correction_table(const std::vector<CorrectionCell>& cells);

/// Returns a table with a row for each measure of the drift.
Table drift_table(const DriftAdvice& advice);

/// Returns "re-plan: ..." or "the plan still fits: ...".
std::string drift_sentence(const DriftAdvice& advice);

/// Makes a page with the table, its provenance, and a small picture for each anomaly: the throughput of the
/// switched run relative to a run without correction, by iteration. Shading marks the iterations that the run
/// tracks.
std::string correction_page(const Provenance& made_by, const Plan& plan,
                            const std::vector<CorrectionCell>& cells);

}  // namespace dflop
