#include "experiments/reports/comparison_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "experiments/charts/charts.hpp"
#include "experiments/reports/comparison.hpp"

namespace dflop {
namespace {

constexpr std::string_view kPageStyle = R"(<style>
:root { color-scheme: light dark; --text: #222; --page: #fff; --shade: #f6f6f6; --rule: #ddd; --best: #e2f3e2; --bar: #4c78a8; --blocked: #d8d8d8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ddd; --page: #17191c; --shade: #23262a; --rule: #3d4248; --best: #1f3d26; --bar: #6f9bd0; --blocked: #555b63; }
}
body { color: var(--text); background: var(--page); } pre { background: var(--shade); }
svg { fill: var(--text); max-width: 100%; height: auto; } svg line { stroke: var(--rule); } svg rect[fill='#d8d8d8'] { fill: var(--blocked); }
.answer p { font-size: 1.1em; max-width: 60em; }
table { border-collapse: collapse; font-size: 13px; } td, th { border-bottom: 1px solid var(--rule); padding: 4px 8px; text-align: left; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; } tr.best { background: var(--best); }
.sortable th { cursor: pointer; } th[aria-sort=ascending]::after { content: ' \25b2'; } th[aria-sort=descending]::after { content: ' \25bc'; }
.small { font-size: 11px; } .small td, .small th { padding: 3px 5px; }
.bar { background: var(--bar); height: 0.8em; } summary { cursor: pointer; margin-top: 1em; font-weight: bold; }
@media (max-width: 700px) {
  .scroll svg { max-width: none; }
  .cards thead { display: none; } .cards, .cards tbody, .cards tr, .cards td { display: block; width: auto; }
  .cards tr { border-bottom: 2px solid var(--rule); padding: 6px 0; } .cards td { border: 0; padding: 1px 8px; }
  .cards td.number { display: inline-block; text-align: left; } .cards td::before { content: attr(data-title) ': '; opacity: 0.7; }
}
</style>
)";

/// Sorts the rows of a table by a column when its header is clicked; cells without a value come last.
constexpr std::string_view kSortScript = R"(<script>
for (const head of document.querySelectorAll('.sortable th')) head.addEventListener('click', () => {
  const body = head.closest('table').tBodies[0], at = head.cellIndex;
  const sign = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
  const value = row => row.cells[at].dataset.value ?? row.cells[at].textContent;
  const compare = (a, b) => a === '' || b === '' ? (a === '') - (b === '')
    : sign * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
  for (const row of [...body.rows].sort((a, b) => compare(value(a), value(b)))) body.append(row);
});
</script>
)";

/// Returns a table with sortable rows, which become cards on a narrow screen. The row with index `best` is
/// marked.
std::string html_table(const Table& table, std::string_view style = "",
                       std::optional<std::size_t> best = {}) {
  const auto kind = [&](std::size_t column) { return has_words(table, column) ? "" : " class='number'"; };
  std::string out = fmt::format("<table class='sortable cards {}'><thead><tr>", style);
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    out += fmt::format("<th scope='col'{}>{}</th>", kind(c), html_escaped(table.columns[c].title));
  out += "</tr></thead><tbody>\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    out += r == best ? "<tr class='best'>" : "<tr>";
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const Cell& cell = table.rows[r][c];
      out += fmt::format("<td{} data-title='{}' data-value='{}'>{}</td>", kind(c),
                         html_escaped(table.columns[c].title), html_escaped(plain_text(cell)),
                         html_escaped(shown_text(cell, table.columns[c])));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string throughput_table(const std::vector<const System*>& ranked) {
  double best = 0;
  for (const System* system : ranked) {
    if (system->evaluation) best = std::max(best, system->evaluation->samples_per_s);
  }
  std::string out = "<table>\n";
  for (const System* system : ranked) {
    const double throughput = system->evaluation ? system->evaluation->samples_per_s : 0;
    out += fmt::format(
        "<tr><td>{}</td><td style='width:55%'><div class='bar' style='width:{:.1f}%'></div></td><td "
        "class='number'>{}</td></tr>\n",
        html_escaped(system->name), best > 0 ? 100 * throughput / best : 0,
        system->evaluation ? fmt::format("{:.2f}", throughput) : "infeasible");
  }
  return out + "</table>\n";
}

/// Draws the first iterations of systems on one time scale. All systems must have evaluations.
std::string timelines(const std::vector<const System*>& systems) {
  Nanoseconds end{0};
  for (const System* system : systems) end = std::max(end, system->evaluation->timelines.front().makespan);
  std::string out;
  for (const System* system : systems) {
    const Timeline& first = system->evaluation->timelines.front();
    out += fmt::format("<h3>{}: {}, {:.3f} s</h3>\n<div class='scroll'>{}</div>\n",
                       html_escaped(system->name), html_escaped(describe(*system->planned.plan)),
                       Seconds(first.makespan).count(), timeline_svg(first, end));
  }
  return out;
}

/// Returns the systems whose timelines are worth comparing: the best one and the best uniform baseline. If
/// both are the same, returns it and the second-best system.
std::vector<const System*> compared_first(const std::vector<const System*>& runs, const System* uniform) {
  std::vector<const System*> pair;
  if (!runs.empty()) pair.push_back(runs.front());
  if (uniform != nullptr && uniform != runs.front()) {
    pair.push_back(uniform);
  } else if (runs.size() > 1) {
    pair.push_back(runs[1]);
  }
  return pair;
}

std::string all_timelines(const std::vector<System>& systems, const std::vector<const System*>& ranked) {
  std::vector<const System*> runs;
  for (const System* system : ranked) {
    if (system->evaluation) runs.push_back(system);
  }
  if (runs.empty()) return "";
  const std::vector<const System*> pair = compared_first(runs, uniform_baseline(systems));
  std::string out = fmt::format(
      "<h2>First iteration of the best plan{}</h2>\n<div class='scroll'>{}</div>\n{}",
      pair.size() > 1 ? fmt::format(" and of {}, on one time scale", html_escaped(pair[1]->name)) : "",
      timeline_legend_svg(), timelines(pair));
  if (runs.size() > pair.size()) {
    out += fmt::format(
        "<details><summary>First iterations of all rows, on one time scale</summary>\n{}</details>\n",
        timelines(runs));
  }
  return out;
}

}  // namespace

std::string comparison_page(const std::vector<System>& systems, const ComparisonPage& page) {
  const std::vector<const System*> ranked = best_first(systems);
  std::string out = std::string(kPageStyle) + "<div class='answer'>\n";
  for (const std::string& paragraph : page.answer) out += fmt::format("<p>{}</p>\n", html_escaped(paragraph));
  out += "</div>\n";
  const bool has_best = !ranked.empty() && ranked.front()->evaluation;
  out += html_table(decision_table(systems), "", has_best ? std::optional<std::size_t>(0) : std::nullopt);
  out += fmt::format("<p>{}</p>\n", html_escaped(decision_legend(systems)));
  for (const std::string& note : infeasible_notes(systems))
    out += fmt::format("<p>{}</p>\n", html_escaped(note));
  out += all_timelines(systems, ranked);
  out += "<h2>Samples/s</h2>\n" + throughput_table(ranked);
  if (page.training)
    out += "<h2>Training</h2>\n<div class='scroll'>" + html_table(*page.training) + "</div>\n";
  if (page.seeds) {
    out +=
        fmt::format("<h2>{}</h2>\n<div class='scroll'>{}</div>\n<p>{}</p>\n",
                    html_escaped(page.seeds_heading), html_table(*page.seeds), html_escaped(page.seeds_note));
  }
  out += fmt::format("<details><summary>All columns</summary>\n<div class='scroll'>{}</div></details>\n",
                     html_table(page.all_columns, "small"));
  out += page.assumptions + html_lines(page.made_by);
  return html_page(page.title, out + std::string(kSortScript));
}

}  // namespace dflop
