#include "experiments/training/log_curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/refuse.hpp"
#include "experiments/charts/curves.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMeans = 50;  // windows of the running mean in a whole run, about
constexpr std::int64_t kMaxStep = std::int64_t{1} << 50;

using LoggedFigure = std::optional<double> LoggedStep::*;

std::optional<double> figure_of(const JsonValue& line, std::string_view key) {
  if (!line.has(key) || line.at(key).text() == "null") return std::nullopt;
  return line.at(key).number();
}

ChartCurve curve_of(const std::vector<LoggedStep>& steps, LoggedFigure figure) {
  ChartCurve curve;
  for (const LoggedStep& step : steps) {
    if (step.*figure) curve.points.emplace_back(static_cast<double>(step.step), *(step.*figure));
  }
  return curve;
}

/// Returns the mean of each window, at its middle.
ChartCurve running_mean(const ChartCurve& curve) {
  const std::size_t window = std::max<std::size_t>(1, curve.points.size() / kMeans);
  ChartCurve mean;
  double sum = 0;
  for (std::size_t end = 1; end <= curve.points.size(); ++end) {
    sum += curve.points[end - 1].second;
    if (end < window) continue;
    if (end > window) sum -= curve.points[end - 1 - window].second;
    mean.points.emplace_back(curve.points[end - 1 - window / 2].first, sum / static_cast<double>(window));
  }
  mean.name = fmt::format("mean of {} steps", window);
  return mean;
}

/// Adds a curve and, where its window has several points, its running mean.
void add_with_mean(ChartPanel& panel, const std::string& name, ChartCurve curve, std::string_view color) {
  if (curve.points.empty()) return;
  curve.name = name;
  curve.color = color;
  if (curve.points.size() < 2 * kMeans) {
    panel.curves.push_back(std::move(curve));
    return;
  }
  ChartCurve mean = running_mean(curve);
  mean.name = name + ", " + mean.name;
  mean.color = color;
  curve.pale = true;
  panel.curves.push_back(std::move(curve));
  panel.curves.push_back(std::move(mean));
}

}  // namespace

std::vector<LoggedStep> parse_step_log(std::string_view text, const std::string& file) {
  std::map<std::int64_t, LoggedStep> steps;
  std::int64_t row = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    ++row;
    const std::string line(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (line.empty()) continue;
    const JsonDocument document(line, fmt::format("{}: line {}", file, row));
    const JsonValue root = document.root();
    const auto number = root.at("step").integer<std::int64_t>(0, kMaxStep);
    steps[number] = {number, figure_of(root, "loss"), figure_of(root, "eval_loss"),
                     figure_of(root, "iteration_s"), figure_of(root, "predicted_s")};
  }
  if (steps.empty()) refuse_input(file, "expected lines of 'dflop train --log', found none");
  std::vector<LoggedStep> sorted;
  for (const auto& [number, step] : steps) sorted.push_back(step);
  return sorted;
}

std::string step_curves_svg(const std::vector<LoggedStep>& steps, const std::string& caption) {
  ChartPanel loss{"loss a trained token", {}};
  add_with_mean(loss, "training", curve_of(steps, &LoggedStep::loss), "#4c78a8");
  ChartCurve evaluations = curve_of(steps, &LoggedStep::eval_loss);
  evaluations.name = "evaluation";
  evaluations.color = "#c0392b";
  evaluations.marks = true;
  if (!evaluations.points.empty()) loss.curves.push_back(std::move(evaluations));
  ChartPanel time{"time of a step, s", {}};
  add_with_mean(time, "measured", curve_of(steps, &LoggedStep::iteration_s), "#54a24b");
  add_with_mean(time, "predicted", curve_of(steps, &LoggedStep::predicted_s), "#e8923a");
  return curves_svg(caption, "step", {loss, time});
}

}  // namespace dflop
