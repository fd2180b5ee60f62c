#include "experiments/reports/explain.hpp"

#include <fmt/format.h>

#include "experiments/charts/markup.hpp"
#include "experiments/charts/memory.hpp"
#include "experiments/charts/timeline.hpp"

namespace dflop {
namespace {

std::string text_block(const Table& table) {
  return fmt::format("<div class='scroll'><pre>{}</pre></div>\n", html_escaped(to_text(table)));
}

std::string memory_part(const Timeline& timeline, std::optional<Bytes> limit) {
  const std::span<const Timeline> one(&timeline, 1);
  const std::size_t group = fullest_rank(one).group;
  const GroupUsage& usage = timeline.groups[group];
  return fmt::format(
      "<h2>Memory of its fullest rank: {}, dp {}, rank {}</h2>\n<div class='scroll'>{}</div>\n",
      html_escaped(timeline.stages[usage.stage]), usage.dp_rank, usage.first_rank,
      memory_svg(timeline, group, limit));
}

}  // namespace

std::string explain_report(const std::string& title, const std::string& command, const Table& summary,
                           const Explanation& explanation, std::optional<Bytes> limit) {
  const Timeline& timeline = explanation.timeline;
  std::string body = fmt::format("<pre>{}</pre>\n", html_escaped(command)) + text_block(summary);
  body += fmt::format("<h2>Critical path of {}, {:.4f} s</h2>\n{}\n<div class='scroll'>{}</div>\n",
                      html_escaped(explained_iteration(explanation)), Seconds(timeline.makespan).count(),
                      timeline_legend_svg(true), timeline_svg(timeline, timeline.makespan, explanation.path));
  body += "<h2>The path by stage</h2>\n" + text_block(path_table(explanation));
  body += "<h2>What the iteration would gain</h2>\n" + text_block(gains_table(explanation));
  if (peak_memory(timeline) > Bytes{}) body += memory_part(timeline, limit);
  return html_page(title, body);
}

}  // namespace dflop
