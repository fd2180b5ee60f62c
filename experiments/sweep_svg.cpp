#include "experiments/sweep_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>

#include "experiments/html.hpp"
#include "experiments/svg.hpp"

namespace dflop {
namespace {

constexpr double kPanelWidth = 360;
constexpr double kPanelHeight = 240;
constexpr double kLeft = 66;
constexpr double kTop = 26;
constexpr double kBottom = 48;
constexpr double kGap = 24;
constexpr double kHeadroom = 1.06;
constexpr double kLegendLine = 18;
constexpr std::size_t kColumns = 3;

constexpr std::array<std::string_view, 8> kColours = {"#4c78a8", "#e8923a", "#54a24b", "#c0392b",
                                                      "#8e6bb0", "#8c6d4f", "#d977b0", "#6b7280"};

bool is_one_of(std::size_t column, std::initializer_list<Axis> axes) {
  return std::any_of(axes.begin(), axes.end(), [&](Axis axis) { return index_of(axis) == column; });
}

bool makes_line(std::size_t column) {
  return is_one_of(column, {Axis::planner, Axis::scheduler, Axis::pipeline_schedule});
}

bool makes_x(std::size_t column, SweepX x) {
  if (x == SweepX::nodes) return is_one_of(column, {Axis::nodes});
  return is_one_of(column, {Axis::model, Axis::data, Axis::modalities});
}

/// "nodes 4", "vision_mix": what a value is told by.
std::string label_of(const SweepRow& row, std::size_t column) {
  const std::string text = plain_text(row.cells[column]);
  if (column == index_of(Axis::data)) return std::filesystem::path(text).stem().string();
  if (std::holds_alternative<std::string>(row.cells[column])) return text;
  return sweep_columns()[column].column.title + " " + text;
}

/// The columns below kAxes that `choose` takes and that have several values.
template <typename Choose>
std::vector<std::size_t> varying(const std::vector<SweepRow>& rows, const Choose& choose) {
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < kAxes; ++c) {
    const auto differs = [&](const SweepRow& row) { return row.cells[c] != rows.front().cells[c]; };
    if (choose(c) && std::any_of(rows.begin(), rows.end(), differs)) columns.push_back(c);
  }
  return columns;
}

std::string joined_labels(const SweepRow& row, const std::vector<std::size_t>& columns,
                          std::string_view between) {
  std::string text;
  for (const std::size_t c : columns) {
    if (!text.empty()) text += between;
    text += label_of(row, c);
  }
  return text;
}

double value_of(const SweepRow& row, Measure measure) {
  const Cell& cell = row[measure];
  const double value = std::holds_alternative<double>(cell)
                           ? std::get<double>(cell)
                           : static_cast<double>(std::get<std::int64_t>(cell));
  return value * sweep_columns()[index_of(measure)].column.scale;
}

double x_of(const SweepRow& row, SweepX x) {
  if (x == SweepX::nodes) return static_cast<double>(row.whole(Axis::nodes));
  return value_of(row, x == SweepX::flop_ratio ? Measure::flop_ratio : Measure::heterogeneity);
}

std::string name_of(SweepX x) {
  if (x == SweepX::nodes) return "nodes";
  return x == SweepX::flop_ratio ? "encoder FLOP / LLM FLOP" : "coefficient of variation of a sample's FLOP";
}

/// Sums over the seeds of one point.
struct Sum {
  SweepPoint sum;
  double count = 0;
};

/// Data to pixels of one panel.
struct Scale {
  double x0 = 0;
  double y0 = 0;  ///< of the lower left corner
  double most_x = 1;
  double most_y = 1;

  double x(double value) const { return x0 + kPanelWidth * value / most_x; }
  double y(double value) const { return y0 - kPanelHeight * value / most_y; }
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>", x, y, anchor,
                     html_escaped(text));
}

std::string grid(const Scale& scale, SweepX x) {
  std::string out;
  const double x_step = x == SweepX::nodes ? std::max(1.0, tick_step(scale.most_x)) : tick_step(scale.most_x);
  for (int i = 0; i * x_step <= scale.most_x; ++i) {
    const double at = scale.x(i * x_step);
    out += fmt::format("<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#ececec'/>", at,
                       scale.y0, scale.y0 - kPanelHeight);
    out += text_at(at, scale.y0 + 14, "middle", fmt::format("{:.{}f}", i * x_step, tick_decimals(x_step)));
  }
  const double y_step = tick_step(scale.most_y);
  for (int i = 0; i * y_step <= scale.most_y; ++i) {
    const double at = scale.y(i * y_step);
    out += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#ececec'/>", scale.x0,
                       at, scale.x0 + kPanelWidth, at);
    out += text_at(scale.x0 - 6, at + 4, "end", fmt::format("{:.{}f}", i * y_step, tick_decimals(y_step)));
  }
  return out;
}

/// Colours repeat with another dash.
std::string style_of(std::size_t line) {
  const std::size_t dash = 2 * (line / kColours.size());
  const std::string dashes = dash == 0 ? "" : fmt::format(" stroke-dasharray='{} 3'", 2 + dash);
  return fmt::format("stroke='{}' fill='none' stroke-width='2'{}", kColours[line % kColours.size()], dashes);
}

std::string line_svg(const std::vector<SweepPoint>& points, const Scale& scale, std::size_t line) {
  std::string path;
  std::string marks;
  for (const SweepPoint& point : points) {
    path += fmt::format("{:.1f},{:.1f} ", scale.x(point.x), scale.y(point.y));
    marks += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'><title>{}{}{:.4g}, {:.4g}</title></circle>",
        scale.x(point.x), scale.y(point.y), kColours[line % kColours.size()], html_escaped(point.label),
        point.label.empty() ? "" : ": ", point.x, point.y);
  }
  return fmt::format("<polyline points='{}' {}/>", path, style_of(line)) + marks;
}

std::string panel_svg(const SweepPanel& panel, const Scale& scale, SweepX x, Measure y,
                      const std::vector<std::string>& names) {
  std::string out = grid(scale, x);
  out += text_at(scale.x0 + kPanelWidth / 2, scale.y0 - kPanelHeight - 10, "middle", panel.title);
  out += text_at(scale.x0 + kPanelWidth / 2, scale.y0 + 32, "middle", name_of(x));
  out +=
      text_at(scale.x0 - 6, scale.y0 - kPanelHeight - 10, "end", sweep_columns()[index_of(y)].column.title);
  for (const auto& [name, points] : panel.lines) {
    const auto line = std::lower_bound(names.begin(), names.end(), name) - names.begin();
    out += line_svg(points, scale, static_cast<std::size_t>(line));
  }
  return out;
}

std::string legend(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double y = 12 + kLegendLine * static_cast<double>(i);
    out += fmt::format("<line x1='{:.0f}' y1='{:.0f}' x2='{:.0f}' y2='{:.0f}' {}/>", kLeft, y, kLeft + 26, y,
                       style_of(i));
    out += text_at(kLeft + 34, y + 4, "start", names[i]);
  }
  return out;
}

}  // namespace

std::optional<SweepX> sweep_x_from_string(std::string_view name) {
  if (name == "nodes") return SweepX::nodes;
  if (name == "flop_ratio") return SweepX::flop_ratio;
  if (name == "heterogeneity") return SweepX::heterogeneity;
  return std::nullopt;
}

std::vector<SweepPanel> sweep_panels(const std::vector<SweepRow>& rows, SweepX x, Measure y) {
  const auto line_columns = varying(rows, [](std::size_t c) {
    return makes_line(c) && c != index_of(Axis::planner) && c != index_of(Axis::scheduler);
  });
  const auto label_columns =
      varying(rows, [&](std::size_t c) { return x != SweepX::nodes && makes_x(c, x); });
  const auto panel_columns = varying(
      rows, [&](std::size_t c) { return !makes_line(c) && !makes_x(c, x) && c != index_of(Axis::seed); });
  // Panel, line and point, in the order of their first cells and of their names; x alone would not do, as two
  // data sets may have the same.
  std::vector<SweepPanel> panels;
  std::map<std::vector<Cell>, std::map<std::string, std::map<std::vector<Cell>, Sum>>> sums;
  std::vector<std::vector<Cell>> order;
  for (const SweepRow& row : rows) {
    std::vector<Cell> panel;
    for (const std::size_t c : panel_columns) panel.push_back(row.cells[c]);
    std::vector<Cell> point;
    for (std::size_t c = 0; c < kAxes; ++c) {
      if (makes_x(c, x)) point.push_back(row.cells[c]);
    }
    if (sums.count(panel) == 0) {
      order.push_back(panel);
      panels.push_back({joined_labels(row, panel_columns, ", "), {}});
    }
    std::string line = row.text(Axis::planner) + " + " + row.text(Axis::scheduler);
    if (!line_columns.empty()) line += ", " + joined_labels(row, line_columns, ", ");
    Sum& sum = sums[panel][line][point];
    sum.sum.x += x_of(row, x);
    sum.sum.y += value_of(row, y);
    sum.sum.label = joined_labels(row, label_columns, ", ");
    ++sum.count;
  }
  for (std::size_t p = 0; p < panels.size(); ++p) {
    for (const auto& [name, points] : sums[order[p]]) {
      std::vector<SweepPoint>& line = panels[p].lines[name];
      for (const auto& [key, sum] : points) {
        line.push_back({sum.sum.x / sum.count, sum.sum.y / sum.count, sum.sum.label});
      }
      std::stable_sort(line.begin(), line.end(),
                       [](const SweepPoint& a, const SweepPoint& b) { return a.x < b.x; });
    }
  }
  return panels;
}

std::string sweep_svg(const std::vector<SweepPanel>& panels, SweepX x, Measure y) {
  std::set<std::string> unique;
  double most_x = 0;
  double most_y = 0;
  for (const SweepPanel& panel : panels) {
    for (const auto& [name, points] : panel.lines) {
      unique.insert(name);
      for (const SweepPoint& point : points) {
        most_x = std::max(most_x, point.x);
        most_y = std::max(most_y, point.y);
      }
    }
  }
  const std::vector<std::string> names(unique.begin(), unique.end());
  const double head = 12 + kLegendLine * static_cast<double>(names.size());
  const std::size_t columns = std::min(kColumns, panels.size());
  const std::size_t lines = (panels.size() + kColumns - 1) / kColumns;
  const double cell_width = kLeft + kPanelWidth + kGap;
  const double cell_height = kTop + kPanelHeight + kBottom;
  const double width = cell_width * static_cast<double>(columns);
  const double height = head + cell_height * static_cast<double>(lines);
  std::string out = svg_open(width, height);
  out += fmt::format("<rect width='{:.0f}' height='{:.0f}' fill='#fff'/>", width, height) + legend(names);
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const Scale scale{cell_width * static_cast<double>(p % kColumns) + kLeft,
                      head + cell_height * static_cast<double>(p / kColumns) + kTop + kPanelHeight,
                      most_x > 0 ? most_x * kHeadroom : 1, most_y > 0 ? most_y * kHeadroom : 1};
    out += panel_svg(panels[p], scale, x, y, names);
  }
  return out + "</svg>\n";
}

}  // namespace dflop
