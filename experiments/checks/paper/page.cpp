#include "experiments/checks/paper/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "experiments/charts/charts.hpp"

namespace dflop {
namespace {

constexpr double kLeft = 60;
constexpr double kTop = 30;
constexpr double kHeight = 220;
constexpr double kBottom = 24;
constexpr double kBarWidth = 20;
constexpr double kGroupGap = 26;
constexpr double kHeadroom = 1.08;
constexpr std::array<std::string_view, 9> kColors = {"#b0b7c3", "#6b7280", "#f2c14e", "#e8923a", "#9ecae9",
                                                     "#4c78a8", "#54a24b", "#8e6bb0", "#c0392b"};

/// A Bar is a value of a series, or a box if it has five numbers.
struct Bar {
  std::string series;
  double value = 0;
  std::array<double, 5> box{};
};

/// A BarGroup shows one cell of a study in the study's picture.
struct BarGroup {
  std::string label;
  std::vector<Bar> bars;
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>", x, y, anchor,
                     html_escaped(text));
}

std::string line_between(double x1, double y1, double x2, double y2, std::string_view color) {
  return fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}'/>", x1, y1, x2, y2,
                     color);
}

std::string bar_svg(const Bar& bar, double x, std::string_view color, const auto& y) {
  if (bar.box[4] == 0) {
    const double zero = y(0);
    const double top = std::min(y(bar.value), zero);
    return fmt::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'><title>{}: {:.4g}</title></rect>",
        x + 1, top, kBarWidth - 2, std::abs(y(bar.value) - zero), color, html_escaped(bar.series), bar.value);
  }
  const auto& [least, q1, median, q3, most] = bar.box;
  const double middle = x + kBarWidth / 2;
  return line_between(middle, y(least), middle, y(most), "#333") +
         fmt::format(
             "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}' stroke='#333'><title>{}: {:.4g} to "
             "{:.4g}, median {:.4g}</title></rect>",
             x + 1, y(q3), kBarWidth - 2, std::max(0.0, y(q1) - y(q3)), color, html_escaped(bar.series),
             least, most, median) +
         line_between(x + 1, y(median), x + kBarWidth - 1, y(median), "#000");
}

/// Draws groups of bars next to each other, with a line at `mark` unless it is zero.
std::string bars_svg(std::string_view title, const std::vector<BarGroup>& groups, double mark) {
  std::vector<std::string> series;
  double most = mark;
  double least = 0;
  double bars = 0;
  for (const BarGroup& group : groups) {
    for (const Bar& bar : group.bars) {
      if (std::ranges::find(series, bar.series) == series.end()) series.push_back(bar.series);
      most = std::max({most, bar.value, bar.box[4]});
      least = std::min(least, bar.value);
    }
    bars += std::max<double>(5, static_cast<double>(group.bars.size()));  // space for the label
  }
  if (most <= least) most = least + 1;
  most = least + (most - least) * kHeadroom;
  const double plot = bars * kBarWidth + static_cast<double>(groups.size()) * kGroupGap;
  const double legend = kLeft + plot + 20;
  const double width = std::max(legend + 150, 480.0);  // at least as wide as the title
  const auto y = [&](double value) { return kTop + kHeight * (most - value) / (most - least); };
  std::string out = svg_open(width, kTop + kHeight + kBottom) + text_at(kLeft, 16, "start", title);
  const double step = tick_step(most - least);
  for (int i = static_cast<int>(std::ceil(least / step)); i * step <= most; ++i) {
    out += line_between(kLeft, y(i * step), kLeft + plot, y(i * step), i == 0 ? "#888" : "#ececec");
    out += text_at(kLeft - 6, y(i * step) + 4, "end", fmt::format("{:.{}f}", i * step, tick_decimals(step)));
  }
  if (mark != 0) out += line_between(kLeft, y(mark), kLeft + plot, y(mark), "#c0392b");
  double x = kLeft + kGroupGap / 2;
  for (const BarGroup& group : groups) {
    const double room = std::max<double>(5, static_cast<double>(group.bars.size())) * kBarWidth;
    for (std::size_t b = 0; b < group.bars.size(); ++b) {
      const auto place = std::ranges::find(series, group.bars[b].series) - series.begin();
      out += bar_svg(group.bars[b], x + static_cast<double>(b) * kBarWidth,
                     kColors[static_cast<std::size_t>(place) % kColors.size()], y);
    }
    if (group.bars.empty()) out += text_at(x + room / 2, y(0) - 6, "middle", "nothing fits");
    out += text_at(x + room / 2, kTop + kHeight + 15, "middle", group.label);
    x += room + kGroupGap;
  }
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double line = kTop + 16 * static_cast<double>(i);
    out += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='12' height='12' fill='{}'/>", legend, line,
                       kColors[i % kColors.size()]);
    out += text_at(legend + 18, line + 10, "start", series[i]);
  }
  return out + "</svg>\n";
}

/// Returns the bar of a row; nothing if the row does not have the figure.
std::optional<Bar> bar_of(StudyPicture picture, const FigureRow& row, double baseline) {
  const auto figure = [&](std::string_view key) { return row.find(key).value_or(0); };
  switch (picture) {
    case StudyPicture::speedups:
      if (!row.find("samples_per_s") || baseline <= 0) return std::nullopt;
      return Bar{row.name, figure("samples_per_s") / baseline};
    case StudyPicture::idle:
      if (!row.find("idle_fraction")) return std::nullopt;
      return Bar{row.name, figure("idle_fraction") * figure("iteration_s")};
    case StudyPicture::throughputs:
      if (!row.find("gpu_flop_per_s_mean")) return std::nullopt;
      return Bar{row.name,
                 0,
                 {1e-12 * figure("gpu_flop_per_s_least"), 1e-12 * figure("gpu_flop_per_s_q1"),
                  1e-12 * figure("gpu_flop_per_s_median"), 1e-12 * figure("gpu_flop_per_s_q3"),
                  1e-12 * figure("gpu_flop_per_s_most")}};
    case StudyPicture::gaps:
      if (!row.find("schedule_gap") || row.name == "random") return std::nullopt;
      return Bar{row.name, 100 * figure("schedule_gap")};
    case StudyPicture::corrections:
      if (!row.find("correction_gain")) return std::nullopt;
      return Bar{row.name, 100 * figure("correction_gain")};
  }
  return std::nullopt;
}

std::string_view picture_title(StudyPicture picture) {
  switch (picture) {
    case StudyPicture::speedups:
      return "throughput relative to the better tuned baseline (line: 1)";
    case StudyPicture::idle:
      return "idle seconds per iteration, mean over ranks";
    case StudyPicture::throughputs:
      return "TFLOP/s per GPU of each tp group: min, quartiles, median, max";
    case StudyPicture::gaps:
      return "gap of schedules to the proven bound, %";
    case StudyPicture::corrections:
      return "gain of correction with the published switch, %";
  }
  return "";
}

std::string picture_svg(const StudyResult& result) {
  const StudyPicture picture = result.study->picture;
  std::vector<BarGroup> groups;
  for (const CellResult& cell : result.cells) {
    double baseline = 0;
    for (const std::string_view name : {"pytorch", "megatron", "megatron-tuned"}) {
      const FigureRow* row = cell.find(name);
      if (row != nullptr) baseline = std::max(baseline, row->find("samples_per_s").value_or(0));
    }
    BarGroup group{cell.cell.label, {}};
    for (const FigureRow& row : cell.rows) {
      if (const auto bar = bar_of(picture, row, baseline)) group.bars.push_back(*bar);
    }
    groups.push_back(std::move(group));
  }
  const std::string title = fmt::format("{}: {}", result.setting->name, picture_title(picture));
  return bars_svg(title, groups, picture == StudyPicture::speedups ? 1 : 0);
}

std::string claims_html(std::span<const StudyResult> results) {
  std::string out =
      "<div class='scroll'><table><tr><th>setting</th><th>statement</th><th>published</th><th>here</th><th>verdict</th><th>why</th></tr>\n";
  for (const StudyResult& result : results) {
    for (const Claim& claim : result.claims) {
      const std::string_view color = claim.verdict == Verdict::reproduced ? "#d9f0d9"
                                     : claim.verdict == Verdict::partly   ? "#fdf0cf"
                                                                          : "#f8dcd9";
      out += fmt::format(
          "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td style='background:{}'>{}</td><td>{}</td></tr>\n",
          result.setting->name, html_escaped(claim.statement), html_escaped(claim.published),
          html_escaped(claim.ours), color, to_string(claim.verdict), html_escaped(claim.reason));
    }
  }
  return out + "</table></div>\n";
}

constexpr std::string_view kTableStyle =
    "<style>table{border-collapse:collapse;min-width:900px;font-size:12px;line-height:1.35} td,th{border:1px solid #ddd;padding:3px 6px;"
    "text-align:left;vertical-align:top} svg{max-width:100%;height:auto}</style>\n";

constexpr std::string_view kIntroduction =
    "<p>The published evaluation of DFLOP (arXiv 2603.25120), repeated in the simulator with data of "
    "the same kinds. The paper says that its baselines were set by hand, but not how. Here, "
    "pytorch-hand and megatron-hand follow simple rules; pytorch and megatron are the best of all "
    "their configurations, tried on the same batches on which they are measured. Baselines set by "
    "hand are somewhere in between. <b>tuned</b> trains as current stacks do, <b>published</b> as the "
    "released code does. dflop is the rule of the released code, dflop-paper is Algorithm 1 as "
    "printed; with -optimizer, either uses random microbatches. A gain compares the better of these "
    "two with the better of two baselines.</p>\n";

/// Returns the figures that at least one row has.
std::vector<FigureColumn> columns_of(std::span<const StudyResult> results) {
  std::set<std::string_view> keys;
  for (const StudyResult& result : results) {
    for (const CellResult& cell : result.cells) {
      for (const FigureRow& row : cell.rows) {
        for (const auto& [key, value] : row.figures) keys.insert(key);
      }
    }
  }
  std::vector<FigureColumn> columns;
  for (const FigureColumn& column : figure_columns()) {
    if (keys.count(column.key) > 0) columns.push_back(column);
  }
  return columns;
}

}  // namespace

Table study_figures(std::span<const StudyResult> results) {
  const std::vector<FigureColumn> figures = columns_of(results);
  Table table;
  table.columns = {{"study", "study"}, {"setting", "setting"}, {"cell", "cell"},     {"model", "model"},
                   {"nodes", "nodes"}, {"gbs", "gbs"},         {"system", "system"}, {"detail", "detail"}};
  for (const FigureColumn& column : figures) {
    table.columns.push_back(
        {std::string(column.key), std::string(column.title), column.decimals, column.scale});
  }
  for (const StudyResult& result : results) {
    for (const CellResult& cell : result.cells) {
      for (const FigureRow& row : cell.rows) {
        std::vector<Cell>& cells = table.rows.emplace_back();
        cells = {result.study->name, result.setting->name, cell.cell.label, cell.cell.model,
                 cell.cell.nodes,    cell.cell.gbs,        row.name,        row.detail};
        for (const FigureColumn& column : figures) cells.emplace_back(row.find(column.key));
      }
    }
  }
  return table;
}

Table study_claims(std::span<const StudyResult> results) {
  Table table;
  table.columns = {{"study", "study"},         {"setting", "setting"}, {"statement", "statement"},
                   {"published", "published"}, {"ours", "here"},       {"verdict", "verdict"},
                   {"reason", "why"}};
  for (const StudyResult& result : results) {
    for (const Claim& claim : result.claims) {
      table.rows.push_back({result.study->name, result.setting->name, claim.statement, claim.published,
                            claim.ours, to_string(claim.verdict), claim.reason});
    }
  }
  return table;
}

std::string study_page(const Provenance& made_by, std::span<const StudyResult> results) {
  std::string body =
      std::string(kTableStyle) + html_lines(provenance_lines(made_by)) + std::string(kIntroduction);
  for (std::size_t begin = 0; begin < results.size();) {
    std::size_t end = begin;
    while (end < results.size() && results[end].study == results[begin].study) ++end;
    const auto of_study = results.subspan(begin, end - begin);
    const StudyKind& study = *results[begin].study;
    body += fmt::format("<h2 id='{}'>{}</h2>\n<p>{}</p>\n{}", study.name, html_escaped(study.title),
                        html_escaped(study.what), claims_html(of_study));
    for (const StudyResult& result : of_study)
      body += fmt::format("<div class='scroll'>{}</div>\n", picture_svg(result));
    body +=
        fmt::format("<details><summary>figures</summary><div class='scroll'><pre>{}</pre></div></details>\n",
                    html_escaped(to_text(study_figures(of_study))));
    begin = end;
  }
  return html_page("The published evaluation, simulated", body);
}

}  // namespace dflop
