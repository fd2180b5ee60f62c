// dflop train plot draws the log of a run, also of one that goes on or was killed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "experiments/charts/curves.hpp"
#include "experiments/training/log_curves.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace train_plot_test {

using nlohmann::json;
using testing::Sandbox;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TrainPlot, DrawsARun) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.run("train --model tiny-vlm --steps 3 --log run.jsonl").exit_code, 0);
  const auto result = sandbox.run("train plot --log run.jsonl --out run.svg --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json row = testing::rows_of(result.out)[0];
  EXPECT_EQ(row["first_step"], 1);
  EXPECT_EQ(row["last_step"], 3);
  EXPECT_EQ(row["steps"], 3);
  const std::string svg = testing::read_all(sandbox.path("run.svg"));
  // Loss and time are drawn, without means of so few; nothing was predicted or evaluated.
  EXPECT_EQ(count_of(svg, "<polyline"), 2U);
  EXPECT_EQ(count_of(svg, "predicted"), 0U);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(TrainPlot, TheLastLineOfAStepCountsAndHalfALineDoesNot) {
  const auto steps = parse_step_log(
      "{\"step\": 1, \"loss\": 4.0}\n{\"step\": 2, \"loss\": 3.0, \"predicted_s\": 1}\n\n{\"step\": 2, "
      "\"loss\": 2.5, \"predicted_s\": null, \"eval_loss\": 7}\n{\"step\": 3, \"lo",
      "log");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].step, 2);
  EXPECT_EQ(steps[1].loss, 2.5);
  EXPECT_EQ(steps[1].eval_loss, 7);
  EXPECT_EQ(steps[1].predicted_s, std::nullopt);
}

/// Of 100 steps whose losses alternate between 1 and 3 the mean of each two is 2.
TEST(TrainPlot, DrawsARunningMean) {
  std::vector<LoggedStep> steps;
  for (int i = 0; i < 100; ++i) {
    steps.emplace_back();
    steps.back().step = i + 1;
    steps.back().loss = i % 2 == 0 ? 1 : 3;
  }
  const std::string svg = step_curves_svg(steps, "");
  ASSERT_EQ(count_of(svg, "<polyline"), 2U);
  EXPECT_NE(svg.find("training, mean of 2 steps"), std::string::npos);
  const std::size_t begin = svg.find("points='", svg.rfind("<polyline")) + 8;
  std::istringstream points(svg.substr(begin, svg.find('\'', begin) - begin));
  std::set<std::string> heights;
  for (std::string point; points >> point;) heights.insert(point.substr(point.find(',')));
  EXPECT_EQ(heights.size(), 1U);
}

TEST(TrainPlot, RejectsFilesThatAreNoLog) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("bad.jsonl"),
                     "{\"step\": 1, \"loss\": 4.0}\n{\"step\": 1, \"loss\": \"x\"}\n");
  testing::expect_error(sandbox.run("train plot --log bad.jsonl --out a.svg"), {"bad.jsonl: line 2", "loss"});
  testing::write_all(sandbox.path("cut.jsonl"), "{\"step\": 1,\n{\"step\": 2, \"loss\": 4.0}\n");
  testing::expect_error(sandbox.run("train plot --log cut.jsonl --out a.svg"), {"cut.jsonl: line 1"});
  testing::write_all(sandbox.path("empty.jsonl"), "");
  testing::expect_error(sandbox.run("train plot --log empty.jsonl --out a.svg"),
                        {"empty.jsonl", "expected lines of 'dflop train --log'"});
  testing::expect_error(sandbox.run("train plot --log bad.jsonl --out bad.jsonl"), {"'--out'", "'--log'"});
  testing::expect_error(sandbox.run("train plot --log bad.jsonl --out a.JPG"), {"'--out'", "SVG", "'a.JPG'"});
  EXPECT_FALSE(sandbox.has("a.svg"));
}

/// Of 100,000 points no more than two for each of 760 columns of pixels are drawn, and a peak is among them.
TEST(ChartCurves, AreThinnedOutToTheExtremesOfEachPixel) {
  ChartCurve curve;
  for (int i = 0; i < 100'000; ++i) curve.points.emplace_back(i, i == 51'234 ? 1.2 : 1.0);
  const std::string svg = curves_svg("", "", {{"panel", {curve}}});
  const std::size_t begin = svg.find("<polyline points='") + 18;
  const std::string points = svg.substr(begin, svg.find('\'', begin) - begin);
  EXPECT_LE(count_of(points, ","), 2U * 761);
  // The scale ends at 1.06 * 1.2 = 1.272, of 220 pixels: the peak is 220 * 0.2 / 1.272 = 34.6 above the rest.
  std::istringstream list(points);
  double least = 1e9;
  double most = 0;
  for (std::string point; list >> point;) {
    const double y = std::stod(point.substr(point.find(',') + 1));
    least = std::min(least, y);
    most = std::max(most, y);
  }
  EXPECT_NEAR(most - least, 34.6, 0.11);
}

/// One value of 200 is a hundred times the others: the scale suits the others, and the title reports the cut.
TEST(ChartCurves, CutOffOutliers) {
  ChartCurve curve;
  for (int i = 0; i < 200; ++i) curve.points.emplace_back(i, i == 3 ? 100.0 : 1.0);
  const std::string svg = curves_svg("", "", {{"panel", {curve}}});
  EXPECT_NE(svg.find("panel (1 above the edge, the most 100)"), std::string::npos);
}

TEST(ChartCurves, AreDrawnWithoutPoints) {
  const std::string svg = curves_svg("a < b", "step", {{"panel", {}}});
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace train_plot_test
}  // namespace dflop
