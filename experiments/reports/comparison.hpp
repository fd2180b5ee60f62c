// The answer of a comparison for people: a narrow table, best row first, and sentences that say what it
// shows.
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

/// Returns the systems, best first: those whose plans fit all further batches, then plans that fit only these
/// batches, then systems without a plan; faster ones first. Equals stay in the order of the table.
std::vector<const System*> best_first(const std::vector<System>& systems);

/// Returns the better of the tuned uniform baselines, pytorch and megatron; without them megatron-default,
/// which is set by hand. Null if none has a plan that fits.
const System* uniform_baseline(const std::vector<System>& systems);

/// Returns the columns that decide, a row for each of best_first(): system, kind, plan, s/iteration, speedup
/// over uniform_baseline(), idle %, GiB and whether the plan fits.
Table decision_table(const std::vector<System>& systems);

/// Returns decision_table() in groups of one kind, at most kNarrowColumns wide; on a terminal of `width`
/// columns that is narrower, a block for each row. 0: any width. A line below says what the columns mean.
std::string decision_text(const std::vector<System>& systems, int width);

/// Returns what decision_text() says below its table.
std::string decision_legend(const std::vector<System>& systems);

/// Returns how long a mean GPU spends on what in the iterations of a system, which has an evaluation.
using BreakdownOf = std::function<TimeBreakdown(const System&)>;

/// Returns paragraphs: the fastest plan, how it compares with the baselines and why; then how the published
/// method compares with baselines that are set by hand and with tuned ones.
std::vector<std::string> comparison_answer(const std::vector<System>& systems,
                                           const BreakdownOf& breakdown_of);

/// Returns paragraphs as lines of at most kNarrowColumns letters, each paragraph after an empty line.
std::string paragraphs_text(const std::vector<std::string>& paragraphs);

}  // namespace dflop
