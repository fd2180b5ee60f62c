// The self-contained HTML page of `dflop compare`.
#pragma once

#include <string>
#include <vector>

#include "core/timeline.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

struct ReportSystem {
  std::string name;
  std::string plan;                           ///< described in a line
  double samples_per_s = 0;                   ///< 0: infeasible
  const Timeline* first_iteration = nullptr;  ///< with spans; null: infeasible
};

/// Table, throughput bars and the first iteration of every system on one time scale.
std::string compare_report(const std::string& title, const std::string& command, const Table& table,
                           const std::vector<ReportSystem>& systems, const std::vector<std::string>& notes);

}  // namespace dflop
