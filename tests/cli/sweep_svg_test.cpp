#include "experiments/sweep/chart.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "experiments/sweep/sqlite.hpp"
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

std::size_t count_points(const std::string& svg) {
  count_tags(svg, "svg");  // that it is well-formed
  std::size_t count = 0;
  for (std::size_t at = svg.find("class='point'"); at != std::string::npos;
       at = svg.find("class='point'", at + 1)) {
    ++count;
  }
  return count;
}

TEST(SweepPicture, MeansOverSeedsFromLeftToRight) {
  const std::vector<SweepRow> rows = {row(10, 1, "b", 5), row(2, 1, "b", 3), row(2, 2, "b", 4),
                                      row(2, 1, "a", 8)};
  const SweepPicture picture = sweep_picture(rows, index_of(Axis::nodes), index_of(Measure::samples_per_s));
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
  const SweepPicture by_nodes = sweep_picture(rows, index_of(Axis::nodes), index_of(Measure::samples_per_s));
  ASSERT_EQ(by_nodes.panels.size(), 2U);
  EXPECT_EQ(by_nodes.panels[0].title, "<m>");
  EXPECT_EQ(by_nodes.panels[1].title, "model");
  // Along the FLOP ratio, models share a line and nodes have a panel each.
  rows[2][Measure::flop_ratio] = 0.25;
  const SweepPicture by_ratio = sweep_picture(rows, index_of(Measure::flop_ratio), index_of(Measure::mfu));
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
  const std::string svg =
      sweep_svg(sweep_picture(rows, index_of(Axis::nodes), index_of(Measure::samples_per_s)));
  EXPECT_EQ(count_points(svg), 22U);
  EXPECT_EQ(count_tags(svg, "polyline"), 12U);  // the last planner has a point in either panel
  EXPECT_EQ(svg.find("http", svg.find("xmlns='http") + 10), std::string::npos)
      << "refers to something outside";
}

TEST(SweepPicture, AnyAxisStandsToTheRight) {
  // Names have their places in order; gbs is a number; seeds as x are not averaged.
  std::vector<SweepRow> rows = {row(1, 1, "a", 1), row(1, 2, "a", 2), row(1, 1, "b", 4)};
  const SweepPicture planners =
      sweep_picture(rows, index_of(Axis::planner), index_of(Measure::samples_per_s));
  EXPECT_EQ(planners.places, (std::vector<std::string>{"a", "b"}));
  const std::vector<SweepPoint>& line = planners.panels.at(0).lines.at("scheduler");
  ASSERT_EQ(line.size(), 2U);
  EXPECT_EQ(line[0].x, 1);
  EXPECT_EQ(line[0].y, 1.5);  // of two seeds
  EXPECT_EQ(line[0].least, 1);
  EXPECT_EQ(line[0].most, 2);
  EXPECT_TRUE(planners.has_seeds);
  EXPECT_EQ(line[1].x, 2);
  const SweepPicture seeds = sweep_picture(rows, index_of(Axis::seed), index_of(Measure::samples_per_s));
  EXPECT_EQ(seeds.panels.at(0).lines.at("a + scheduler").size(), 2U);
  EXPECT_FALSE(seeds.has_seeds);
  for (const std::string_view x : sweep_x_names()) {
    for (const std::string_view y : sweep_y_names()) {
      rows[0].cells[*sweep_column(y)] =
          sweep_columns()[*sweep_column(y)].kind == CellKind::whole ? Cell(std::int64_t{3}) : Cell(3.0);
      rows[0][Measure::heterogeneity] = 0.5;
      const std::vector<SweepRow> one = {rows[0]};
      EXPECT_EQ(count_points(sweep_svg(sweep_picture(one, *sweep_column(x), *sweep_column(y)))), 1U)
          << x << y;
    }
  }
}

// Three seeds of 1, 2 and 3: mean 2, deviation 1, Student's t of two degrees of freedom 4.302653: the mean is
// within 4.302653 / sqrt(3) = 2.484138 of 2. One seed has no interval.
TEST(SweepPicture, BarsAreIntervalsOfMeansOverSeeds) {
  const std::vector<SweepRow> rows = {row(1, 1, "a", 1), row(1, 2, "a", 2), row(1, 3, "a", 3),
                                      row(2, 1, "a", 4)};
  const SweepPicture picture = sweep_picture(rows, index_of(Axis::nodes), index_of(Measure::samples_per_s));
  const std::vector<SweepPoint>& line = picture.panels.at(0).lines.at("a + scheduler");
  ASSERT_EQ(line.size(), 2U);
  EXPECT_NEAR(line[0].low, 2 - 2.484138, 1e-6);
  EXPECT_NEAR(line[0].high, 2 + 2.484138, 1e-6);
  EXPECT_EQ(line[1].low, 4);
  EXPECT_EQ(line[1].high, 4);
}

TEST(SweepPicture, SeedsHaveBarsAndLinesShapesOfTheirOwn) {
  const std::vector<SweepRow> rows = {row(1, 1, "a", 1), row(1, 2, "a", 2), row(1, 1, "b", 4)};
  const std::string svg =
      sweep_svg(sweep_picture(rows, index_of(Axis::nodes), index_of(Measure::samples_per_s)));
  EXPECT_NE(svg.find("bars are their 95 % intervals"), std::string::npos);
  EXPECT_NE(svg.find("seeds from 1 to 2"), std::string::npos) << svg;
  EXPECT_EQ(count_tags(svg, "circle"), 2U);  // line 0: its point, and in the legend
}

// Two of three seeds of 1 and 3 have a result; the third is not in the mean of 2, and the point says so.
// Nodes 4, of which no seed has one, make no point.
TEST(SweepPicture, MarksMeansOfOnlySomeSeeds) {
  std::vector<SweepRow> rows = {row(1, 1, "a", 1), row(1, 2, "a", 9), row(1, 3, "a", 3),
                                row(2, 1, "a", 4), row(2, 2, "a", 4), row(4, 1, "a", 9)};
  for (const std::size_t failed : {1, 5}) rows[failed][Measure::status] = "infeasible";
  const SweepPicture picture = sweep_picture(rows, index_of(Axis::nodes), index_of(Measure::samples_per_s));
  const std::vector<SweepPoint>& line = picture.panels.at(0).lines.at("a + scheduler");
  ASSERT_EQ(line.size(), 2U);
  EXPECT_EQ(line[0].y, 2);
  EXPECT_EQ(line[0].seeds, 2);
  EXPECT_EQ(line[0].missing, 1);
  EXPECT_EQ(line[1].missing, 0);
  const std::string svg = sweep_svg(picture);
  EXPECT_NE(svg.find(">2 of 3</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("hollow: means of only the seeds that have a result"), std::string::npos) << svg;
  const std::size_t first = svg.find("class='point'");
  EXPECT_EQ(svg.substr(first, 60).find("fill='#fff'"), std::string("class='point' ").size());
  const std::size_t second = svg.find("class='point'", first + 1);
  EXPECT_EQ(svg.substr(second, 60).find("fill='#fff'"), std::string::npos);
}

// What all panels have in common is in as many lines as it takes, of whole values, however long they are.
TEST(SweepPicture, CaptionsAreNotCut) {
  for (int length = 0; length < 40 * 30; ++length) {
    std::vector<SweepRow> rows = {row(1, 1, "a", 1), row(1, 2, "a", 2), row(1, 3, "a", 2)};
    if (length % 2 == 0) rows[2][Measure::status] = "infeasible";
    for (SweepRow& seed : rows) {
      seed[Axis::options] = std::string(1 + length % 40, 'o');
      seed[Axis::conditions] = std::string(1 + length / 40, 'c');
    }
    const SweepPicture picture =
        sweep_picture(rows, index_of(Axis::planner), index_of(Measure::samples_per_s));
    const std::string svg = sweep_svg(picture);
    std::string shown;
    for (std::size_t at = svg.find("<text x='8.0'"); at != std::string::npos;
         at = svg.find("<text x='8.0'", at + 1)) {
      const std::size_t begin = svg.find('>', at) + 1;
      shown += svg.substr(begin, svg.find('<', begin) - begin);
    }
    std::string expected = picture.caption + "; means over seeds, bars are their 95 % intervals";
    if (length % 2 == 0)
      expected +=
          "; hollow: means of only the seeds that have a result, such as 2 of "
          "3";
    std::erase(expected, ' ');
    std::erase(shown, ' ');  // at the ends of lines there is none
    ASSERT_EQ(shown, expected) << length;
  }
}

TEST(SweepPicture, LongNamesAreShortenedAndKeptUnderThePointer) {
  std::vector<SweepRow> rows = {row(1, 1, "a", 1), row(1, 1, "a", 2)};
  rows[1][Axis::model] = std::string(200, 'm');
  const std::string svg =
      sweep_svg(sweep_picture(rows, index_of(Axis::nodes), index_of(Measure::samples_per_s)));
  EXPECT_NE(svg.find("<title>" + std::string(200, 'm') + "</title>"), std::string::npos);
  EXPECT_EQ(svg.find(">" + std::string(200, 'm') + "</text>"), std::string::npos);
}

using SweepPlot = testing::SweepTest;

TEST_F(SweepPlot, DrawsFinishedCells) {
  sweep(
      spec({{"nodes", {1, 2}}, {"seed", {1, 2}}, {"model", {"llava-ov-llama3-8b", "llava-ov-qwen2.5-72b"}}}),
      "a.sqlite");
  std::size_t points = 0;  // of two seeds each
  std::size_t left_out = 0;
  for (const auto& cell : rows("a.sqlite")) ++(cell["status"] == "ok" ? points : left_out);
  EXPECT_GT(left_out, 0U);
  const testing::RunResult result = sandbox_.run("sweep plot --db a.sqlite --out a.svg");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count_points(testing::read_all(sandbox_.path("a.svg"))), points / 2);
}

// One of three seeds has no result: the table for people and standard error say so, programs have the counts.
TEST_F(SweepPlot, NotesComparedMeansOfOnlySomeSeeds) {
  sweep(spec({{"scheduler", {"lpt", "random"}}, {"seed", {1, 2, 3}}}), "a.sqlite");
  const testing::RunResult whole = sandbox_.run("sweep export --db a.sqlite --over-seeds");
  EXPECT_EQ(whole.out.find("note"), std::string::npos) << whole.out;
  EXPECT_EQ(whole.err.find("fewer seeds"), std::string::npos) << whole.err;
  Database(sandbox_.path("a.sqlite"), Database::Mode::write)
      .execute("UPDATE cells SET status = 'infeasible' WHERE seed = 2 AND scheduler = 'lpt'");
  const testing::RunResult some = sandbox_.run("sweep export --db a.sqlite --over-seeds");
  EXPECT_NE(some.out.find("mean of 2 of 3 seeds"), std::string::npos) << some.out;
  EXPECT_NE(some.err.find("1 of 2 rows have means over fewer seeds"), std::string::npos) << some.err;
  for (const auto& row : rows("a.sqlite", "--over-seeds")) {
    EXPECT_EQ(row["ok"], row["scheduler"] == "lpt" ? 2 : 3);
    EXPECT_FALSE(row.contains("note"));
  }
}

TEST_F(SweepPlot, AReportIsOnePage) {
  sweep(spec({{"nodes", {1, 2}}, {"scheduler", {"lpt", "random"}}}), "a.sqlite");
  const testing::RunResult result = sandbox_.run("sweep report --db a.sqlite --out a.html");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string page = testing::read_all(sandbox_.path("a.html"));
  EXPECT_NE(page.find("<h2>samples/s along nodes</h2>"), std::string::npos);
  EXPECT_NE(page.find("<h2>All cells</h2>"), std::string::npos);
  EXPECT_NE(page.find("command   dflop sweep report"), std::string::npos);
  testing::expect_error(sandbox_.run("sweep plot --db a.sqlite --x node --out a.svg"),
                        {"--x", "'node'", "did you mean 'nodes'"});
  testing::expect_error(sandbox_.run("sweep plot --db a.sqlite --y plan --out a.svg"), {"--y", "'plan'"});
}

}  // namespace sweep_svg_test
}  // namespace dflop
