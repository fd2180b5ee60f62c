// This is the self-contained HTML page of `dflop simulate --html`.
#pragma once

#include <optional>
#include <string>

#include "experiments/cli/table.hpp"
#include "experiments/studies/explain.hpp"

namespace dflop {

/// Returns a page with command, summary, the timeline with its critical path, what the iteration would gain,
/// and the memory of its fullest rank, with the `limit` of usable memory where that is known.
std::string explain_report(const std::string& title, const std::string& command, const Table& summary,
                           const Explanation& explanation, std::optional<Bytes> limit);

}  // namespace dflop
