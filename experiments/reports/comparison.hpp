// This file presents the result of a comparison: a narrow table with the best row first, and sentences that
// explain the result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/names.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/reports/time_breakdown.hpp"
#include "experiments/studies/comparison.hpp"

namespace dflop {

/// The narrow table fits a terminal of this many columns.
inline constexpr std::size_t kNarrowColumns = 100;

/// A RowKind says where the plan of a row comes from.
enum class RowKind : std::uint8_t { search, published, baseline, own };

template <>
inline constexpr NameTable<RowKind, 4> kNames<RowKind> = {{{RowKind::search, "search"},
                                                           {RowKind::published, "published"},
                                                           {RowKind::baseline, "baseline"},
                                                           {RowKind::own, "yours"}}};

RowKind kind_of(const System& system);

/// Returns the systems, best first: plans that fit all further batches, then plans that fit only the compared
/// batches, then systems without a plan. Within each class, faster systems come first; ties stay in the order
/// of the table.
std::vector<const System*> best_first(const std::vector<System>& systems);

/// Returns the better (by best_first()) of the tuned uniform baselines, pytorch and megatron. If neither can
/// be used, returns megatron-default, which is set by hand. Null if none of them has a plan that fits.
const System* uniform_baseline(const std::vector<System>& systems);

/// Returns a table for a decision between systems, with a row for each of best_first(). Columns: system,
/// kind, plan, s/iteration, speedup over uniform_baseline(), idle %, GiB and whether the plan fits.
Table decision_table(const std::vector<System>& systems);

/// Returns decision_table() as text, grouped by kind, at most kNarrowColumns wide. `width` is the terminal's
/// width, 0 if unknown. If the table does not fit a terminal narrower than kNarrowColumns, each row becomes a
/// block. decision_legend() follows the table.
std::string decision_text(const std::vector<System>& systems, int width);

/// Returns the text that explains the columns of decision_text().
std::string decision_legend(const std::vector<System>& systems);

/// Returns how GPUs spend their time, on average, in the iterations of a system. The system must have an
/// evaluation.
using BreakdownOf = std::function<TimeBreakdown(const System&)>;

/// Returns paragraphs about the result. The first name the fastest plan, how it compares with the baselines,
/// and why. Then they compare the published method with hand-set and with tuned baselines.
std::vector<std::string> comparison_answer(const std::vector<System>& systems,
                                           const BreakdownOf& breakdown_of);

/// Returns paragraphs as lines of at most kNarrowColumns characters, each paragraph after an empty line.
std::string paragraphs_text(const std::vector<std::string>& paragraphs);

}  // namespace dflop
