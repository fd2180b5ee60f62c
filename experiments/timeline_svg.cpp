#include "experiments/timeline_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "experiments/svg.hpp"

namespace dflop {
namespace {

constexpr double kRowHeight = 16;
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
  const double pixels_per_ns = time_scale(end);
  std::string out = svg_open(kLabelWidth + kPlotWidth + 30, height + kAxisHeight);
  out += time_axis(end, height);
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
