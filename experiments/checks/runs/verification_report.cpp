#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "experiments/charts/charts.hpp"
#include "experiments/checks/runs/verification.hpp"
#include "experiments/studies/made_by.hpp"

namespace dflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBusyMachine = 0.05;  // min fraction of the machine's time for which other processes are
                                       // mentioned

Seconds mean_of(const std::vector<Seconds>& times) {
  return std::accumulate(times.begin(), times.end(), Seconds(0)) / static_cast<double>(times.size());
}

/// Returns how many more steps of each variant would settle the verdict. A block has two steps.
std::optional<std::int64_t> more_steps(const Judgment& judgment) {
  if (!judgment.more_blocks) return std::nullopt;
  return 2 * *judgment.more_blocks;
}

std::string percent(double fraction) {
  return fmt::format("{:+.1f} %", 100 * fraction);
}

Json json_of(const Interval& interval) {
  return {{"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}};
}

std::vector<double> step_seconds(const std::vector<Seconds>& times) {
  std::vector<double> seconds;
  for (const Seconds time : times) seconds.push_back(time.count());
  return seconds;
}

constexpr double kPlotHeight = 260;
constexpr double kMargin = 24;
constexpr double kRowHeight = 46;
constexpr std::array<std::string_view, 6> kColors = {"#8c8c8c", "#1f6fb2", "#e08a2e",
                                                     "#3a9a5b", "#a23b72", "#6a5acd"};

std::string color_of(std::size_t variant) {
  return std::string(kColors[variant % kColors.size()]);
}

/// Draws a mark with a shape specific to the variant, so that variants can be told apart without color.
std::string mark(std::size_t variant, double x, double y) {
  const std::string color = color_of(variant);
  switch (variant % 3) {
    case 0:
      return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}'/>", x, y, color);
    case 1:
      return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='7' height='7' fill='{}'/>", x - 3.5, y - 3.5,
                         color);
    default:
      return fmt::format("<path d='M {0:.1f} {1:.1f} l 4.5 8 l -9 0 z' fill='{2}'/>", x, y - 5, color);
  }
}

/// Draws the measured time of every counted step of every variant, in the order of batches.
std::string steps_svg(const Verification& verification) {
  double longest = 0;
  for (const VariantRun& run : verification.runs) {
    for (const Seconds time : run.measured) longest = std::max(longest, time.count());
  }
  const std::size_t steps = verification.runs.front().measured.size();
  const double top = kMargin;
  const double height = kPlotHeight;
  std::string out = svg_open(kLabelWidth + kPlotWidth + kMargin, top + height + kAxisHeight + kMargin);
  const double tick = tick_step(1e3 * longest);
  for (double ms = 0; ms <= 1e3 * longest; ms += tick) {
    const double y = top + height * (1 - ms / (1e3 * longest));
    out += fmt::format(
        "<line x1='{0}' y1='{1:.1f}' x2='{2}' y2='{1:.1f}' stroke='#ddd'/>"
        "<text x='{3}' y='{4:.1f}' text-anchor='end'>{5:.{6}f} ms</text>",
        kLabelWidth, y, kLabelWidth + kPlotWidth, kLabelWidth - 6, y + 4, ms, tick_decimals(tick));
  }
  double legend = kLabelWidth;
  for (std::size_t v = 0; v < verification.runs.size(); ++v) {
    const VariantRun& run = verification.runs[v];
    out += mark(v, legend, 10) +
           fmt::format("<text x='{:.0f}' y='14'>{}</text>", legend + 9, html_escaped(run.variant.name));
    legend += 40 + 7 * static_cast<double>(run.variant.name.size());
    for (std::size_t k = 0; k < steps; ++k) {
      const double x = kLabelWidth + kPlotWidth * (static_cast<double>(k) + 0.5) / static_cast<double>(steps);
      out += mark(v, x, top + height * (1 - run.measured[k].count() / longest));
    }
  }
  return out + fmt::format(
                   "<text x='{:.0f}' y='{:.0f}' text-anchor='middle'>step (each of all variants on the "
                   "same batch)</text></svg>",
                   kLabelWidth + kPlotWidth / 2, top + height + kAxisHeight);
}

/// Draws the measured interval and the prediction of each comparison, with the tolerance around it, on one
/// axis.
std::string intervals_svg(const Verification& verification) {
  double low = 0;
  double high = 0;
  for (const Judgment& j : verification.judgments) {
    low = std::min({low, j.measured.low, j.tolerated().low});
    high = std::max({high, j.measured.high, j.tolerated().high});
  }
  const double margin = 0.05 * std::max(1e-3, high - low);
  low -= margin;
  high += margin;
  const auto at = [&](double value) { return kLabelWidth + kPlotWidth * (value - low) / (high - low); };
  const double height = kRowHeight * static_cast<double>(verification.judgments.size());
  std::string out = svg_open(kLabelWidth + kPlotWidth + kMargin, kMargin + height + kAxisHeight + kMargin);
  const double tick = tick_step(100 * (high - low)) / 100;
  for (double value = std::ceil(low / tick) * tick; value <= high; value += tick) {
    const bool zero = std::abs(value) < tick / 2;
    out += fmt::format(
        "<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2:.0f}' stroke='{3}'/>"
        "<text x='{0:.1f}' y='{4:.0f}' text-anchor='middle'>{5:+.{6}f} %</text>",
        at(value), kMargin, kMargin + height, zero ? "#555" : "#ddd", kMargin + height + 16,
        zero ? 0.0 : 100 * value, tick_decimals(100 * tick));
  }
  for (std::size_t i = 0; i < verification.judgments.size(); ++i) {
    const Judgment& j = verification.judgments[i];
    const double y = kMargin + kRowHeight * (static_cast<double>(i) + 0.5);
    out += fmt::format("<text x='{}' y='{:.0f}' text-anchor='end'>{}</text>", kLabelWidth - 8, y + 4,
                       html_escaped(verification.runs[i + 1].variant.name));
    out += fmt::format("<rect x='{:.1f}' y='{:.0f}' width='{:.1f}' height='28' fill='#cfe2f3'/>",
                       at(j.tolerated().low), y - 14, at(j.tolerated().high) - at(j.tolerated().low));
    out += fmt::format(
        "<line x1='{0:.1f}' y1='{1:.0f}' x2='{0:.1f}' y2='{2:.0f}' stroke='#1f6fb2' "
        "stroke-width='3'/>",
        at(j.predicted), y - 14, y + 14);
    out += fmt::format(
        "<line x1='{0:.1f}' y1='{1:.0f}' x2='{2:.1f}' y2='{1:.0f}' stroke='#222' "
        "stroke-width='2'/>",
        at(j.measured.low), y, at(j.measured.high));
    for (const double end : {j.measured.low, j.measured.high}) {
      out += fmt::format(
          "<line x1='{0:.1f}' y1='{1:.0f}' x2='{0:.1f}' y2='{2:.0f}' stroke='#222' "
          "stroke-width='2'/>",
          at(end), y - 6, y + 6);
    }
    out += fmt::format("<circle cx='{:.1f}' cy='{:.0f}' r='4' fill='#222'/>", at(j.measured.mean), y);
  }
  return out + fmt::format(
                   "<text x='{}' y='14'>blue: predicted mean and tolerance; black: measured mean and its "
                   "interval</text></svg>",
                   kLabelWidth);
}

std::string block(const Table& table) {
  return fmt::format("<div class='scroll'><pre>{}</pre></div>\n", html_escaped(to_text(table)));
}

}  // namespace

Table verdict_table(const Verification& verification) {
  Table table{{{"name", "variant"},
               {"against", "against"},
               {"predicted", "predicted %", 1, 100},
               {"measured", "measured %", 1, 100},
               {"measured_low", "from %", 1, 100},
               {"measured_high", "to %", 1, 100},
               {"tolerance", "tolerance %", 1, 100},
               {"verdict", "verdict"},
               {"more_steps", "more steps"}},
              {}};
  for (std::size_t i = 0; i < verification.judgments.size(); ++i) {
    const Judgment& j = verification.judgments[i];
    table.rows.push_back({verification.runs[i + 1].variant.name, verification.runs.front().variant.name,
                          j.predicted, j.measured.mean, j.measured.low, j.measured.high, j.tolerance,
                          to_string(j.verdict), more_steps(j)});
  }
  return table;
}

Table variant_table(const Verification& verification) {
  Table table{{{"name", "variant"},
               {"plan", "plan"},
               {"steps", "steps"},
               {"predicted_s", "predicted ms", 2, 1e3},
               {"measured_s", "measured ms", 2, 1e3},
               {"predicted_busy_s", "busy", 2, 1e3},
               {"measured_busy_s", "measured", 2, 1e3},
               {"predicted_bubble_s", "bubble", 2, 1e3},
               {"measured_bubble_s", "measured", 2, 1e3},
               {"predicted_wait_s", "wait", 2, 1e3},
               {"measured_wait_s", "measured", 2, 1e3}},
              {}};
  for (const VariantRun& run : verification.runs) {
    const RankTimes& p = run.predicted_times;
    const RankTimes& m = run.measured_times;
    table.rows.push_back({run.variant.name, describe(run.variant.plan), run.measured.size(),
                          mean_of(run.predicted), mean_of(run.measured), p.busy, m.busy, p.bubble, m.bubble,
                          p.wait, m.wait});
  }
  return table;
}

Table variant_operations_table(const Verification& verification) {
  Table table;
  table.columns = operation_columns();
  table.columns.insert(table.columns.begin(), {"name", "variant"});
  for (const VariantRun& run : verification.runs) {
    for (const OperationFidelity& operation : run.operations) {
      std::vector<Cell> row = operation_cells(operation, measured_in_all(run.operations));
      row.insert(row.begin(), run.variant.name);
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

std::vector<std::string> verdict_sentences(const Verification& verification) {
  std::vector<std::string> lines;
  const std::string& base = verification.runs.front().variant.name;
  for (std::size_t i = 0; i < verification.judgments.size(); ++i) {
    const Judgment& j = verification.judgments[i];
    std::string line =
        fmt::format("{}: {} against {}: predicted {}, measured {} ({} to {} with a probability of {:.0f} %)",
                    to_string(j.verdict), verification.runs[i + 1].variant.name, base, percent(j.predicted),
                    percent(j.measured.mean), percent(j.measured.low), percent(j.measured.high),
                    100 * verification.options.level);
    if (j.verdict == LiveVerdict::cannot_say) {
      const auto steps = more_steps(j);
      line += steps ? fmt::format("; about {} more steps of each plan would settle it", *steps)
                    : "; the error is so close to the tolerance that no number of steps would settle it";
    } else if (j.verdict == LiveVerdict::refuted) {
      line += fmt::format("; the error is {} to {}, beyond the tolerance of {:.1f} %", percent(j.error.low),
                          percent(j.error.high), 100 * j.tolerance);
    }
    lines.push_back(line);
  }
  if (verification.others.value_or(0) > kBusyMachine) {
    lines.push_back(fmt::format("the machine was not quiet: other processes took {:.0f} % of its time",
                                100 * *verification.others));
  }
  return lines;
}

std::string verification_json(const Verification& verification) {
  Json json;
  json["schema"] = "dflop.verification";
  json["version"] = 1;
  json["level"] = verification.options.level;
  json["others"] = verification.others ? Json(*verification.others) : Json();
  json["verdicts"] = json_of(verdict_table(verification));
  for (std::size_t i = 0; i < verification.judgments.size(); ++i) {
    json["verdicts"][i]["error"] = json_of(verification.judgments[i].error);
  }
  json["variants"] = json_of(variant_table(verification));
  for (std::size_t v = 0; v < verification.runs.size(); ++v) {
    json["variants"][v]["measured_steps_s"] = step_seconds(verification.runs[v].measured);
    json["variants"][v]["predicted_steps_s"] = step_seconds(verification.runs[v].predicted);
  }
  json["operations"] = json_of(variant_operations_table(verification));
  return json_text(json);
}

std::string verification_page(const Provenance& made_by, const Verification& verification) {
  std::string body = html_lines(provenance_lines(made_by));
  for (const std::string& line : verdict_sentences(verification)) {
    body += fmt::format("<p>{}</p>\n", html_escaped(line));
  }
  body += "<h2>Predicted and measured difference</h2>\n<div class='scroll'>" + intervals_svg(verification) +
          "</div>\n" + block(verdict_table(verification));
  body += "<h2>Measured steps</h2>\n<div class='scroll'>" + steps_svg(verification) + "</div>\n" +
          "<p>Means over ranks and steps, each predicted and then measured, in milliseconds:</p>\n" +
          block(variant_table(verification));
  body += "<h2>Operations</h2>\n" + block(variant_operations_table(verification));
  return html_page("Predicted, then run", body);
}

}  // namespace dflop
