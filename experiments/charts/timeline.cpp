#include "experiments/charts/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace dflop {
namespace {

constexpr double kRowHeight = 16;
constexpr std::size_t kMaxRows = 48;
constexpr std::size_t kMaxRowsWithPath = 128;
constexpr std::string_view kPathColor = "#d1003f";
constexpr double kMaxBarsPerPixel = 4;
constexpr double kPale = 0.38;  // opacity of everything off the path

enum Paint : std::uint8_t { forward, backward, waiting, reduction, optimizer };

struct PaintStyle {
  std::string_view color;
  std::string_view meaning;
};

constexpr std::array<PaintStyle, 5> kPaints = {{{"#4c78a8", "forward"},
                                                {"#e8923a", "backward"},
                                                {"#d8d8d8", "blocked on a message"},
                                                {"#8e6bbf", "gradient all-reduce"},
                                                {"#54a24b", "optimizer step"}}};

std::optional<Paint> paint_of(Op op) {
  switch (op) {
    case Op::forward:
      return forward;
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
      return backward;
    case Op::receive:
    case Op::reshard_receive:
      return waiting;
    case Op::all_reduce:
    case Op::all_reduce_wait:
      return reduction;
    case Op::optimizer_step:
      return optimizer;
    case Op::send:
    case Op::reshard_send:
    case Op::all_reduce_start:
      break;  // these overlap with the computation
  }
  return std::nullopt;
}

/// A Bar is one piece of a group's work, in pixels. A bar without paint is not drawn.
struct Bar {
  double begin;
  double end;
  std::optional<Paint> paint;
};

/// Makes the bar of a Span or a PathLink.
template <typename Work>
Bar bar_of(const Work& work, double pixels_per_ns) {
  const double begin = static_cast<double>(work.start.count()) * pixels_per_ns;
  const double end = begin + static_cast<double>(work.duration.count()) * pixels_per_ns;
  return {begin, end, work.duration.count() == 0 ? std::nullopt : paint_of(work.op)};
}

/// Returns the groups to draw: all of them, or the groups of the path plus an even selection of the others.
std::vector<std::size_t> chosen_groups(std::size_t groups, const std::vector<PathLink>& path) {
  const std::size_t count = std::min(groups, path.empty() ? kMaxRows : kMaxRowsWithPath);
  std::set<std::size_t> rows;
  for (const PathLink& link : path) {
    if (rows.size() < count) rows.insert(static_cast<std::size_t>(link.group));
  }
  std::vector<std::size_t> others;
  for (std::size_t g = 0; g < groups; ++g) {
    if (rows.count(g) == 0) others.push_back(g);
  }
  const std::size_t more = count - rows.size();
  for (std::size_t r = 0; r < more; ++r) rows.insert(others[r * others.size() / more]);
  return {rows.begin(), rows.end()};
}

std::string rectangle(double x, double y, double width, Paint paint) {
  return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'/>", x, y, width,
                     kRowHeight - 3, kPaints[paint].color);
}

/// Draws the bars of one group when there are too many to see: each pixel gets the color that covers most of
/// it.
std::string pixel_bars(const std::vector<Bar>& bars, double y) {
  constexpr auto kPixels = static_cast<std::size_t>(kPlotWidth);
  std::vector<std::array<double, kPaints.size()>> filled(kPixels);
  for (const Bar& bar : bars) {
    if (!bar.paint) continue;
    double from = bar.begin;
    const double to = std::min(bar.end, kPlotWidth);
    while (from < to) {
      const double pixel = std::floor(from);
      const double until = std::min(pixel + 1, to);
      filled[static_cast<std::size_t>(pixel)][*bar.paint] += until - from;
      from = until;
    }
  }
  const auto paint_at = [&](std::size_t x) -> std::optional<Paint> {
    const auto most = std::max_element(filled[x].begin(), filled[x].end());
    if (*most == 0) return std::nullopt;
    return static_cast<Paint>(most - filled[x].begin());
  };
  std::string out;
  for (std::size_t begin = 0, end = 0; begin < kPixels; begin = end) {
    const std::optional<Paint> paint = paint_at(begin);
    while (end < kPixels && paint_at(end) == paint) ++end;
    if (!paint) continue;
    out += rectangle(kLabelWidth + static_cast<double>(begin), y, static_cast<double>(end - begin), *paint);
  }
  return out;
}

/// Draws the bars of one group. Adjacent bars of the same color within half a pixel are merged.
std::string row_bars(const std::vector<Bar>& bars, double y) {
  if (static_cast<double>(bars.size()) > kMaxBarsPerPixel * kPlotWidth) return pixel_bars(bars, y);
  std::string out;
  double begin = 0;
  double end = -1;
  Paint paint = forward;
  const auto flush = [&] {
    if (end > begin) out += rectangle(kLabelWidth + begin, y, std::max(end - begin, 0.3), paint);
  };
  for (const Bar& bar : bars) {
    if (!bar.paint) continue;
    if (*bar.paint == paint && bar.begin <= end + 0.5 && bar.end - begin < 2) {
      end = std::max(end, bar.end);
      continue;
    }
    flush();
    begin = bar.begin;
    end = bar.end;
    paint = *bar.paint;
  }
  flush();
  return out;
}

/// A PathPicture draws a critical path over the rows of a timeline.
class PathPicture {
 public:
  PathPicture(const std::vector<PathLink>& path, const std::vector<std::size_t>& rows, double pixels_per_ns)
      : path_(path), pixels_per_ns_(pixels_per_ns) {
    for (std::size_t r = 0; r < rows.size(); ++r) row_of_[static_cast<std::int32_t>(rows[r])] = r;
  }

  /// Draws the bars of each part of the path that stays in one row, with one outline around them, and lines
  /// from row to row.
  std::string draw() {
    for (std::size_t first = 0; first < path_.size();) {
      if (path_[first].kind == PathLinkKind::message) {
        add_line(path_[first++], true);
        continue;
      }
      std::size_t end = first;
      while (end < path_.size() && path_[end].kind != PathLinkKind::message && row(end) == row(first)) ++end;
      if (path_[first].kind == PathLinkKind::collective) add_line(path_[first], false);
      add_stay(first, end);
      first = end;
    }
    return bars_ + fmt::format("<g fill='none' stroke='{}' stroke-width='1.4'>{}</g>", kPathColor, outlines_);
  }

 private:
  /// Returns the group in whose row a link is drawn. A collective is drawn in the row where the path
  /// continues.
  std::int32_t row(std::size_t link) const { return path_[link].to_group; }

  double x(Nanoseconds time) const {
    return kLabelWidth + static_cast<double>(time.count()) * pixels_per_ns_;
  }
  double y(std::int32_t group) const { return kRowHeight * static_cast<double>(row_of_.at(group)); }

  /// Draws a line from the path's row to its next row. The line ends at the start of the link or, with
  /// `at_end`, when the transfer ends.
  void add_line(const PathLink& link, bool at_end) {
    if (row_of_.count(link.group) == 0 || row_of_.count(link.to_group) == 0) return;
    constexpr double kMiddle = (kRowHeight - 3) / 2;
    const Nanoseconds end = link.start + (at_end ? link.duration : Nanoseconds(0));
    outlines_ += fmt::format("<path d='M{:.1f} {:.1f}L{:.1f} {:.1f}'/>", x(link.start),
                             y(link.group) + kMiddle, x(end), y(link.to_group) + kMiddle);
  }

  /// Draws the links [first, end) of the path, which lie in one row without a message between them.
  void add_stay(std::size_t first, std::size_t end) {
    const std::int32_t group = row(first);
    if (row_of_.count(group) == 0) return;
    std::vector<Bar> bars;
    for (std::size_t k = first; k < end; ++k) {
      if (path_[k].kind != PathLinkKind::pause) bars.push_back(bar_of(path_[k], pixels_per_ns_));
    }
    bars_ += row_bars(bars, y(group));
    const double left = x(path_[first].start);
    const double right = x(path_[end - 1].start + path_[end - 1].duration);
    outlines_ += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}'/>", left, y(group),
                             std::max(right - left, 0.5), kRowHeight - 3);
  }

  const std::vector<PathLink>& path_;
  const double pixels_per_ns_;
  std::map<std::int32_t, std::size_t> row_of_;  ///< from a group to its row; only groups that are drawn
  std::string bars_;
  std::string outlines_;
};

}  // namespace

std::string timeline_svg(const Timeline& timeline, Nanoseconds end, const std::vector<PathLink>& path) {
  std::map<std::int32_t, std::vector<const Span*>> by_rank;
  for (const Span& span : timeline.spans) by_rank[span.rank].push_back(&span);
  for (auto& [rank, spans] : by_rank) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span* a, const Span* b) { return a->start < b->start; });
  }
  const std::vector<std::size_t> rows = chosen_groups(timeline.groups.size(), path);
  const double height = kRowHeight * static_cast<double>(rows.size());
  const double pixels_per_ns = time_scale(end);
  std::string out = svg_open(kLabelWidth + kPlotWidth + 30, height + kAxisHeight);
  out += time_axis(end, height);
  std::string bars;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const GroupUsage& group = timeline.groups[rows[r]];
    const double y = kRowHeight * static_cast<double>(r);
    const std::string name = static_cast<std::size_t>(group.stage) < timeline.stages.size()
                                 ? timeline.stages[group.stage]
                                 : fmt::format("stage {}", group.stage);
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{} · dp {} · rank {}</text>",
                       kLabelWidth - 8, y + 11, name, group.dp_rank, group.first_rank);
    std::vector<Bar> row;
    for (const Span* span : by_rank[group.first_rank]) row.push_back(bar_of(*span, pixels_per_ns));
    bars += row_bars(row, y);
  }
  out += path.empty() ? bars : fmt::format("<g opacity='{}'>{}</g>", kPale, bars);
  if (!path.empty()) out += PathPicture(path, rows, pixels_per_ns).draw();
  if (rows.size() < timeline.groups.size()) {
    out += fmt::format("<text x='0' y='{:.1f}'>{} of {} groups</text>", height + 14, rows.size(),
                       timeline.groups.size());
  }
  return out + "</svg>";
}

std::string timeline_picture_svg(const Timeline& timeline) {
  constexpr double kLegend = 26;
  const std::size_t rows = chosen_groups(timeline.groups.size(), {}).size();
  const std::string opened =
      svg_open(kLabelWidth + kPlotWidth + 30, kLegend + kRowHeight * static_cast<double>(rows) + kAxisHeight);
  return opened + timeline_legend_svg() +
         fmt::format("<g transform='translate(0 {})'>{}</g></svg>\n", kLegend,
                     timeline_svg(timeline, timeline.makespan));
}

std::string timeline_legend_svg(bool with_path) {
  std::string out = svg_open(900, 18);
  double x = 0;
  for (std::size_t p = 0; p < kPaints.size(); ++p) {
    out += rectangle(x, 2, 13, static_cast<Paint>(p));
    out += fmt::format("<text x='{:.0f}' y='13'>{}</text>", x + 18, kPaints[p].meaning);
    x += 34 + 6.6 * static_cast<double>(kPaints[p].meaning.size());
  }
  out += fmt::format("<text x='{:.0f}' y='13'>blank: bubble</text>", x);
  if (with_path) {
    out += fmt::format(
        "<rect x='{:.0f}' y='2' width='13' height='13' fill='none' stroke='{}' stroke-width='1.4'/>", x + 90,
        kPathColor);
    out += fmt::format("<text x='{:.0f}' y='13'>critical path</text>", x + 108);
  }
  return out + "</svg>";
}

}  // namespace dflop
