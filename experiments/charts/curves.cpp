#include "experiments/charts/curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/charts/charts.hpp"

namespace dflop {
namespace {

constexpr double kCurveWidth = 760;
constexpr double kCurveHeight = 220;
constexpr double kCurveLeft = 70;
constexpr double kRight = 24;
constexpr double kTop = 54;
constexpr double kBelow = 40;
constexpr double kCaption = 26;
constexpr double kCurveHeadroom = 1.06;
constexpr double kOutlier = 1.5;  // times the 99th percentile: larger values are cut off
constexpr double kLegendCharacter = 6.4;

/// A PanelScale converts data to pixels.
struct PanelScale {
  double most_x = 1;
  double most_y = 1;
  double y0 = 0;  ///< of the lower edge of the panel

  double x(double value) const { return kCurveLeft + kCurveWidth * value / most_x; }
  double y(double value) const { return y0 - kCurveHeight * std::min(value, most_y) / most_y; }
};

std::vector<double> values_of(const ChartPanel& panel) {
  std::vector<double> values;
  for (const ChartCurve& curve : panel.curves) {
    for (const auto& [x, y] : curve.points) values.push_back(y);
  }
  std::sort(values.begin(), values.end());
  return values;
}

/// Returns the largest value to draw. Without this cutoff, a few points far above all others would flatten
/// the curves.
double most_drawn(const std::vector<double>& sorted) {
  if (sorted.empty()) return 1;
  const double near_all = sorted[(sorted.size() - 1) * 99 / 100];
  const double most = std::min(sorted.back(), near_all > 0 ? kOutlier * near_all : sorted.back());
  return most > 0 ? most * kCurveHeadroom : 1;
}

std::string grid(const PanelScale& scale) {
  std::string out;
  const double x_step = std::max(1.0, tick_step(scale.most_x));
  for (int i = 0; i * x_step <= scale.most_x; ++i) {
    const double at = scale.x(i * x_step);
    out += fmt::format("<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#ececec'/>", at,
                       scale.y0, scale.y0 - kCurveHeight);
    out += svg_text(at, scale.y0 + 14, "middle", fmt::format("{:.0f}", i * x_step));
  }
  const double y_step = tick_step(scale.most_y);
  for (int i = 0; i * y_step <= scale.most_y; ++i) {
    const double at = scale.y(i * y_step);
    out += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#ececec'/>", kCurveLeft,
                       at, kCurveLeft + kCurveWidth, at);
    out += svg_text(kCurveLeft - 6, at + 4, "end", fmt::format("{:.{}f}", i * y_step, tick_decimals(y_step)));
  }
  return out;
}

/// Returns the path of a line. A pixel column with more than two points contributes only its min and max.
std::string path_of(const ChartCurve& curve, const PanelScale& scale) {
  std::string path;
  const auto add = [&](const std::pair<double, double>& point) {
    path += fmt::format("{:.1f},{:.1f} ", scale.x(point.first), scale.y(point.second));
  };
  const auto column = [&](const auto& point) { return std::floor(scale.x(point.first)); };
  for (auto begin = curve.points.begin(); begin != curve.points.end();) {
    const auto end = std::find_if(begin, curve.points.end(),
                                  [&](const auto& point) { return column(point) != column(*begin); });
    if (end - begin <= 2) {
      std::for_each(begin, end, add);
    } else {
      const auto [least, most] =
          std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
      add(std::min(least, most) == least ? *least : *most);
      add(std::min(least, most) == least ? *most : *least);
    }
    begin = end;
  }
  return path;
}

std::string curve_svg(const ChartCurve& curve, const PanelScale& scale) {
  if (curve.marks) {
    std::string out;
    for (const auto& [x, y] : curve.points) {
      out += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'><title>{:.0f}, {:.4g}</title></circle>",
          scale.x(x), scale.y(y), curve.color, x, y);
    }
    return out;
  }
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='{}' stroke-opacity='{}'/>",
                     path_of(curve, scale), curve.color, curve.pale ? 1 : 2, curve.pale ? 0.35 : 1);
}

std::string legend(const ChartPanel& panel, double y) {
  std::string out;
  double x = kCurveLeft;
  for (const ChartCurve& curve : panel.curves) {
    out += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='14' height='{}' fill='{}' fill-opacity='{}'/>", x,
                       y - (curve.marks ? 7 : 5), curve.marks ? 7 : 3, curve.color, curve.pale ? 0.35 : 1);
    out += svg_text(x + 20, y, "start", curve.name);
    x += 36 + kLegendCharacter * static_cast<double>(curve.name.size());
  }
  return out;
}

std::string panel_svg(const ChartPanel& panel, PanelScale scale) {
  const std::vector<double> sorted = values_of(panel);
  scale.most_y = most_drawn(sorted);
  const auto cut = sorted.end() - std::upper_bound(sorted.begin(), sorted.end(), scale.most_y);
  std::string title = panel.title;
  if (cut > 0) title += fmt::format(" ({} above the edge, the most {:.4g})", cut, sorted.back());
  std::string out = fmt::format("<g font-weight='bold'>{}</g>",
                                svg_text(kCurveLeft, scale.y0 - kCurveHeight - 28, "start", title));
  out += legend(panel, scale.y0 - kCurveHeight - 10) + grid(scale);
  for (const ChartCurve& curve : panel.curves) out += curve_svg(curve, scale);
  return out;
}

}  // namespace

std::string curves_svg(const std::string& caption, const std::string& x_title,
                       const std::vector<ChartPanel>& panels) {
  PanelScale scale;
  for (const ChartPanel& panel : panels) {
    for (const ChartCurve& curve : panel.curves) {
      if (!curve.points.empty()) scale.most_x = std::max(scale.most_x, curve.points.back().first);
    }
  }
  const double cell = kTop + kCurveHeight + kBelow;
  const double width = kCurveLeft + kCurveWidth + kRight;
  const double height = kCaption + cell * static_cast<double>(panels.size());
  std::string out = svg_open(width, height);
  out += fmt::format("<rect width='{:.0f}' height='{:.0f}' fill='#fff'/>", width, height);
  out += svg_text(kCurveLeft, 18, "start", caption);
  for (std::size_t p = 0; p < panels.size(); ++p) {
    scale.y0 = kCaption + cell * static_cast<double>(p) + kTop + kCurveHeight;
    out += panel_svg(panels[p], scale);
    out += svg_text(kCurveLeft + kCurveWidth / 2, scale.y0 + 30, "middle", x_title);
  }
  return out + "</svg>\n";
}

}  // namespace dflop
