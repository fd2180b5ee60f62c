#include "experiments/reports/comparison.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "experiments/cli/option_values.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/studies/planning.hpp"

namespace dflop {
namespace {

constexpr std::string_view kHandSet = "megatron-default";
constexpr std::array<std::string_view, 2> kTuned = {"pytorch", "megatron"};
constexpr std::string_view kPublished = "dflop";

bool is_partly(const System& system) {
  return system.evaluation && system.fits_further == false;
}

std::string_view heading_of(RowKind kind) {
  switch (kind) {
    case RowKind::search:
      return "found by search";
    case RowKind::published:
      return "published method and variants";
    case RowKind::baseline:
      return "baselines";
    case RowKind::own:
      return "your plans";
  }
  return "";
}

std::string fits_text(const System& system) {
  if (!system.evaluation) return "no";
  if (!system.fits_further) return "unknown";
  return *system.fits_further ? "yes" : "partly";
}

/// Returns the system with this name; null if there is none.
const System* find_system(const std::vector<System>& systems, std::string_view name) {
  const auto found = std::ranges::find(systems, name, &System::name);
  return found == systems.end() ? nullptr : &*found;
}

/// Returns the system with this name if it has a plan that fits, else null.
const System* find_run(const std::vector<System>& systems, std::string_view name) {
  const System* system = find_system(systems, name);
  return system != nullptr && system->evaluation ? system : nullptr;
}

auto rank_of(const System& system) {
  return std::tuple(!system.evaluation, is_partly(system),
                    system.evaluation ? system.evaluation->mean : Seconds(0));
}

std::string plan_text(const System& system) {
  return system.planned.plan ? marked(*system.planned.plan) : "";
}

/// Returns the speed of one system relative to another.
double times_as_fast(const System& one, const System& other) {
  return other.evaluation->mean / one.evaluation->mean;
}

/// A Comparative is a verb and the words after it, so that a list can omit a repeated verb.
using Comparative = std::pair<std::string, std::string>;

/// Compares speeds to two decimals: "is", "1.25 times as fast as megatron".
Comparative compare_speed(const System& one, const System& other, const std::string& name_of_other) {
  const double ratio = times_as_fast(one, other);
  if (std::abs(ratio - 1) < 0.005) return {"is", "as fast as " + name_of_other};
  if (ratio > 1) return {"is", fmt::format("{:.2f} times as fast as {}", ratio, name_of_other)};
  return {"takes", fmt::format("{:.2f} times as long as {}", 1 / ratio, name_of_other)};
}

std::string joined(const std::vector<Comparative>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [verb, rest] = parts[i];
    if (i > 0) text += i + 1 < parts.size() ? ", " : " and ";
    text += i > 0 && parts[i - 1].first == verb ? rest : verb + " " + rest;
  }
  return text;
}

/// Returns text such as "2.10 s of imbalance and 0.90 s of bubbles": the largest parts that are at least a
/// fifth of the whole, at most two; "" if there are none.
std::string largest_parts(const std::vector<std::pair<Seconds, TimeUse>>& parts, Seconds whole) {
  std::vector<std::string> texts;
  for (const auto& [time, use] : parts) {
    if (texts.size() == 2 || time < whole / 5) break;
    texts.push_back(fmt::format("{:#.3g} s of {}", time.count(), to_string(use)));
  }
  return fmt::format("{}", fmt::join(texts, " and "));
}

/// Explains why one system is faster than another: the uses of time that shrink most, and those that grow.
std::string reason_for_speed(const System& fast, const System& slow, const BreakdownOf& breakdown_of) {
  const TimeBreakdown less = breakdown_of(fast);
  const TimeBreakdown more = breakdown_of(slow);
  const Seconds saved = more.sum() - less.sum();
  if (saved <= Seconds(0)) return "";
  std::vector<std::pair<Seconds, TimeUse>> savings;
  std::vector<std::pair<Seconds, TimeUse>> additions;
  for (const TimeUse use : all_of<TimeUse>()) {
    savings.emplace_back(more[use] - less[use], use);
    additions.emplace_back(less[use] - more[use], use);
  }
  std::ranges::stable_sort(savings, std::greater(), &std::pair<Seconds, TimeUse>::first);
  std::ranges::stable_sort(additions, std::greater(), &std::pair<Seconds, TimeUse>::first);
  std::string text =
      fmt::format(" Compared with {}, the mean GPU saves {:#.3g} s an iteration", slow.name, saved.count());
  const std::string saves = largest_parts(savings, saved);
  const std::string adds = largest_parts(additions, saved);
  if (!saves.empty()) text += fmt::format(", mostly {}", saves);
  if (!adds.empty()) text += fmt::format(", though it adds {}", adds);
  return text + ".";
}

/// Returns the names of the other rows that take exactly as long as the best one.
std::vector<std::string> ties_of(const std::vector<const System*>& ranked) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < ranked.size() && rank_of(*ranked[i]) == rank_of(*ranked[0]); ++i)
    names.push_back(ranked[i]->name);
  return names;
}

/// Returns the memory caveats that a reader needs before trusting the best row.
std::string memory_caveats(const System& best, const std::vector<const System*>& ranked) {
  if (is_partly(best)) {
    return " No plan fits all further batches of the data: a run with this one may end out of memory.";
  }
  for (const System* other : ranked) {
    if (is_partly(*other) && other->evaluation->mean < best.evaluation->mean) {
      return fmt::format(" {} takes {:.3f} s, but its plan does not fit all further batches of the data.",
                         other->name, other->evaluation->mean.count());
    }
  }
  return "";
}

std::string best_plan_sentences(const std::vector<System>& systems, const BreakdownOf& breakdown_of) {
  const std::vector<const System*> ranked = best_first(systems);
  if (ranked.empty() || !ranked.front()->evaluation) return "No system has a plan that fits.";
  const System& best = *ranked.front();
  const System* uniform = uniform_baseline(systems);
  const System* hand_set = find_run(systems, kHandSet);
  std::string text = fmt::format("The fastest plan is {} ({}): {:.3f} s an iteration.", plan_text(best),
                                 best.name, best.evaluation->mean.count());
  const std::vector<std::string> ties = ties_of(ranked);
  if (!ties.empty()) {
    text += fmt::format(" {} {} as long.", fmt::join(ties, " and "), ties.size() > 1 ? "take" : "takes");
  }
  const bool uniform_is_best = uniform == &best;
  if (uniform_is_best && uniform->name != kHandSet) {
    text += ranked.size() > 1 ? " It is a tuned uniform baseline: no other row is faster." : "";
  }
  std::vector<Comparative> speeds;
  if (uniform != nullptr && !uniform_is_best && uniform->name != kHandSet) {
    speeds.push_back(
        compare_speed(best, *uniform, fmt::format("the best uniform baseline ({})", uniform->name)));
  }
  if (hand_set != nullptr && hand_set != &best)
    speeds.push_back(compare_speed(best, *hand_set, fmt::format("the default set by hand ({})", kHandSet)));
  if (!speeds.empty()) text += " It " + joined(speeds) + ".";
  if (uniform != nullptr && !uniform_is_best) text += reason_for_speed(best, *uniform, breakdown_of);
  if (find_system(systems, kHandSet) != nullptr && hand_set == nullptr)
    text += fmt::format(" The default set by hand ({}) does not fit.", kHandSet);
  return text + memory_caveats(best, ranked);
}

std::string published_sentence(const std::vector<System>& systems) {
  if (find_system(systems, kPublished) == nullptr) return "";
  const System* published = find_run(systems, kPublished);
  if (published == nullptr)
    return fmt::format("The published method ({}) has no plan that fits.", kPublished);
  std::vector<Comparative> speeds;
  if (const System* hand_set = find_run(systems, kHandSet)) {
    speeds.push_back(compare_speed(*published, *hand_set,
                                   fmt::format("the baseline set by hand as in papers ({})", kHandSet)));
  }
  for (const std::string_view name : kTuned) {
    if (const System* system = find_run(systems, name))
      speeds.push_back(compare_speed(*published, *system, fmt::format("the tuned {}", name)));
  }
  if (speeds.empty()) return "";
  return fmt::format("The published method ({}) {}.", kPublished, joined(speeds));
}

/// Shortens a name that would leave no space for the plan.
std::string short_name(std::string name) {
  constexpr std::size_t kMaxLetters = 30;
  if (name.size() <= kMaxLetters) return name;
  std::size_t end = kMaxLetters - 3;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U)
    --end;  // inside a UTF-8
            // character
  return name.substr(0, end) + "...";
}

/// Returns the index of a column. @pre the table has this column
std::size_t column_of(const Table& table, std::string_view key) {
  return static_cast<std::size_t>(std::ranges::find(table.columns, key, &Column::key) -
                                  table.columns.begin());
}

/// Returns the kinds in order of their best rows.
std::vector<RowKind> kinds_of(const std::vector<const System*>& ranked) {
  std::vector<RowKind> kinds;
  for (const System* system : ranked) {
    if (std::ranges::count(kinds, kind_of(*system)) == 0) kinds.push_back(kind_of(*system));
  }
  return kinds;
}

/// Returns the total width of all columns except the plan, including the gaps between columns.
std::size_t width_without_plan(const Table& table, std::size_t plan) {
  std::size_t width = 0;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (c == plan) continue;
    std::size_t widest = table.columns[c].title.size();
    for (const std::vector<Cell>& row : table.rows)
      widest = std::max(widest, shown_text(row[c], table.columns[c]).size());
    width += widest + 2;
  }
  return width;
}

/// Breaks long plans over several lines. Each extra line is a row with only a part of the plan. `lines`
/// receives the number of lines of each row.
Table with_broken_plans(const Table& table, std::vector<std::size_t>& lines) {
  constexpr std::size_t kMinPlan = 20;
  const std::size_t plan = column_of(table, "plan");
  const std::size_t others = std::min(width_without_plan(table, plan), kNarrowColumns - kMinPlan);
  const std::size_t width = kNarrowColumns - others;
  Table broken{table.columns, {}};
  for (const std::vector<Cell>& row : table.rows) {
    const std::vector<std::string> parts = lines_of(plain_text(row[plan]), width);
    lines.push_back(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      broken.rows.push_back(i == 0 ? row : std::vector<Cell>(row.size(), Cell("")));
      broken.rows.back()[plan] = parts[i];
    }
  }
  return broken;
}

/// Returns a table whose rows are sorted by kind, with a heading above each kind.
std::string grouped_text(const Table& all, const std::vector<const System*>& ranked) {
  const Table rows = columns_of(all, [](const Column& column) { return column.key != "kind"; });
  Table table{rows.columns, {}};
  std::vector<RowKind> row_kinds;
  for (const RowKind kind : kinds_of(ranked)) {
    for (std::size_t i = 0; i < ranked.size(); ++i) {
      if (kind_of(*ranked[i]) != kind) continue;
      table.rows.push_back(rows.rows[i]);
      table.rows.back()[0] = "  " + short_name(ranked[i]->name);
      row_kinds.push_back(kind);
    }
  }

  std::vector<std::size_t> lines_of_row;
  const std::string shown = to_text(with_broken_plans(table, lines_of_row));
  const std::vector<std::string_view> lines = split(shown, '\n');
  std::string text = fmt::format("{}\n{}\n", lines[0], lines[1]);
  std::size_t line = 2;
  for (std::size_t row = 0; row < row_kinds.size(); ++row) {
    if (row == 0 || row_kinds[row] != row_kinds[row - 1])
      text += fmt::format("{}:\n", heading_of(row_kinds[row]));
    for (std::size_t i = 0; i < lines_of_row[row]; ++i) text += fmt::format("{}\n", lines[line++]);
  }
  return text;
}

}  // namespace

RowKind kind_of(const System& system) {
  if (system.is_search()) return RowKind::search;
  if (system.planner.starts_with(kPublished)) return RowKind::published;
  return system.planner == "none" ? RowKind::own : RowKind::baseline;
}

std::vector<const System*> best_first(const std::vector<System>& systems) {
  std::vector<const System*> ranked;
  for (const System& system : systems) ranked.push_back(&system);
  std::ranges::stable_sort(ranked, {}, [](const System* system) { return rank_of(*system); });
  return ranked;
}

const System* uniform_baseline(const std::vector<System>& systems) {
  const System* best = nullptr;
  for (const std::string_view name : kTuned) {
    const System* system = find_run(systems, name);
    if (system != nullptr && (best == nullptr || rank_of(*system) < rank_of(*best))) best = system;
  }
  return best != nullptr ? best : find_run(systems, kHandSet);
}

Table decision_table(const std::vector<System>& systems) {
  Table table;
  table.columns = {{"system", "system"},
                   {"kind", "kind"},
                   {"plan", "plan"},
                   {"iteration_s_mean", "s/iter", 3},
                   {"speedup", "speedup", 2},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "GiB", 1, 0x1p-30},
                   {"fits", "fits"}};
  const System* baseline = uniform_baseline(systems);
  for (const System* system : best_first(systems)) {
    const std::string kind(to_string(kind_of(*system)));
    if (!system->evaluation) {
      table.rows.push_back(
          {system->name, kind, "infeasible", Cell(), Cell(), Cell(), Cell(), fits_text(*system)});
      continue;
    }
    const Evaluation& e = *system->evaluation;
    table.rows.push_back({system->name, kind, plan_text(*system), e.mean,
                          baseline != nullptr ? Cell(times_as_fast(*system, *baseline)) : Cell(),
                          e.idle_fraction, e.peak_memory, fits_text(*system)});
  }
  return table;
}

std::string decision_legend(const std::vector<System>& systems) {
  const System* baseline = uniform_baseline(systems);
  std::string text =
      baseline != nullptr
          ? fmt::format("speedup: over {}, {}", baseline->name,
                        baseline->name == kHandSet ? "which is set by hand" : "the best uniform baseline")
          : "speedup: unknown without a uniform baseline";
  text += "; GiB: peak of the fullest GPU";
  if (std::ranges::any_of(systems, is_partly))
    text += "; fits partly: these batches, but not all further batches of the data";
  return text + ".";
}

std::string decision_text(const std::vector<System>& systems, int width) {
  const Table table = decision_table(systems);
  const bool is_narrow = width > 0 && static_cast<std::size_t>(width) < kNarrowColumns;
  return (is_narrow ? to_text(table, width) : grouped_text(table, best_first(systems))) +
         paragraphs_text({decision_legend(systems) + " --wide shows all columns."});
}

std::vector<std::string> comparison_answer(const std::vector<System>& systems,
                                           const BreakdownOf& breakdown_of) {
  std::vector<std::string> paragraphs = {best_plan_sentences(systems, breakdown_of)};
  const std::string published = published_sentence(systems);
  if (!published.empty()) paragraphs.push_back(published);
  return paragraphs;
}

std::string paragraphs_text(const std::vector<std::string>& paragraphs) {
  std::string text;
  for (const std::string& paragraph : paragraphs)
    text += fmt::format("\n{}\n", fmt::join(lines_of(printable(paragraph), kNarrowColumns), "\n"));
  return text;
}

}  // namespace dflop
