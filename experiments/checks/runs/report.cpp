#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "experiments/charts/charts.hpp"
#include "experiments/checks/runs/study.hpp"

namespace dflop {
namespace {

using Json = nlohmann::ordered_json;

double mean_of(const std::vector<StepFidelity>& steps, double StepFidelity::*member) {
  double sum = 0;
  for (const StepFidelity& step : steps) sum += step.*member;
  return sum / static_cast<double>(steps.size());
}

/// Returns the plans whose runs did not fail.
std::vector<PlanFidelity> measured_ones(const std::vector<PlanFidelity>& plans) {
  std::vector<PlanFidelity> measured;
  std::ranges::copy_if(plans, std::back_inserter(measured), std::not_fn(&PlanFidelity::failed));
  return measured;
}

std::int64_t count_ranks(const PlanFidelity& plan) {
  std::int64_t count = 0;
  for (const RankFidelity& group : plan.ranks) count += group.ranks;
  return count;
}

/// Returns a peak; nothing if it was not recorded.
std::optional<Bytes> known(Bytes peak) {
  return peak > Bytes{} ? std::optional(peak) : std::nullopt;
}

Bytes largest(const std::vector<RankFidelity>& ranks, Bytes RankFidelity::*member) {
  Bytes most;
  for (const RankFidelity& rank : ranks) most = std::max(most, rank.*member);
  return most;
}

Json steps_json(const PlanFidelity& plan) {
  Json steps = Json::array();
  for (const StepFidelity& step : plan.steps) {
    steps.push_back({{"measured_s", step.measured.count()},
                     {"predicted_s", step.predicted.count()},
                     {"replayed_s", step.replayed.count()}});
  }
  return steps;
}

Json ranks_json(const PlanFidelity& plan) {
  Json ranks = Json::array();
  for (const RankFidelity& rank : plan.ranks) {
    const std::optional<Bytes> measured = known(rank.measured_peak);
    ranks.push_back({{"first_rank", rank.first_rank},
                     {"measured_peak_bytes", measured ? Json(measured->count) : Json()},
                     {"predicted_peak_bytes", rank.predicted_peak.count}});
  }
  return ranks;
}

constexpr double kLegend = 26;
constexpr double kBar = 11;
constexpr double kRow = 3 * kBar + 12;
constexpr double kErrorWidth = 90;  // space for errors to the right of the longest bar

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
                                y + 2 * kBar - 2, html_escaped(plan.name));
  out += bar(y, width(plan.measured()), kMeasured, fmt::format("{:.1f} ms", 1e3 * plan.measured().count()));
  out += bar(y + kBar, width(plan.predicted()), kPredicted, fmt::format("{:+.1f} %", 100 * plan.error()));
  out += bar(y + 2 * kBar, width(plan.replayed()), kReplayed,
             fmt::format("{:+.1f} %", 100 * plan.engine_error()));
  return out;
}

/// Draws bars of the measured, predicted and replayed iteration time of each plan.
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

/// A FidelitySummary has the absolute errors over all plans, at least one.
struct FidelitySummary {
  double mean_error = 0;
  double max_error = 0;
  double mean_engine_error = 0;
  double max_engine_error = 0;
};

FidelitySummary summary_of(const std::vector<PlanFidelity>& plans) {
  FidelitySummary summary;
  const auto count = static_cast<double>(plans.size());
  for (const PlanFidelity& plan : plans) {
    const double error = std::abs(plan.error());
    const double engine = std::abs(plan.engine_error());
    summary.mean_error += error / count;
    summary.max_error = std::max(summary.max_error, error);
    summary.mean_engine_error += engine / count;
    summary.max_engine_error = std::max(summary.max_engine_error, engine);
  }
  return summary;
}

}  // namespace

std::vector<Column> operation_columns() {
  return {{"module", "module"},
          {"kind", "operation"},
          {"count", "count"},
          {"predicted_mean_s", "predicted ms", 3, 1e3},
          {"measured_mean_s", "measured ms", 3, 1e3},
          {"error", "error %", 1, 100},
          {"measured_share", "of time %", 1, 100}};
}

std::vector<Cell> operation_cells(const OperationFidelity& operation, Seconds all) {
  const auto count = static_cast<double>(operation.count);
  const Cell error =
      operation.measured > Seconds(0) ? Cell(operation.predicted / operation.measured - 1) : Cell();
  return {operation.module,
          operation.kind,
          operation.count,
          operation.predicted.count() / count,
          operation.measured.count() / count,
          error,
          all > Seconds(0) ? Cell(operation.measured / all) : Cell()};
}

Seconds measured_in_all(const std::vector<OperationFidelity>& operations) {
  Seconds all{0};
  for (const OperationFidelity& operation : operations) all += operation.measured;
  return all;
}

Table fidelity_table(const std::vector<PlanFidelity>& plans) {
  Table table;
  table.columns = {{"name", "name"},
                   {"plan", "plan"},
                   {"ranks", "ranks"},
                   {"measured_s", "measured ms", 2, 1e3},
                   {"predicted_s", "predicted ms", 2, 1e3},
                   {"error", "error %", 1, 100},
                   {"extrapolated_fraction", "beyond profile %", 1, 100},
                   {"others_fraction", "others %", 1, 100},
                   {"replayed_s", "replayed ms", 2, 1e3},
                   {"engine_error", "engine error %", 1, 100},
                   {"measured_idle_fraction", "idle %", 1, 100},
                   {"predicted_idle_fraction", "predicted idle %", 1, 100},
                   {"measured_peak_bytes", "peak MiB", 2, 0x1p-20},
                   {"predicted_peak_bytes", "predicted MiB", 2, 0x1p-20}};
  const bool some_failed = std::ranges::any_of(plans, &PlanFidelity::failed);
  if (some_failed) table.columns.push_back({"failure", "result"});
  for (const PlanFidelity& plan : plans) {
    if (plan.failed()) {
      table.rows.emplace_back(table.columns.size());
      table.rows.back()[0] = plan.name;
      table.rows.back()[1] = plan.plan;
      table.rows.back().back() = "failed: " + plan.failure;
      continue;
    }
    table.rows.push_back({plan.name, plan.plan, count_ranks(plan), plan.measured().count(),
                          plan.predicted().count(), plan.error(),
                          mean_of(plan.steps, &StepFidelity::extrapolated),
                          plan.others ? Cell(*plan.others) : Cell(), plan.replayed().count(),
                          plan.engine_error(), mean_of(plan.steps, &StepFidelity::measured_idle),
                          mean_of(plan.steps, &StepFidelity::predicted_idle),
                          known(largest(plan.ranks, &RankFidelity::measured_peak)),
                          largest(plan.ranks, &RankFidelity::predicted_peak)});
    if (some_failed) table.rows.back().emplace_back(std::string());
  }
  return table;
}

Table fidelity_table_with_summary(const std::vector<PlanFidelity>& plans) {
  Table table = fidelity_table(plans);
  const std::vector<PlanFidelity> measured = measured_ones(plans);
  if (measured.empty()) return table;
  const FidelitySummary summary = summary_of(measured);
  const auto add = [&](const char* name, double error, double engine_error) {
    std::vector<Cell> row(table.columns.size());
    row[0] = std::string(name);
    row[1] = std::string();
    row[5] = error;
    row[9] = engine_error;
    table.rows.push_back(std::move(row));
  };
  add("mean |error|", summary.mean_error, summary.mean_engine_error);
  add("max |error|", summary.max_error, summary.max_engine_error);
  return table;
}

Table operations_table(const std::vector<PlanFidelity>& plans) {
  Table table;
  table.columns = operation_columns();
  table.columns.insert(table.columns.begin(), {"name", "name"});
  for (const PlanFidelity& plan : plans) {
    for (const OperationFidelity& operation : plan.operations) {
      std::vector<Cell> row = operation_cells(operation, measured_in_all(plan.operations));
      row.insert(row.begin(), plan.name);
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

Table all_operations_table(const std::vector<PlanFidelity>& plans) {
  Table table;
  table.columns = operation_columns();
  const std::vector<OperationFidelity> operations = all_operations(plans);
  for (const OperationFidelity& operation : operations) {
    table.rows.push_back(operation_cells(operation, measured_in_all(operations)));
  }
  return table;
}

std::string fidelity_json(const std::vector<PlanFidelity>& plans) {
  Json json = {{"schema", "dflop.fidelity"}, {"version", 1}};
  json["plans"] = json_of(fidelity_table(plans));
  for (std::size_t p = 0; p < plans.size(); ++p) {
    json["plans"][p]["steps"] = steps_json(plans[p]);
    json["plans"][p]["ranks_memory"] = ranks_json(plans[p]);
  }
  json["summary"] = nullptr;
  if (const std::vector<PlanFidelity> measured = measured_ones(plans); !measured.empty()) {
    const FidelitySummary summary = summary_of(measured);
    json["summary"] = {{"mean_error", summary.mean_error},
                       {"max_error", summary.max_error},
                       {"mean_engine_error", summary.mean_engine_error},
                       {"max_engine_error", summary.max_engine_error}};
  }
  json["operations"] = json_of(operations_table(plans));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string fidelity_page(const Provenance& made_by, const std::vector<PlanFidelity>& plans) {
  const auto block = [](const Table& table) {
    return fmt::format("<div class='scroll'><pre>{}</pre></div>\n", html_escaped(to_text(table)));
  };
  std::string body = html_lines(provenance_lines(made_by));
  body +=
      "<p>Medians over the measured steps. Predicted: the profile's costs through the engine. Replayed: the "
      "durations recorded in the same steps, through the engine. The error of the replay is the engine's; "
      "the rest of the prediction's error is the cost model's. Others: processor time of the machine that "
      "other processes took at the same time.</p>\n";
  if (const std::vector<PlanFidelity> measured = measured_ones(plans); !measured.empty())
    body += fmt::format("<div class='scroll'>{}</div>\n", fidelity_svg(measured));
  body += block(fidelity_table_with_summary(plans));
  body += "<h2>Operations, all plans together</h2>\n" + block(all_operations_table(plans));
  body += "<h2>Operations of each plan</h2>\n" + block(operations_table(plans));
  return html_page("Predictions against measured runs", body);
}

}  // namespace dflop
