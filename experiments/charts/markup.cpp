#include "experiments/charts/charts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace dflop {
namespace {

constexpr std::string_view kStyle = R"(
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1320px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { font-size: 1em; margin-bottom: 0.3em; }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; font-size: 12px; }
pre.lines { white-space: pre-wrap; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } svg { display: block; }
)";

}  // namespace

std::string html_escaped(std::string_view text) {
  constexpr std::string_view kSpecial = "<>&'\"";
  constexpr std::array<std::string_view, 5> kEntities = {"&lt;", "&gt;", "&amp;", "&#39;", "&quot;"};
  std::string out;
  for (const char c : text) {
    const std::size_t special = kSpecial.find(c);
    out += special == std::string_view::npos ? std::string_view(&c, 1) : kEntities[special];
  }
  return out;
}

std::string html_lines(const std::vector<std::string>& lines) {
  return fmt::format("<pre class='lines'>{}</pre>\n",
                     html_escaped(fmt::format("{}", fmt::join(lines, "\n"))));
}

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta "
      "charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'><title>{0}</title><style>{1}</style></head><body>\n<h1>{0}</h1>\n{2}</body></html>\n",
      html_escaped(title), kStyle, body);
}

std::string svg_open(double width, double height) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' "
      "height='{1:.0f}' font-family='sans-serif' font-size='11' fill='#333'>",
      width, height);
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>", x, y, anchor,
                     html_escaped(text));
}

std::string time_axis(Nanoseconds end, double height) {
  const double seconds = static_cast<double>(std::max<std::int64_t>(end.count(), 1)) * 1e-9;
  const double step = tick_step(seconds);
  std::string out;
  for (int i = 0; i * step <= seconds; ++i) {
    const double x = kLabelWidth + kPlotWidth * i * step / seconds;
    out += fmt::format("<line x1='{0:.1f}' y1='0' x2='{0:.1f}' y2='{1:.1f}' stroke='#ececec'/>", x, height);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{:.{}f} s</text>", x, height + 14,
                       i * step, tick_decimals(step));
  }
  return out;
}

double tick_step(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range / 4)));
  for (const double factor : {5.0, 2.0}) {
    if (range / (factor * power) >= 4) return factor * power;
  }
  return power;
}

int tick_decimals(double step) {
  return std::max(0, static_cast<int>(std::ceil(-std::log10(step))));
}

double time_scale(Nanoseconds end) {
  return kPlotWidth / static_cast<double>(std::max<std::int64_t>(end.count(), 1));
}

}  // namespace dflop
