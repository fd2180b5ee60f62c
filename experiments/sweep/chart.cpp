#include "experiments/sweep/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>

#include "experiments/charts/charts.hpp"
#include "experiments/trust/spread.hpp"

namespace dflop {
namespace {

constexpr double kPanelWidth = 360;
constexpr double kPanelHeight = 240;
constexpr double kLeft = 66;
constexpr double kTitleLine = 14;
constexpr double kCaptionLine = 16;
constexpr double kBottom = 48;
constexpr double kGap = 24;
constexpr double kHeadroom = 1.06;
constexpr double kLegendLine = 18;
constexpr double kMargin = 8;
constexpr double kCharacter = 6.4;  // pixels, about
constexpr std::size_t kColumns = 3;
constexpr double kCellWidth = kLeft + kPanelWidth + kGap;

constexpr std::array<std::string_view, 8> kColors = {"#4c78a8", "#e8923a", "#54a24b", "#c0392b",
                                                     "#8e6bb0", "#8c6d4f", "#d977b0", "#6b7280"};

bool is_one_of(std::size_t column, std::initializer_list<Axis> axes) {
  return std::any_of(axes.begin(), axes.end(), [&](Axis axis) { return index_of(axis) == column; });
}

bool makes_line(std::size_t column, std::size_t x) {
  return column != x && is_one_of(column, {Axis::planner, Axis::scheduler, Axis::pipeline_schedule});
}

/// Tells whether points of one line may differ in an axis.
bool makes_x(std::size_t column, std::size_t x) {
  if (x < kAxes) return column == x;
  return is_one_of(column, {Axis::model, Axis::data, Axis::modalities});
}

bool is_number(std::size_t column) {
  return sweep_columns()[column].kind != CellKind::text;
}

/// Names a value, as "nodes 4" and "vision_mix".
std::string label_of(const SweepRow& row, std::size_t column) {
  std::string text = plain_text(row.cells[column]);
  if (column == index_of(Axis::data)) return std::filesystem::path(text).stem().string();
  if (is_one_of(column, {Axis::model, Axis::cluster, Axis::pipeline_schedule})) return text;
  return sweep_columns()[column].column.title + " " + text;
}

/// Names the line that a cell's point is on: by planner, scheduler and, with `schedules`, pipeline schedule,
/// but not by x.
std::string line_name(const SweepRow& row, std::size_t x, bool schedules) {
  std::string name;
  const auto add = [&](Axis axis, std::string_view between) {
    if (index_of(axis) == x) return;
    if (!name.empty()) name += between;
    name += row.text(axis);
  };
  add(Axis::planner, "");
  add(Axis::scheduler, " + ");
  if (schedules) add(Axis::pipeline_schedule, ", ");
  return name.empty() ? "all" : name;
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

double value_of(const SweepRow& row, std::size_t column) {
  const Cell& cell = row.cells[column];
  const double value = std::holds_alternative<double>(cell)
                           ? std::get<double>(cell)
                           : static_cast<double>(std::get<std::int64_t>(cell));
  return value * sweep_columns()[column].column.scale;
}

/// Returns the values of an axis of names, each once, in their order; nothing for numbers.
std::vector<std::string> places_of(const std::vector<SweepRow>& rows, std::size_t x) {
  if (is_number(x)) return {};
  std::set<std::string> names;
  for (const SweepRow& row : rows) names.insert(plain_text(row.cells[x]));
  return {names.begin(), names.end()};
}

double x_of(const SweepRow& row, std::size_t x, const std::vector<std::string>& places) {
  if (places.empty()) return value_of(row, x);
  const auto place = std::lower_bound(places.begin(), places.end(), plain_text(row.cells[x]));
  return static_cast<double>(place - places.begin() + 1);
}

std::string name_of(std::size_t x) {
  if (x == index_of(Measure::flop_ratio)) return "encoder FLOP / LLM FLOP";
  if (x == index_of(Measure::heterogeneity)) return "coefficient of variation of a sample's FLOP";
  return sweep_columns()[x].column.title;
}

bool has_result(const SweepRow& row, std::size_t y) {
  return row.has_status("ok") && !std::holds_alternative<std::monostate>(row.cells[y]);
}

/// Seeds make one point.
struct Seeds {
  const SweepRow* first = nullptr;
  double x = 0;  ///< sum
  std::vector<double> ys;
  int missing = 0;  ///< without a result
};

SweepPoint point_of(const Seeds& seeds, std::string label) {
  const Spread spread = spread_of(seeds.ys);
  return {.x = seeds.x / static_cast<double>(spread.count),
          .y = spread.mean,
          .least = spread.least,
          .most = spread.most,
          .low = spread.mean - spread.half_width,
          .high = spread.mean + spread.half_width,
          .label = std::move(label),
          .seeds = static_cast<int>(spread.count),
          .missing = seeds.missing};
}

/// Points are told apart by all axes but the seed. x would not do as a key: two data sets may have the same.
/// One of which no seed has a result is none.
std::map<std::vector<Cell>, Seeds> points_of_seeds(const std::vector<SweepRow>& rows, std::size_t x,
                                                   std::size_t y, const std::vector<std::string>& places) {
  std::map<std::vector<Cell>, Seeds> points;
  for (const SweepRow& row : rows) {
    std::vector<Cell> key(row.axes().begin(), row.axes().end());
    if (x != index_of(Axis::seed)) key[index_of(Axis::seed)] = {};
    Seeds& point = points[key];
    if (!has_result(row, y)) {
      ++point.missing;
      continue;
    }
    if (point.first == nullptr) point.first = &row;
    point.x += x_of(row, x, places);
    point.ys.push_back(value_of(row, y));
  }
  std::erase_if(points, [](const auto& point) { return point.second.ys.empty(); });
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

/// Returns the text, shortened in its middle to fit into `pixels` pixels. Hovering shows the whole text.
std::string fitted_text(double x, double y, std::string_view anchor, const std::string& text, double pixels) {
  const auto most = static_cast<std::size_t>(std::max(4.0, pixels / kCharacter));
  if (text.size() <= most) return svg_text(x, y, anchor, text);
  const std::size_t half = (most - 2) / 2;
  const std::string shown = text.substr(0, half) + ".." + text.substr(text.size() - half);
  return fmt::format("<g><title>{}</title>{}</g>", html_escaped(text), svg_text(x, y, anchor, shown));
}

std::string x_line(const Scale& scale, double at) {
  return fmt::format("<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#ececec'/>", at,
                     scale.y0, scale.y0 - kPanelHeight);
}

std::string grid(const Scale& scale, const SweepPicture& picture) {
  std::string out;
  for (std::size_t i = 0; i < picture.places.size(); ++i) {
    const double at = scale.x(static_cast<double>(i + 1));
    const double room = kPanelWidth / (static_cast<double>(picture.places.size()) + 1) - 4;
    out += x_line(scale, at) + fitted_text(at, scale.y0 + 14, "middle", picture.places[i], room);
  }
  const bool whole = sweep_columns()[picture.x].kind == CellKind::whole;
  const double x_step = whole ? std::max(1.0, tick_step(scale.most_x)) : tick_step(scale.most_x);
  for (int i = 0; picture.places.empty() && i * x_step <= scale.most_x; ++i) {
    const double at = scale.x(i * x_step);
    out += x_line(scale, at);
    out += svg_text(at, scale.y0 + 14, "middle", fmt::format("{:.{}f}", i * x_step, tick_decimals(x_step)));
  }
  const double y_step = tick_step(scale.most_y);
  for (int i = 0; i * y_step <= scale.most_y; ++i) {
    const double at = scale.y(i * y_step);
    out += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#ececec'/>", scale.x0,
                       at, scale.x0 + kPanelWidth, at);
    out += svg_text(scale.x0 - 6, at + 4, "end", fmt::format("{:.{}f}", i * y_step, tick_decimals(y_step)));
  }
  return out;
}

/// Returns the scale of all panels, which differ in where they are.
Scale common_scale(const SweepPicture& picture) {
  Scale scale{0, 0, 0, 0};
  if (!picture.places.empty()) scale.most_x = static_cast<double>(picture.places.size()) + 1;
  for (const SweepPanel& panel : picture.panels) {
    for (const auto& [name, points] : panel.lines) {
      for (const SweepPoint& point : points) {
        if (picture.places.empty()) scale.most_x = std::max(scale.most_x, point.x * kHeadroom);
        scale.most_y = std::max(scale.most_y, point.high * kHeadroom);
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

/// Colors repeat with another dash.
std::string style_of(std::size_t line) {
  const std::size_t dash = 2 * (line / kColors.size());
  const std::string dashes = dash == 0 ? "" : fmt::format(" stroke-dasharray='{} 3'", 2 + dash);
  return fmt::format("stroke='{}' fill='none' stroke-width='2'{}", kColors[line % kColors.size()], dashes);
}

/// Draws a mark of the line's own shape, open for lines whose color repeats, so that points that lie over
/// one another, and lines of one point, are told apart; open, too, where seeds are missing.
std::string mark(double x, double y, std::size_t line, const std::string& title, bool hollow = false) {
  const std::string_view color = kColors[line % kColors.size()];
  const std::string style =
      (title.empty() ? "" : "class='point' ") +
      fmt::format("fill='{}' stroke='{}' stroke-width='1.5'",
                  line < kColors.size() && !hollow ? color : std::string_view("#fff"), color);
  const std::string inside = title.empty() ? "" : fmt::format("<title>{}</title>", html_escaped(title));
  const auto path = [&](const std::string& d) {
    return fmt::format("<path d='{}' {}>{}</path>", d, style, inside);
  };
  switch (line % 5) {
    case 0:
      return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4' {}>{}</circle>", x, y, style, inside);
    case 1:
      return path(fmt::format("M {:.1f} {:.1f} h 6 v 6 h -6 z", x - 3, y - 3));
    case 2:
      return path(fmt::format("M {:.1f} {:.1f} l 4 7 h -8 z", x, y - 4));
    case 3:
      return path(fmt::format("M {:.1f} {:.1f} l 4.5 4.5 l -4.5 4.5 l -4.5 -4.5 z", x, y - 4.5));
    default:
      return path(fmt::format("M {:.1f} {:.1f} l -4 -7 h 8 z", x, y + 4));
  }
}

std::string line_svg(const std::vector<SweepPoint>& points, const Scale& scale, std::size_t line) {
  std::string path;
  std::string bars;
  std::string marks;
  for (const SweepPoint& point : points) {
    const double x = scale.x(point.x);
    path += fmt::format("{:.1f},{:.1f} ", x, scale.y(point.y));
    if (point.high > point.low) {
      bars += fmt::format(
          "<path d='M {0:.1f} {1:.1f} h 6 m -3 0 V {2:.1f} m -3 0 h 6' stroke='{3}' fill='none'/>", x - 3,
          scale.y(point.high), scale.y(std::max(0.0, point.low)), kColors[line % kColors.size()]);
    }
    const std::string range =
        point.most > point.least
            ? fmt::format(" (95 % interval of the mean: {:.4g} to {:.4g}; seeds from {:.4g} to {:.4g})",
                          point.low, point.high, point.least, point.most)
            : "";
    const std::string of_seeds =
        point.missing > 0 ? fmt::format("{} of {}", point.seeds, point.seeds + point.missing) : "";
    marks += mark(x, scale.y(point.y), line,
                  fmt::format("{}{}{:.4g}, {:.4g}{}{}", point.label, point.label.empty() ? "" : ": ", point.x,
                              point.y, range, of_seeds.empty() ? "" : "; " + of_seeds + " seeds"),
                  point.missing > 0);
    if (!of_seeds.empty()) marks += svg_text(x - 7, scale.y(point.y) - 7, "end", of_seeds);
  }
  return fmt::format("<polyline points='{}' {}/>", path, style_of(line)) + bars + marks;
}

/// Returns the length without spaces at the end.
std::size_t shown_length(std::string_view text) {
  return text.find_last_not_of(' ') + 1;
}

/// Adds a part of a text to its last line, or to a new one where that would be too long.
void add_part(std::vector<std::string>& lines, std::string_view part, std::size_t most) {
  if (!lines.back().empty() && lines.back().size() + shown_length(part) > most) lines.emplace_back();
  lines.back() += part;
}

/// Returns the text up to and with the first of some marks; all of it if there is none.
std::string_view up_to(std::string_view text, std::initializer_list<std::string_view> marks) {
  std::size_t end = text.size();
  for (const std::string_view mark : marks) {
    const std::size_t at = text.find(mark);
    if (at != std::string_view::npos) end = std::min(end, at + mark.size());
  }
  return text.substr(0, end);
}

/// Breaks a text into lines of at most `pixels` pixels: after commas and semicolons, and between words in
/// parts that are too long for a line.
std::vector<std::string> title_lines(std::string_view title, double pixels) {
  const auto most = static_cast<std::size_t>(pixels / kCharacter);
  std::vector<std::string> lines = {""};
  while (!title.empty()) {
    std::string_view part = up_to(title, {", ", "; "});
    title.remove_prefix(part.size());
    if (shown_length(part) <= most) {
      add_part(lines, part, most);
      continue;
    }
    while (!part.empty()) {
      const std::string_view word = up_to(part, {" "});
      part.remove_prefix(word.size());
      add_part(lines, word, most);
    }
  }
  for (std::string& line : lines) line.erase(shown_length(line));
  return lines;
}

std::string panel_svg(const SweepPicture& picture, const SweepPanel& panel, const Scale& scale,
                      const std::vector<std::string>& names) {
  std::string out = grid(scale, picture);
  const std::vector<std::string> title = title_lines(panel.title, kPanelWidth);
  for (std::size_t i = 0; i < title.size(); ++i) {
    const double up = kTitleLine * static_cast<double>(title.size() - i);
    out += fitted_text(scale.x0 + kPanelWidth / 2, scale.y0 - kPanelHeight - 10 - up, "middle", title[i],
                       kPanelWidth);
  }
  out += svg_text(scale.x0 + kPanelWidth / 2, scale.y0 + 32, "middle", name_of(picture.x));
  out += svg_text(scale.x0 - kLeft + 4, scale.y0 - kPanelHeight - 10, "start",
                  sweep_columns()[picture.y].column.title);
  for (const auto& [name, points] : panel.lines) {
    const auto line = std::lower_bound(names.begin(), names.end(), name) - names.begin();
    out += line_svg(points, scale, static_cast<std::size_t>(line));
  }
  return out;
}

std::vector<std::string> caption_lines(const SweepPicture& picture, double pixels) {
  std::string caption = picture.caption;
  if (picture.has_seeds) caption += "; means over seeds, bars are their 95 % intervals";
  if (picture.lacks_seeds)
    caption +=
        "; hollow: means of only the seeds that have a result, such as 2 of "
        "3";
  return title_lines(caption, pixels);
}

std::string legend(const std::vector<std::string>& names, double top, double width) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double y = top + kLegendLine * static_cast<double>(i + 1);
    out += fmt::format("<line x1='{:.0f}' y1='{:.0f}' x2='{:.0f}' y2='{:.0f}' {}/>", kLeft, y, kLeft + 26, y,
                       style_of(i));
    out += mark(kLeft + 13, y, i, "") + fitted_text(kLeft + 34, y + 4, "start", names[i], width - kLeft - 40);
  }
  return out;
}

}  // namespace

std::vector<std::string_view> sweep_x_names() {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < kAxes; ++i) names.push_back(sweep_columns()[i].column.key);
  names.insert(names.end(), {"flop_ratio", "heterogeneity"});
  return names;
}

std::vector<std::string_view> sweep_y_names() {
  std::vector<std::string_view> names;
  for (std::size_t i = kAxes; i < sweep_columns().size(); ++i) {
    if (is_number(i)) names.push_back(sweep_columns()[i].column.key);
  }
  return names;
}

SweepPicture sweep_picture(const std::vector<SweepRow>& all, std::size_t x, std::size_t y) {
  std::vector<SweepRow> rows = all;
  std::erase_if(rows, [](const SweepRow& row) { return !row.has_status("ok"); });
  const auto makes_panel = [&](std::size_t c) {
    return !makes_line(c, x) && !makes_x(c, x) && c != index_of(Axis::seed);
  };
  const auto panel_axes = axes_where([&](std::size_t c) { return makes_panel(c) && varies(rows, c); });
  const auto common_axes = axes_where([&](std::size_t c) { return !makes_line(c, x) && !varies(rows, c); });
  const auto point_axes = axes_where([&](std::size_t c) { return makes_x(c, x) && varies(rows, c); });
  const bool schedules = varies(rows, index_of(Axis::pipeline_schedule));
  SweepPicture picture{x, places_of(rows, x), y, joined_labels(rows.front(), common_axes)};
  std::map<std::string, std::size_t> panel_of;
  for (const auto& [key, seeds] : points_of_seeds(all, x, y, picture.places)) {
    const SweepRow& row = *seeds.first;
    const std::string title = joined_labels(row, panel_axes);
    const auto [panel, is_new] = panel_of.try_emplace(title, picture.panels.size());
    if (is_new) picture.panels.push_back({title, {}});
    picture.has_seeds = picture.has_seeds || seeds.ys.size() > 1;
    picture.lacks_seeds = picture.lacks_seeds || seeds.missing > 0;
    picture.panels[panel->second].lines[line_name(row, x, schedules)].push_back(
        point_of(seeds, joined_labels(row, point_axes)));
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
  const std::size_t columns = std::clamp<std::size_t>(panels.size(), 1, kColumns);
  const std::size_t rows = (panels.size() + kColumns - 1) / kColumns;
  const double width = kCellWidth * static_cast<double>(columns);
  const std::vector<std::string> caption = caption_lines(picture, width - 2 * kMargin);
  const double captioned = 12 + kCaptionLine * static_cast<double>(caption.size() - 1);
  const double head = captioned + kLegendLine * static_cast<double>(names.size() + 1);
  std::size_t lines = 1;
  for (const SweepPanel& panel : panels)
    lines = std::max(lines, title_lines(panel.title, kPanelWidth).size());
  const double top = kTitleLine * static_cast<double>(lines) + 16;
  const double cell_height = top + kPanelHeight + kBottom;
  const double height = head + cell_height * static_cast<double>(rows);
  std::string out = svg_open(width, height);
  out += fmt::format("<rect width='{:.0f}' height='{:.0f}' fill='#fff'/>", width, height);
  for (std::size_t i = 0; i < caption.size(); ++i) {
    out += fitted_text(kMargin, 16 + kCaptionLine * static_cast<double>(i), "start", caption[i],
                       width - 2 * kMargin);
  }
  out += legend(names, captioned, width);
  Scale scale = common_scale(picture);
  for (std::size_t p = 0; p < panels.size(); ++p) {
    scale.x0 = kCellWidth * static_cast<double>(p % kColumns) + kLeft;
    const std::size_t row = p / kColumns;
    scale.y0 = head + cell_height * static_cast<double>(row) + top + kPanelHeight;
    out += panel_svg(picture, panels[p], scale, names);
  }
  return out + "</svg>\n";
}

}  // namespace dflop
