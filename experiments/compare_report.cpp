#include "experiments/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/timeline_svg.hpp"

namespace dflop {
namespace {

constexpr std::string_view kStyle = R"(
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1320px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { font-size: 1em; margin-bottom: 0.3em; }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; font-size: 12px; }
.scroll { overflow-x: auto; } svg { display: block; }
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string throughput_bars(const std::vector<ReportSystem>& systems) {
  double best = 0;
  for (const ReportSystem& system : systems) best = std::max(best, system.samples_per_s);
  constexpr double kRow = 24;
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='{:.0f}' font-family='sans-serif' "
      "font-size='13' "
      "fill='#333'>",
      kRow * static_cast<double>(systems.size()));
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const double y = kRow * static_cast<double>(i);
    const double width = best > 0 ? 600 * systems[i].samples_per_s / best : 0;
    out +=
        fmt::format("<text x='190' y='{:.0f}' text-anchor='end'>{}</text>", y + 16, escaped(systems[i].name));
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
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta "
      "charset='utf-8'><title>{0}</title><style>{1}</style></head><body>\n"
      "<h1>{0}</h1>\n<pre>{2}</pre>\n<div class='scroll'><pre>{3}</pre></div>\n",
      escaped(title), kStyle, escaped(command), escaped(to_text(table)));
  for (const std::string& note : notes) out += fmt::format("<p>{}</p>\n", escaped(note));
  out += "<h2>Throughput</h2>\n" + throughput_bars(systems) + "\n<h2>First iteration, one time scale</h2>\n";
  Nanoseconds end{0};
  for (const ReportSystem& system : systems) {
    if (system.first_iteration != nullptr) end = std::max(end, system.first_iteration->makespan);
  }
  out += timeline_legend_svg() + "\n";
  for (const ReportSystem& system : systems) {
    if (system.first_iteration == nullptr) continue;
    out += fmt::format("<h3>{}: {}</h3>\n<div class='scroll'>{}</div>\n", escaped(system.name),
                       escaped(system.plan), timeline_svg(*system.first_iteration, end));
  }
  return out + "</body></html>\n";
}

}  // namespace dflop
