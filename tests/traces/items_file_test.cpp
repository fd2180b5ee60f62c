#include "traces/files/items.hpp"

#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace items_file_test {

TEST(ItemsFile, ColumnsMayBeInAnyOrder) {
  const ItemList items = parse_items("llm_s,id,encoder_s\n1.5,a,0\n2e-3,\"b\"\"c\",4\n", "i.csv");
  EXPECT_EQ(items.ids, (std::vector<std::string>{"a", "b\"c"}));
  EXPECT_EQ(items.llm_s, (std::vector<double>{1.5, 2e-3}));
  EXPECT_EQ(items.encoder_s, (std::vector<double>{0, 4}));
  EXPECT_TRUE(items.tokens.empty());
  EXPECT_EQ(parse_items("id,encoder_s,llm_s,tokens\na,0,1,7\n", "i.csv").tokens, std::vector<double>{7});
}

TEST(ItemsFile, BadInputNamesItsPlace) {
  const auto refused = [](const std::string& text, const std::string& place,
                          std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_items(text, "i.csv"); }, place, words);
  };
  const std::string header = "id,encoder_s,llm_s,tokens\na,1,1,1\n";
  refused("", "i.csv", {"empty file"});
  refused("id,encoder_s,llm_s\n", "i.csv", {"at least one item"});
  refused("id,encoder_s,llm_s\ncaf\xE9,1,1\n", "i.csv:row 2, column 'id'", {"UTF-8", "found the byte 0xe9"});
  refused("id,encoder_s\na,1\n", "i.csv:row 1", {"'llm_s' is missing"});
  refused("id,encoder_s,llm_s,color\n", "i.csv:row 1", {"tokens", "found 'color'"});
  refused("id,encoder_s,llm_s,id\n", "i.csv:row 1", {"'id' occurs twice"});
  refused(header + "b,nan,1,1\n", "i.csv:row 3, column 'encoder_s'", {"a number from 0", "found 'nan'"});
  refused(header + "b,1,-1,1\n", "i.csv:row 3, column 'llm_s'", {"a number from 0", "found '-1'"});
  refused(header + "b,1,inf,1\n", "i.csv:row 3, column 'llm_s'", {"found 'inf'"});
  refused(header + "b,1,,1\n", "i.csv:row 3, column 'llm_s'", {"found an empty field"});
  refused(header + "b,1,1,1.5\n", "i.csv:row 3, column 'tokens'", {"whole number", "found '1.5'"});
  refused(header + "b,1,1\n", "i.csv:row 3", {"expected 4 fields, found 3"});
  refused(header + "a,1,1,1\n", "i.csv:row 3, column 'id'", {"ids that differ", "row 2"});
  refused(header + ",1,1,1\n", "i.csv:row 3, column 'id'", {"an empty field"});
}

}  // namespace items_file_test
}  // namespace dflop
