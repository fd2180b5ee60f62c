#include "experiments/checks/paper/correction_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "experiments/charts/charts.hpp"

namespace dflop {
namespace {

constexpr double kCellWidth = 230;
constexpr double kCellHeight = 130;
constexpr double kGap = 22;
constexpr double kCaptionWidth = 800;
constexpr double kTitle = 34;
constexpr double kLeftOfCells = 44;
constexpr double kFoot = 46;

/// Returns the gain of each iteration, as a moving average over neighboring iterations, so that single
/// batches do not hide the trend.
std::vector<double> course(const CorrectionRun& run, const CorrectionRun& off) {
  const std::size_t count = run.seconds.size();
  const std::size_t reach = std::max<std::size_t>(1, count / 32);
  std::vector<double> gains;
  for (std::size_t k = 0; k < count; ++k) {
    gains.push_back(gain(run, off, k > reach ? k - reach : 0, std::min(count, k + reach + 1)));
  }
  return gains;
}

struct Scale {
  double least;
  double most;
  std::size_t iterations;

  double x(double k) const { return k * kCellWidth / static_cast<double>(iterations); }
  double y(double value) const { return kCellHeight * (most - value) / (most - least); }
};

Scale scale_of(const std::vector<CorrectionCell>& cells) {
  Scale scale{-0.06, 0.06, cells[0].off.seconds.size()};
  for (const CorrectionCell& cell : cells) {
    for (const CorrectionRun* run : {&cell.published, &cell.keep, &cell.perfect}) {
      for (const double value : course(*run, cell.off)) {
        scale.least = std::min(scale.least, value - 0.01);
        scale.most = std::max(scale.most, value + 0.01);
      }
    }
  }
  return scale;
}

std::string line(const std::vector<double>& values, const Scale& scale, std::string_view style) {
  std::string points;
  for (std::size_t k = 0; k < values.size(); ++k) {
    points += fmt::format("{:.1f},{:.1f} ", scale.x(static_cast<double>(k) + 0.5), scale.y(values[k]));
  }
  return fmt::format("<polyline points='{}' fill='none' {}/>", points, style);
}

/// Draws a shaded strip below the iterations in which `run` tracks. `top` is the strip's upper edge.
std::string ground(const CorrectionRun& run, const Scale& scale, double top, std::string_view color) {
  std::string out;
  for (std::size_t k = 0; k < run.tracked.size(); ++k) {
    if (!run.tracked[k]) continue;
    out += fmt::format("<rect x='{:.2f}' y='{:.1f}' width='{:.2f}' height='6' fill='{}'/>",
                       scale.x(static_cast<double>(k)), top, scale.x(1), color);
  }
  return out;
}

constexpr std::string_view kPublishedColor = "#c2571a";
constexpr std::string_view kKeepColor = "#1f6fb2";

std::string cell_svg(const CorrectionCell& cell, const Scale& scale) {
  std::string out = fmt::format("<text x='0' y='-20' font-weight='bold'>{:.1f} % slow, latency {:g} %</text>",
                                100 * cell.fraction, 100 * cell.anomaly.latency);
  const std::size_t count = cell.off.seconds.size();
  out += fmt::format("<text x='0' y='-6' font-size='10'>published {:+.1f} %, {}; keep {:+.1f} %, {}</text>",
                     100 * gain(cell.published, cell.off, 0, count),
                     cell.published.tracked.back() ? "on" : "off", 100 * gain(cell.keep, cell.off, 0, count),
                     cell.keep.tracked.back() ? "on" : "off");
  out += fmt::format("<rect width='{}' height='{}' fill='#fafafa' stroke='#ccc'/>", kCellWidth, kCellHeight);
  const double step = tick_step(scale.most - scale.least);
  for (auto tick = static_cast<int>(std::ceil(scale.least / step)); tick * step <= scale.most; ++tick) {
    const double value = tick * step;
    const bool zero = tick == 0;
    out += fmt::format("<line x1='0' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='{}'/>", kCellWidth,
                       scale.y(value), scale.y(value), zero ? "#999" : "#e6e6e6");
    out += fmt::format("<text x='-4' y='{:.1f}' text-anchor='end' font-size='9'>{:.0f} %</text>",
                       scale.y(value) + 3, 100 * (zero ? 0 : value));
  }
  out += ground(cell.keep, scale, kCellHeight + 2, kKeepColor);
  out += ground(cell.published, scale, kCellHeight + 10, kPublishedColor);
  out += line(course(cell.perfect, cell.off), scale, "stroke='#888' stroke-dasharray='3 2'");
  out += line(course(cell.published, cell.off), scale,
              fmt::format("stroke='{}' stroke-width='1.6'", kPublishedColor));
  out += line(course(cell.keep, cell.off), scale, fmt::format("stroke='{}' stroke-width='1.6'", kKeepColor));
  out += fmt::format("<text x='{}' y='{}' text-anchor='end' font-size='9'>iteration {}</text>", kCellWidth,
                     kCellHeight + 27, count - 1);
  return out;
}

std::string correction_svg(const std::vector<CorrectionCell>& cells) {
  const Scale scale = scale_of(cells);
  std::size_t columns = 0;  // cells with the first fraction
  while (columns < cells.size() && cells[columns].anomaly.fraction == cells[0].anomaly.fraction) ++columns;
  const std::size_t rows = (cells.size() + columns - 1) / columns;
  const double width = kCellWidth + kLeftOfCells + kGap;
  const double height = kTitle + kCellHeight + kFoot;
  std::string out = svg_open(std::max(width * static_cast<double>(columns), kCaptionWidth),
                             height * static_cast<double>(rows) + 24);
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const std::size_t row = c / columns;
    out += fmt::format("<g transform='translate({:.1f},{:.1f})'>{}</g>",
                       width * static_cast<double>(c % columns) + kLeftOfCells,
                       height * static_cast<double>(row) + kTitle, cell_svg(cells[c], scale));
  }
  const double y = height * static_cast<double>(rows) + 14;
  out += fmt::format(
      "<text x='{}' y='{}'>throughput against schedules without correction: <tspan fill='{}'>published "
      "rule</tspan>, <tspan fill='{}'>keep rule</tspan>, perfect knowledge (dashed). Bars below: tracking is "
      "on.</text></svg>",
      kLeftOfCells, y, kPublishedColor, kKeepColor);
  return out;
}

std::string change_of(const DriftMeasure& m) {
  if (m.name == "shape_distance") {
    return fmt::format("{:.0f} % of samples in other shapes ({:.0f} % by chance)", 100 * m.recent,
                       100 * m.most);
  }
  if (m.profile == 0) return m.name + " from none";
  return fmt::format("{} {:+.0f} %", m.name, 100 * (m.recent / m.profile - 1));
}

}  // namespace

Table correction_table(const std::vector<CorrectionCell>& cells) {
  Table table;
  table.columns = {{"slow_fraction", "slow %", 2, 100},
                   {"latency", "latency %", 1, 100},
                   {"off_s", "off s/iter", 4},
                   {"perfect_gain", "perfect %", 2, 100},
                   {"on_gain", "on %", 2, 100},
                   {"on_net_gain", "net %", 2, 100},
                   {"tracking_cost", "cost %", 2, 100},
                   {"published_gain", "published %", 2, 100},
                   {"published_state", "ends"},
                   {"published_since", "since"},
                   {"published_story", "tracking"},
                   {"keep_gain", "keep %", 2, 100},
                   {"keep_state", "ends"},
                   {"keep_since", "since"},
                   {"keep_story", "tracking"}};
  for (const CorrectionCell& cell : cells) {
    const std::size_t count = cell.off.seconds.size();
    double off = 0;
    for (const double seconds : cell.off.seconds) off += seconds / static_cast<double>(count);
    const auto state = [](const CorrectionRun& run) { return run.tracked.back() ? "on" : "off"; };
    const double net = gain(cell.on, cell.off, count / 2, count);
    table.rows.push_back({cell.fraction, cell.anomaly.latency, off,
                          gain(cell.perfect, cell.off, count / 2, count),
                          (1 + net) / (1 - cell.on.cost.value()) - 1, net, cell.published.cost,
                          gain(cell.published, cell.off, 0, count), state(cell.published),
                          cell.published.since(), cell.published.story(), gain(cell.keep, cell.off, 0, count),
                          state(cell.keep), cell.keep.since(), cell.keep.story()});
  }
  return table;
}

Table drift_table(const DriftAdvice& advice) {
  Table table;
  table.columns = {{"measure", "measure"}, {"planned", "planned", 4}, {"now", "now", 4},
                   {"least", "min", 4},    {"most", "max", 4},        {"drifted", "drifted"}};
  for (const DriftMeasure& m : advice.measures) {
    const bool flop = m.name == "encoder_flop" || m.name == "llm_flop";
    const double unit = flop ? 1e-12 : 1;
    table.rows.push_back({flop ? m.name.substr(0, m.name.size() - 4) + "tflop" : m.name, m.profile * unit,
                          m.recent * unit, m.least * unit, m.most * unit, m.drifted()});
  }
  return table;
}

std::string drift_sentence(const DriftAdvice& advice) {
  std::string text;
  for (const DriftMeasure& m : advice.measures) {
    if (!m.drifted()) continue;
    text += text.empty() ? "" : ", ";
    text += change_of(m);
  }
  if (text.empty()) return "the plan still fits: all measures differ by no more than chance explains";
  return (advice.replan ? "re-plan: " : "the plan still fits, drift is small: ") + text;
}

std::string correction_page(const Provenance& made_by, const Plan& plan,
                            const std::vector<CorrectionCell>& cells) {
  return html_page("Adaptive Correction: " + describe(plan),
                   html_lines(provenance_lines(made_by)) +
                       fmt::format("<div class='scroll'>{}</div>\n<div class='scroll'><pre>{}</pre></div>\n",
                                   correction_svg(cells), html_escaped(to_text(correction_table(cells)))));
}

}  // namespace dflop
