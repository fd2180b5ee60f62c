// This file presents the results of studies as tables and as a page.
#pragma once

#include <span>
#include <string>

#include "experiments/checks/paper/run.hpp"
#include "experiments/cli/table.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// Returns a table of figures with a row for each FigureRow of each cell.
Table study_figures(std::span<const StudyResult> results);

/// Returns a table with a row for each claim under each setting.
Table study_claims(std::span<const StudyResult> results);

/// Returns a page that loads nothing external: each study's claims, a picture for each setting, and its
/// figures.
std::string study_page(const Provenance& made_by, std::span<const StudyResult> results);

}  // namespace dflop
