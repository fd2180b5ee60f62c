#include "experiments/reports/compare.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/charts/html.hpp"
#include "experiments/charts/timeline.hpp"

namespace dflop {
namespace {

std::string throughput_bars(const std::vector<ReportSystem>& systems) {
  double best = 0;
  for (const ReportSystem& system : systems) best = std::max(best, system.samples_per_s);
  constexpr double kRow = 24;
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='{:.0f}' font-family='sans-serif' "
      "font-size='13' fill='#333'>",
      kRow * static_cast<double>(systems.size()));
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const double y = kRow * static_cast<double>(i);
    const double width = best > 0 ? 600 * systems[i].samples_per_s / best : 0;
    out += fmt::format("<text x='190' y='{:.0f}' text-anchor='end'>{}</text>", y + 16,
                       html_escaped(systems[i].name));
    out += fmt::format("<rect x='200' y='{:.0f}' width='{:.1f}' height='17' fill='#4c78a8'/>", y + 3, width);
    out += systems[i].first_iteration != nullptr
               ? fmt::format("<text x='{:.1f}' y='{:.0f}'>{:.2f} samples/s</text>", 208 + width, y + 16,
                             systems[i].samples_per_s)
               : fmt::format("<text x='208' y='{:.0f}'>infeasible</text>", y + 16);
  }
  return out + "</svg>";
}

}  // namespace

std::string compare_report(const std::string& title, const std::string& command, const Table& table,
                           const std::vector<ReportSystem>& systems, const std::vector<std::string>& notes) {
  std::string out = fmt::format("<pre>{}</pre>\n<div class='scroll'><pre>{}</pre></div>\n",
                                html_escaped(command), html_escaped(to_text(table)));
  for (const std::string& note : notes) out += fmt::format("<p>{}</p>\n", html_escaped(note));
  out += "<h2>Throughput</h2>\n" + throughput_bars(systems) + "\n<h2>First iteration, one time scale</h2>\n";
  Nanoseconds end{0};
  for (const ReportSystem& system : systems) {
    if (system.first_iteration != nullptr) end = std::max(end, system.first_iteration->makespan);
  }
  out += timeline_legend_svg() + "\n";
  for (const ReportSystem& system : systems) {
    if (system.first_iteration == nullptr) continue;
    out += fmt::format("<h3>{}: {}</h3>\n<div class='scroll'>{}</div>\n", html_escaped(system.name),
                       html_escaped(system.plan), timeline_svg(*system.first_iteration, end));
  }
  return html_page(title, out);
}

}  // namespace dflop
