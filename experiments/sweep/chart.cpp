#include "experiments/sweep/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>

#include "experiments/charts/charts.hpp"

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
constexpr double kCellWidth = kLeft + kPanelWidth + kGap;
constexpr double kCellHeight = kTop + kPanelHeight + kBottom;

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

/// Names a value, as "nodes 4" and "vision_mix".
std::string label_of(const SweepRow& row, std::size_t column) {
  std::string text = plain_text(row.cells[column]);
  if (column == index_of(Axis::data)) return std::filesystem::path(text).stem().string();
  if (is_one_of(column, {Axis::model, Axis::cluster, Axis::pipeline_schedule})) return text;
  return sweep_columns()[column].column.title + " " + text;
}

/// Returns the axes that `choose` takes.
template <typename Choose>
std::vector<std::size_t> axes_where(const Choose& choose) {
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < kAxes; ++c) {
    if (choose(c)) columns.push_back(c);
  }
  return columns;
}

std::string joined_labels(const SweepRow& row, const std::vector<std::size_t>& columns) {
  std::string text;
  for (const std::size_t c : columns) text += (text.empty() ? "" : ", ") + label_of(row, c);
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

/// Seeds make one point, with the sums over them.
struct Seeds {
  const SweepRow* first = nullptr;
  double x = 0;
  double y = 0;
  double count = 0;
};

/// Points are told apart by all axes but the seed. x would not do as a key: two data sets may have the same.
std::map<std::vector<Cell>, Seeds> sums_over_seeds(const std::vector<SweepRow>& rows, SweepX x, Measure y) {
  std::map<std::vector<Cell>, Seeds> points;
  for (const SweepRow& row : rows) {
    std::vector<Cell> key(row.axes().begin(), row.axes().end());
    key[index_of(Axis::seed)] = {};
    Seeds& point = points[key];
    if (point.first == nullptr) point.first = &row;
    point.x += x_of(row, x);
    point.y += value_of(row, y);
    ++point.count;
  }
  return points;
}

/// A Scale turns data into pixels of one panel.
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

/// Returns the scale of all panels, which differ in where they are.
Scale common_scale(const std::vector<SweepPanel>& panels) {
  Scale scale{0, 0, 0, 0};
  for (const SweepPanel& panel : panels) {
    for (const auto& [name, points] : panel.lines) {
      for (const SweepPoint& point : points) {
        scale.most_x = std::max(scale.most_x, point.x * kHeadroom);
        scale.most_y = std::max(scale.most_y, point.y * kHeadroom);
      }
    }
  }
  if (scale.most_x == 0) scale.most_x = 1;
  if (scale.most_y == 0) scale.most_y = 1;
  return scale;
}

std::vector<std::string> line_names(const std::vector<SweepPanel>& panels) {
  std::set<std::string> names;
  for (const SweepPanel& panel : panels) {
    for (const auto& [name, points] : panel.lines) names.insert(name);
  }
  return {names.begin(), names.end()};
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

std::string panel_svg(const SweepPicture& picture, const SweepPanel& panel, const Scale& scale,
                      const std::vector<std::string>& names) {
  std::string out = grid(scale, picture.x);
  out += text_at(scale.x0 + kPanelWidth / 2, scale.y0 - kPanelHeight - 10, "middle", panel.title);
  out += text_at(scale.x0 + kPanelWidth / 2, scale.y0 + 32, "middle", name_of(picture.x));
  out += text_at(scale.x0 - 6, scale.y0 - kPanelHeight - 10, "end",
                 sweep_columns()[index_of(picture.y)].column.title);
  for (const auto& [name, points] : panel.lines) {
    const auto line = std::lower_bound(names.begin(), names.end(), name) - names.begin();
    out += line_svg(points, scale, static_cast<std::size_t>(line));
  }
  return out;
}

std::string legend(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double y = 12 + kLegendLine * static_cast<double>(i + 1);
    out += fmt::format("<line x1='{:.0f}' y1='{:.0f}' x2='{:.0f}' y2='{:.0f}' {}/>", kLeft, y, kLeft + 26, y,
                       style_of(i));
    out += text_at(kLeft + 34, y + 4, "start", names[i]);
  }
  return out;
}

}  // namespace

SweepPicture sweep_picture(const std::vector<SweepRow>& rows, SweepX x, Measure y) {
  const auto makes_panel = [&](std::size_t c) {
    return !makes_line(c) && !makes_x(c, x) && c != index_of(Axis::seed);
  };
  const auto panel_axes = axes_where([&](std::size_t c) { return makes_panel(c) && varies(rows, c); });
  const auto common_axes = axes_where([&](std::size_t c) { return !makes_line(c) && !varies(rows, c); });
  const auto point_axes = axes_where([&](std::size_t c) { return makes_x(c, x) && varies(rows, c); });
  const bool schedules = varies(rows, index_of(Axis::pipeline_schedule));
  SweepPicture picture{x, y, joined_labels(rows.front(), common_axes), {}};
  std::map<std::string, std::size_t> panel_of;
  for (const auto& [key, point] : sums_over_seeds(rows, x, y)) {
    const SweepRow& row = *point.first;
    const std::string title = joined_labels(row, panel_axes);
    const auto [panel, is_new] = panel_of.try_emplace(title, picture.panels.size());
    if (is_new) picture.panels.push_back({title, {}});
    std::string name = row.text(Axis::planner) + " + " + row.text(Axis::scheduler);
    if (schedules) name += ", " + row.text(Axis::pipeline_schedule);
    picture.panels[panel->second].lines[name].push_back(
        {point.x / point.count, point.y / point.count, joined_labels(row, point_axes)});
  }
  for (SweepPanel& panel : picture.panels) {
    for (auto& [name, points] : panel.lines) {
      std::stable_sort(points.begin(), points.end(),
                       [](const SweepPoint& a, const SweepPoint& b) { return a.x < b.x; });
    }
  }
  return picture;
}

std::string sweep_svg(const SweepPicture& picture) {
  const std::vector<SweepPanel>& panels = picture.panels;
  const std::vector<std::string> names = line_names(panels);
  const double head = kLegendLine * static_cast<double>(names.size() + 1) + 12;
  const std::size_t columns = std::min(kColumns, panels.size());
  const std::size_t rows = (panels.size() + kColumns - 1) / kColumns;
  const double width = kCellWidth * static_cast<double>(columns);
  const double height = head + kCellHeight * static_cast<double>(rows);
  std::string out = svg_open(width, height);
  out += fmt::format("<rect width='{:.0f}' height='{:.0f}' fill='#fff'/>", width, height);
  out += text_at(kLeft, 16, "start", picture.caption) + legend(names);
  Scale scale = common_scale(panels);
  for (std::size_t p = 0; p < panels.size(); ++p) {
    scale.x0 = kCellWidth * static_cast<double>(p % kColumns) + kLeft;
    const std::size_t row = p / kColumns;
    scale.y0 = head + kCellHeight * static_cast<double>(row) + kTop + kPanelHeight;
    out += panel_svg(picture, panels[p], scale, names);
  }
  return out + "</svg>\n";
}

}  // namespace dflop
