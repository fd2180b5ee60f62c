// The picture of fidelity_report.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "experiments/charts/html.hpp"
#include "experiments/charts/svg.hpp"
#include "experiments/fidelity/report.hpp"

namespace dflop {
namespace {

constexpr double kLegend = 26;
constexpr double kBar = 11;
constexpr double kRow = 3 * kBar + 12;
constexpr double kErrorWidth = 90;  // to the right of the longest bar

struct Kind {
  std::string_view name;
  std::string_view color;
};
constexpr Kind kMeasured{"measured", "#8c8c8c"};
constexpr Kind kPredicted{"predicted from the profile", "#1f6fb2"};
constexpr Kind kReplayed{"recorded durations, replayed", "#e08a2e"};

std::string legend() {
  std::string out;
  double x = kLabelWidth;
  for (const Kind& kind : {kMeasured, kPredicted, kReplayed}) {
    out += fmt::format(
        "<rect x='{:.0f}' y='6' width='11' height='11' fill='{}'/><text x='{:.0f}' y='16'>{}</text>", x,
        kind.color, x + 16, kind.name);
    x += 200;
  }
  return out;
}

std::string bar(double y, double width, const Kind& kind, const std::string& label) {
  return fmt::format(
      "<rect x='{:.0f}' y='{:.1f}' width='{:.1f}' height='{:.0f}' fill='{}'/><text x='{:.1f}' "
      "y='{:.1f}'>{}</text>",
      kLabelWidth, y, width, kBar - 1, kind.color, kLabelWidth + width + 5, y + kBar - 2, label);
}

std::string row(const PlanFidelity& plan, double y, double pixels_per_ns) {
  const auto width = [&](Seconds time) { return pixels_per_ns * 1e9 * time.count(); };
  std::string out = fmt::format("<text x='{:.0f}' y='{:.1f}' text-anchor='end'>{}</text>", kLabelWidth - 8,
                                y + 2 * kBar - 2, html_escaped(plan.plan.name));
  out += bar(y, width(plan.measured()), kMeasured, fmt::format("{:.1f} ms", 1e3 * plan.measured().count()));
  out += bar(y + kBar, width(plan.predicted()), kPredicted, fmt::format("{:+.1f} %", 100 * plan.error()));
  out += bar(y + 2 * kBar, width(plan.replayed()), kReplayed,
             fmt::format("{:+.1f} %", 100 * plan.engine_error()));
  return out;
}

}  // namespace

std::string fidelity_svg(const std::vector<PlanFidelity>& plans) {
  Seconds longest{0};
  for (const PlanFidelity& plan : plans) {
    longest = std::max({longest, plan.measured(), plan.predicted(), plan.replayed()});
  }
  const Nanoseconds end = to_nanoseconds(longest);
  const double height = kRow * static_cast<double>(plans.size());
  std::string out = svg_open(kLabelWidth + kPlotWidth + kErrorWidth, kLegend + height + kAxisHeight);
  out += legend() + fmt::format("<g transform='translate(0 {:.0f})'>", kLegend) + time_axis(end, height);
  for (std::size_t p = 0; p < plans.size(); ++p) {
    out += row(plans[p], kRow * static_cast<double>(p) + 6, time_scale(end));
  }
  return out + "</g></svg>";
}

}  // namespace dflop
