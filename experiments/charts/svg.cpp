#include "experiments/charts/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dflop {

std::string svg_open(double width, double height) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' "
      "height='{1:.0f}' font-family='sans-serif' font-size='11' fill='#333'>",
      width, height);
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
