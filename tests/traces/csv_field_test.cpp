// CSV texts that a spreadsheet would evaluate are escaped when written, and read back unchanged.
#include <gtest/gtest.h>

#include <regex>

#include "core/support/random.hpp"
#include "traces/files/items.hpp"
#include "traces/text/csv.hpp"

namespace dflop {
namespace csv_field_test {

TEST(CsvField, FormulasHaveAQuoteBeforeThem) {
  EXPECT_EQ(to_csv_field("=cmd|'/C calc'!A0"), "'=cmd|'/C calc'!A0");
  EXPECT_EQ(to_csv_field("+1+1"), "'+1+1");
  EXPECT_EQ(to_csv_field("@SUM(1)"), "'@SUM(1)");
  EXPECT_EQ(to_csv_field("-2+3"), "'-2+3");
  EXPECT_EQ(to_csv_field("-3 GiB"), "'-3 GiB");  // a name may follow a number: -3*A1
  EXPECT_EQ(to_csv_field("-82 %: cmd|' /C calc'!A0"), "'-82 %: cmd|' /C calc'!A0");
  EXPECT_EQ(to_csv_field("+-1"), "'+-1");
  EXPECT_EQ(to_csv_field("-"), "'-");
  EXPECT_EQ(to_csv_field("+%"), "'+%");
  EXPECT_EQ(to_csv_field("\t=1"), "'\t=1");
  EXPECT_EQ(to_csv_field("\r=1"), "\"'\r=1\"");
  EXPECT_EQ(to_csv_field("=HYPERLINK(\"a\",\"b\")"), "\"'=HYPERLINK(\"\"a\"\",\"\"b\"\")\"");
}

TEST(CsvField, NumbersAndOtherTextsStayAsTheyAre) {
  for (const std::string text : {"-1.5", "-7", "1e-3", "-1e300", "-82 %", "-82%", "+3 %", "+3.5", "a=b", "",
                                 "x", "'", "it's", "'quoted'", "a-b"})
    EXPECT_EQ(to_csv_field(text), text);
  EXPECT_EQ(to_csv_field("a,b"), "\"a,b\"");
}

/// Returns a text's field as a reader of rows returns it, which is also what a spreadsheet shows.
std::string shown(const std::string& text) {
  const std::string csv = to_csv_field(text) + ",end\n";
  CsvReader reader(csv, "a.csv");
  std::vector<std::string_view> fields;
  EXPECT_TRUE(reader.next(fields, 2)) << csv;
  EXPECT_EQ(fields[1], "end");
  EXPECT_EQ(text_of_csv_field(fields[0]), text);
  return unquote(fields[0]);
}

TEST(CsvField, EveryTextIsReadBackAndNoneIsRun) {
  Random random(5);
  const std::string letters = "=+-@\t\r\n'\",;a1.e %";
  for (int i = 0; i < 20'000; ++i) {
    std::string text(random.below(6), ' ');
    for (char& c : text) c = letters[random.below(letters.size())];
    const std::string cell = shown(text);
    // A cell that begins with a sign is a number, optionally with a percent sign, or has a leading quote.
    static const std::regex number(R"([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)? ?%?)");
    const bool is_number = std::regex_match(cell, number);
    if (!cell.empty() && !is_number) {
      ASSERT_EQ(std::string("=+-@\t\r\n").find(cell[0]), std::string::npos) << cell;
    }
  }
}

TEST(CsvField, IdsOfItemsAreReadBack) {
  const std::vector<std::string> ids = {"=1+1", "'=1+1", "''@x", "-1.5", "'-1.5", "plain", "'plain"};
  std::string csv = "id,encoder_s,llm_s\n";
  for (const std::string& id : ids) csv += to_csv_field(id) + ",1,1\n";
  EXPECT_EQ(parse_items(csv, "i.csv").ids, ids);
}

}  // namespace csv_field_test
}  // namespace dflop
