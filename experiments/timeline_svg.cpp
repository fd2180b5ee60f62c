#include "experiments/timeline_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

namespace dflop {
namespace {

constexpr double kLabelWidth = 150;
constexpr double kPlotWidth = 1000;
constexpr double kRowHeight = 16;
constexpr double kAxisHeight = 22;
constexpr std::size_t kMostRows = 48;

enum Paint : std::uint8_t { forward, backward, waiting, reduction, optimizer };

struct PaintStyle {
  std::string_view colour;
  std::string_view meaning;
};

constexpr std::array<PaintStyle, 5> kPaints = {{{"#4c78a8", "forward"},
                                                {"#e8923a", "backward"},
                                                {"#d8d8d8", "blocked on a message"},
                                                {"#8e6bbf", "gradient all-reduce"},
                                                {"#54a24b", "optimizer step"}}};

std::optional<Paint> paint_of(const Span& span) {
  switch (span.op) {
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
      return reduction;
    case Op::optimizer_step:
      return optimizer;
    default:
      return std::nullopt;  // sends run beside the computation
  }
}

/// The groups that are drawn: all, or evenly chosen ones.
std::vector<std::size_t> chosen_groups(std::size_t groups) {
  std::vector<std::size_t> rows;
  const std::size_t count = std::min(groups, kMostRows);
  for (std::size_t r = 0; r < count; ++r) rows.push_back(r * groups / count);
  return rows;
}

/// A tick distance of 1, 2 or 5 times a power of ten that gives four to ten ticks.
double tick_step(double seconds) {
  const double power = std::pow(10.0, std::floor(std::log10(seconds / 4)));
  for (const double factor : {5.0, 2.0}) {
    if (seconds / (factor * power) >= 4) return factor * power;
  }
  return power;
}

std::string rectangle(double x, double y, double width, Paint paint) {
  return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'/>", x, y, width,
                     kRowHeight - 3, kPaints[paint].colour);
}

/// The bars of one group. Neighbours of one colour that lie within half a pixel become one bar.
std::string row_bars(const std::vector<const Span*>& spans, double y, double pixels_per_ns) {
  std::string out;
  double begin = 0;
  double end = -1;
  Paint paint = forward;
  const auto flush = [&] {
    if (end > begin) out += rectangle(kLabelWidth + begin, y, std::max(end - begin, 0.3), paint);
  };
  for (const Span* span : spans) {
    const std::optional<Paint> next = paint_of(*span);
    const double from = static_cast<double>(span->start.count()) * pixels_per_ns;
    const double to = from + static_cast<double>(span->duration.count()) * pixels_per_ns;
    if (!next || span->duration.count() == 0) continue;
    if (*next == paint && from <= end + 0.5 && to - begin < 2) {
      end = std::max(end, to);
      continue;
    }
    flush();
    begin = from;
    end = to;
    paint = *next;
  }
  flush();
  return out;
}

std::string axis(double seconds, double height) {
  std::string out;
  const double step = tick_step(seconds);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step))));
  for (int i = 0; i * step <= seconds; ++i) {
    const double x = kLabelWidth + kPlotWidth * i * step / seconds;
    out += fmt::format("<line x1='{0:.1f}' y1='0' x2='{0:.1f}' y2='{1:.1f}' stroke='#ececec'/>", x, height);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{:.{}f} s</text>", x, height + 14,
                       i * step, decimals);
  }
  return out;
}

std::string svg_open(double width, double height) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' "
      "height='{1:.0f}' "
      "font-family='sans-serif' font-size='11' fill='#333'>",
      width, height);
}

}  // namespace

std::string timeline_svg(const Timeline& timeline, Nanoseconds end) {
  std::map<std::int32_t, std::vector<const Span*>> by_rank;
  for (const Span& span : timeline.spans) by_rank[span.rank].push_back(&span);
  for (auto& [rank, spans] : by_rank) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span* a, const Span* b) { return a->start < b->start; });
  }
  const std::vector<std::size_t> rows = chosen_groups(timeline.groups.size());
  const double height = kRowHeight * static_cast<double>(rows.size());
  const double pixels_per_ns = kPlotWidth / static_cast<double>(std::max<std::int64_t>(end.count(), 1));
  std::string out = svg_open(kLabelWidth + kPlotWidth + 30, height + kAxisHeight);
  out += axis(static_cast<double>(end.count()) * 1e-9, height);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const GroupUsage& group = timeline.groups[rows[r]];
    const double y = kRowHeight * static_cast<double>(r);
    const std::string name = static_cast<std::size_t>(group.stage) < timeline.stages.size()
                                 ? timeline.stages[group.stage]
                                 : fmt::format("stage {}", group.stage);
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{} · dp {} · rank {}</text>",
                       kLabelWidth - 8, y + 11, name, group.dp_rank, group.first_rank);
    out += row_bars(by_rank[group.first_rank], y, pixels_per_ns);
  }
  if (rows.size() < timeline.groups.size()) {
    out += fmt::format("<text x='0' y='{:.1f}'>{} of {} groups</text>", height + 14, rows.size(),
                       timeline.groups.size());
  }
  return out + "</svg>";
}

std::string timeline_legend_svg() {
  std::string out = svg_open(760, 18);
  double x = 0;
  for (std::size_t p = 0; p < kPaints.size(); ++p) {
    out += rectangle(x, 2, 13, static_cast<Paint>(p));
    out += fmt::format("<text x='{:.0f}' y='13'>{}</text>", x + 18, kPaints[p].meaning);
    x += 34 + 6.6 * static_cast<double>(kPaints[p].meaning.size());
  }
  return out + fmt::format("<text x='{:.0f}' y='13'>white: bubble</text></svg>", x);
}

}  // namespace dflop
