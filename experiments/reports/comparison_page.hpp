// This file makes the HTML page of a comparison.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/comparison.hpp"

namespace dflop {

/// A ComparisonPage holds everything that the page of a comparison shows in addition to the systems.
struct ComparisonPage {
  std::string title = {};
  std::vector<std::string> made_by = {};  ///< lines
  std::vector<std::string> answer = {};   ///< paragraphs of comparison_answer()
  std::optional<Table> training = {};     ///< hours and costs of a run
  Table all_columns = {};                 ///< the table of comparison_table()
  std::string seeds_heading = {};
  std::optional<Table> seeds = {};
  std::string seeds_note = {};
  std::string assumptions = {};  ///< HTML
};

/// Returns a page that loads nothing external. It has the answer, the decision table, the timelines of the
/// best plan and of the best uniform baseline on one time scale, and then all other rows and all columns.
std::string comparison_page(const std::vector<System>& systems, const ComparisonPage& page);

}  // namespace dflop
