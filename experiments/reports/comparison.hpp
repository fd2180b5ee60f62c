// This file presents the result of a comparison to people: a narrow table with the best row first, and
// sentences that explain it.
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

/// Returns the systems, best first: plans that fit all further batches, then plans that fit only these
/// batches, then systems without a plan. Within each class, faster systems come first; ties stay in the order
/// of the table.
std::vector<const System*> best_first(const std::vector<System>& systems);

/// Returns the better of the tuned uniform baselines, pytorch and megatron. Without them, returns
/// megatron-default, which is set by hand. Null if none has a plan that fits.
const System* uniform_baseline(const std::vector<System>& systems);

/// Returns the columns that matter for a decision, with a row for each of best_first(): system, kind, plan,
/// s/iteration, speedup over uniform_baseline(), idle %, GiB and whether the plan fits.
Table decision_table(const std::vector<System>& systems);

/// Returns decision_table() grouped by kind, at most kNarrowColumns wide. On a terminal narrower than that,
/// with `width` columns, each row becomes a block; 0 means any width. A line below explains the columns.
std::string decision_text(const std::vector<System>& systems, int width);

/// Returns the text below the table of decision_text().
std::string decision_legend(const std::vector<System>& systems);

/// Returns how the mean GPU spends its time in the iterations of a system, which must have an evaluation.
using BreakdownOf = std::function<TimeBreakdown(const System&)>;

/// Returns paragraphs: the fastest plan, how it compares with the baselines and why; then how the published
/// method compares with baselines set by hand and with tuned ones.
std::vector<std::string> comparison_answer(const std::vector<System>& systems,
                                           const BreakdownOf& breakdown_of);

/// Returns paragraphs as lines of at most kNarrowColumns characters, each paragraph after an empty line.
std::string paragraphs_text(const std::vector<std::string>& paragraphs);

}  // namespace dflop
