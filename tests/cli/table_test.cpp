// One table in all formats, with the escapes of each.
#include "experiments/cli/table.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dflop {
namespace table_test {

const Table kTable = {
    {{"plan", "plan"}, {"gap", "gap %", 1, 100}, {"file_name", "file_name"}, {"bytes", "GiB", 1, 0x1p-30}},
    {{"E tp1 | L tp2", 0.25, "a_b*c", std::int64_t{3} << 30}, {"x", Cell(), "$5 & \\n", 0}}};

TEST(Table, MarkdownEscapesItsSyntax) {
  EXPECT_EQ(to_markdown(kTable),
            "| plan | gap % | file\\_name | GiB |\n"
            "| --- | ---: | --- | ---: |\n"
            "| E tp1 \\| L tp2 | 25.0 | a\\_b\\*c | 3.0 |\n"
            "| x | - | \\$5 &amp; \\\\n | 0.0 |\n");
  const Table brackets = {{{"a", "[a](b)"}}, {{"<b>~`"}}};
  EXPECT_EQ(to_markdown(brackets), "| \\[a\\](b) |\n| --- |\n| &lt;b>\\~\\` |\n");
}

TEST(Table, LatexEscapesSpecialCharacters) {
  EXPECT_EQ(to_latex(kTable),
            "% needs \\usepackage{booktabs}\n"
            "\\begin{tabular}{lrlr}\n"
            "\\toprule\n"
            "plan & gap \\% & file\\_name & GiB \\\\\n"
            "\\midrule\n"
            "E tp1 \\textbar{} L tp2 & 25.0 & a\\_b*c & 3.0 \\\\\n"
            "x & - & \\$5 \\& \\textbackslash{}n & 0.0 \\\\\n"
            "\\bottomrule\n"
            "\\end{tabular}\n");
  // TeX turns two hyphens into one dash.
  const Table option = {{{"a", "a-b"}}, {{"--slow"}}};
  EXPECT_NE(to_latex(option).find("a-b \\\\\n\\midrule\n-{-}slow \\\\"), std::string::npos)
      << to_latex(option);
  const Table all = {{{"a", "\\{}$&#_%~^"}}, {{"<>|\""}}};
  EXPECT_EQ(to_latex(all),
            "% needs \\usepackage{booktabs}\n\\begin{tabular}{l}\n\\toprule\n"
            "\\textbackslash{}\\{\\}\\$\\&\\#\\_\\%\\textasciitilde{}\\textasciicircum{} \\\\\n\\midrule\n"
            "\\textless{}\\textgreater{}\\textbar{}\" \\\\\n\\bottomrule\n\\end{tabular}\n");
}

TEST(Table, WithoutRowsItIsStillATable) {
  const Table none = {{{"a", "a"}, {"b", "b"}}, {}};
  EXPECT_EQ(to_markdown(none), "| a | b |\n| ---: | ---: |\n");
  EXPECT_EQ(
      to_latex(none),
      "% needs \\usepackage{booktabs}\n\\begin{tabular}{rr}\n\\toprule\na & b \\\\\n\\midrule\n\\bottomrule\n"
      "\\end{tabular}\n");
}

TEST(Table, JsonSaysItsSchema) {
  set_result_command("sweep export");
  const auto rows = nlohmann::json::parse(with_schema(to_json(kTable, 2)));
  EXPECT_EQ(rows["schema"], "dflop.result.sweep_export");
  EXPECT_EQ(rows["version"], 1);
  EXPECT_EQ(rows["rows"].size(), 2U);
  EXPECT_EQ(with_schema("{\"a\": 1}"),
            "{\n  \"schema\": \"dflop.result.sweep_export\",\n  \"version\": 1,\n  \"a\": 1\n}\n");
  const std::string plan = "{\"schema\": \"dflop.plan\", \"version\": 1, \"layers\": [1, 2]}\n";
  EXPECT_EQ(with_schema(plan), plan) << "what says one stays as it is";
}

}  // namespace table_test
}  // namespace dflop
