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

/// Returns the systems, best first: plans that also fit all further batches, then plans that fit only the
/// compared batches, then systems without a plan. Within each of these classes, faster systems come first;
/// ties stay in the order of `systems`.
std::vector<const System*> best_first(const std::vector<System>& systems);

/// Returns the better of the tuned uniform baselines, pytorch and megatron. If neither has a plan that fits,
/// returns megatron-default, which is set by hand. Returns null if that has no plan that fits, either.
const System* uniform_baseline(const std::vector<System>& systems);

/// Returns a table of the columns that matter for a decision, with a row for each of best_first(): system,
/// kind, plan, s/iteration, speedup over uniform_baseline(), idle %, GiB and whether the plan fits.
Table decision_table(const std::vector<System>& systems);

/// Returns decision_table() grouped by kind, at most kNarrowColumns wide. If the terminal's `width` in
/// columns is smaller, each row becomes a block; width 0 means no limit. A line below explains the columns.
std::string decision_text(const std::vector<System>& systems, int width);

/// Returns the text below the table of decision_text().
std::string decision_legend(const std::vector<System>& systems);

/// A BreakdownOf returns how the mean GPU spends its time in the iterations of a system. The system must have
/// an evaluation.
using BreakdownOf = std::function<TimeBreakdown(const System&)>;

/// Returns the answer in paragraphs: the fastest plan, and how and why it differs from the baselines; then
/// the published method compared with baselines set by hand and with tuned ones.
std::vector<std::string> comparison_answer(const std::vector<System>& systems,
                                           const BreakdownOf& breakdown_of);

/// Returns paragraphs as lines of at most kNarrowColumns characters, each paragraph after an empty line.
std::string paragraphs_text(const std::vector<std::string>& paragraphs);

}  // namespace dflop
