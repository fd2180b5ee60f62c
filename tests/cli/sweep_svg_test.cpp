#include "experiments/sweep/chart.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "tests/cli/sweep_fixture.hpp"

namespace dflop {
namespace sweep_svg_test {

SweepRow row(std::int64_t nodes, std::int64_t seed, const std::string& planner, double samples_per_s) {
  SweepRow cell;
  for (std::size_t i = 0; i < kAxes; ++i) {
    switch (sweep_columns()[i].kind) {
      case CellKind::text:
        cell.cells[i] = sweep_columns()[i].column.key;
        break;
      case CellKind::whole:
        cell.cells[i] = std::int64_t{1};
        break;
      case CellKind::real:
        cell.cells[i] = 1.0;
    }
  }
  cell[Axis::nodes] = nodes;
  cell[Axis::seed] = seed;
  cell[Axis::planner] = planner;
  cell[Measure::status] = "ok";
  cell[Measure::samples_per_s] = samples_per_s;
  cell[Measure::mfu] = samples_per_s / 100;
  cell[Measure::flop_ratio] = 0.5 / static_cast<double>(seed);
  return cell;
}

/// How often a tag is opened; every tag must be closed in its order.
std::size_t count_tags(const std::string& svg, const std::string& name) {
  static const std::regex tag(R"(<(/?)([a-z]+)((?: [a-z0-9-]+='[^'<]*')*| xmlns='[^']*'[^>]*)(/?)>)");
  std::vector<std::string> open;
  std::size_t count = 0;
  std::string rest = svg;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), tag); it != std::sregex_iterator(); ++it) {
    const std::smatch& match = *it;
    if (match[1].length() > 0) {
      EXPECT_FALSE(open.empty());
      if (open.empty()) return 0;
      EXPECT_EQ(open.back(), match[2]);
      open.pop_back();
      continue;
    }
    if (match[2] == name) ++count;
    if (match[4].length() == 0) open.push_back(match[2]);
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(std::regex_replace(svg, tag, "").find_first_of("<>"), std::string::npos) << "something is no tag";
  return count;
}

TEST(SweepPicture, MeansOverSeedsFromLeftToRight) {
  const std::vector<SweepRow> rows = {row(10, 1, "b", 5), row(2, 1, "b", 3), row(2, 2, "b", 4),
                                      row(2, 1, "a", 8)};
  const SweepPicture picture = sweep_picture(rows, SweepX::nodes, Measure::samples_per_s);
  ASSERT_EQ(picture.panels.size(), 1U);
  const auto& lines = picture.panels[0].lines;
  ASSERT_EQ(lines.size(), 2U);
  const std::vector<SweepPoint>& b = lines.at("b + scheduler");
  ASSERT_EQ(b.size(), 2U);
  EXPECT_EQ(b[0].x, 2);  // 2 before 10, as numbers
  EXPECT_EQ(b[0].y, 3.5);
  EXPECT_EQ(b[1].x, 10);
  EXPECT_EQ(b[1].y, 5);
  EXPECT_EQ(lines.at("a + scheduler").at(0).y, 8);
  EXPECT_NE(picture.caption.find("gbs 1"), std::string::npos) << picture.caption;
}

TEST(SweepPicture, PanelsByTheOtherAxes) {
  std::vector<SweepRow> rows = {row(1, 1, "a", 1), row(2, 1, "a", 2), row(1, 1, "a", 4)};
  rows[2][Axis::model] = "<m>";
  const SweepPicture by_nodes = sweep_picture(rows, SweepX::nodes, Measure::samples_per_s);
  ASSERT_EQ(by_nodes.panels.size(), 2U);
  EXPECT_EQ(by_nodes.panels[0].title, "<m>");
  EXPECT_EQ(by_nodes.panels[1].title, "model");
  // Along the FLOP ratio, models share a line and nodes have a panel each.
  rows[2][Measure::flop_ratio] = 0.25;
  const SweepPicture by_ratio = sweep_picture(rows, SweepX::flop_ratio, Measure::mfu);
  ASSERT_EQ(by_ratio.panels.size(), 2U);
  EXPECT_EQ(by_ratio.panels[0].title, "nodes 1");
  const std::vector<SweepPoint>& line = by_ratio.panels[0].lines.at("a + scheduler");
  ASSERT_EQ(line.size(), 2U);
  EXPECT_EQ(line[0].x, 0.25);
  EXPECT_EQ(line[0].y, 4);  // percent
  EXPECT_EQ(line[0].label, "<m>");
  EXPECT_EQ(line[1].label, "model");
}

TEST(SweepPicture, IsWellFormed) {
  std::vector<SweepRow> rows;
  for (int i = 0; i < 11; ++i) {
    rows.push_back(row(1, 1, "planner " + std::to_string(i), i));
    rows.push_back(row(4, 1, "planner " + std::to_string(i), i + 1));
  }
  rows.back()[Axis::model] = "a<b>&'c'";
  const std::string svg = sweep_svg(sweep_picture(rows, SweepX::nodes, Measure::samples_per_s));
  EXPECT_EQ(count_tags(svg, "circle"), 22U);
  EXPECT_EQ(count_tags(svg, "polyline"), 12U);  // the last planner has a point in either panel
  EXPECT_EQ(svg.find("http", svg.find("xmlns='http") + 10), std::string::npos)
      << "refers to something outside";
}

using SweepPlot = testing::SweepTest;

TEST_F(SweepPlot, DrawsWhatRan) {
  sweep(
      spec({{"nodes", {1, 2}}, {"seed", {1, 2}}, {"model", {"llava-ov-llama3-8b", "llava-ov-qwen2.5-72b"}}}),
      "a.sqlite");
  std::size_t points = 0;  // of two seeds each
  std::size_t left_out = 0;
  for (const auto& cell : rows("a.sqlite")) ++(cell["status"] == "ok" ? points : left_out);
  EXPECT_GT(left_out, 0U);
  const testing::RunResult result = sandbox_.run("sweep plot --db a.sqlite --out a.svg");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count_tags(testing::read_all(sandbox_.path("a.svg")), "circle"), points / 2);
}

}  // namespace sweep_svg_test
}  // namespace dflop
