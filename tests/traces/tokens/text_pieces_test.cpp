// A regular expression splits texts of any length into words.
#include "traces/tokens/text_pieces.hpp"

#include <gtest/gtest.h>

#include "tests/core/input_error.hpp"

namespace dflop::testing {
namespace text_pieces_test {

std::vector<std::string> words_of(const std::string& pattern, const std::string& text) {
  std::vector<std::size_t> ends;
  WordSplitter(pattern, "place").split(text, ends);
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(TextPieces, AreMatchesAndTheTextBetween) {
  EXPECT_EQ(words_of("\\d+", "ab12c3"), (Words{"ab", "12", "c", "3"}));
  EXPECT_EQ(words_of("\\d+", "12"), Words{"12"});
  EXPECT_EQ(words_of("\\d*", "a1"), (Words{"a", "1"}));  // empty matches split, but are not words
  EXPECT_EQ(words_of("x", ""), Words{});
  EXPECT_EQ(words_of("\\p{L}", "\u00e9\U0001F600\u4e2d"), (Words{"\u00e9", "\U0001F600", "\u4e2d"}));
}

/// Blanks are the same inside and outside of sets. An escaped backslash before an s does not stand for a
/// blank.
TEST(TextPieces, SplitAtBlanksInsideAndOutsideSets) {
  EXPECT_EQ(words_of("\\s+", "a \t\u3000b"), (Words{"a", " \t\u3000", "b"}));
  EXPECT_EQ(words_of("[\\sx]+", "a x b"), (Words{"a", " x ", "b"}));
  EXPECT_EQ(words_of("[^\\s]+", "ab cd"), (Words{"ab", " ", "cd"}));
  EXPECT_EQ(words_of("[a[\\s]]+", "b a b"), (Words{"b", " a ", "b"}));
  EXPECT_EQ(words_of("\\\\s+", "a \\sss"), (Words{"a ", "\\sss"}));
  EXPECT_EQ(words_of("\\Q\\s\\E", "a \\s"), (Words{"a ", "\\s"}));
  EXPECT_EQ(words_of("\\[\\s", "a[ "), (Words{"a", "[ "}));
}

/// Loops over single classes store no states. Loops over groups store one per letter, up to a limit.
TEST(TextPieces, MayBeLong) {
  const std::string blanks(1'000'000, ' ');
  EXPECT_EQ(words_of("\\s+(?!\\S)|\\s+", blanks).size(), 1u);
  EXPECT_EQ(words_of("(?: |x)+", blanks.substr(0, 10'000)).size(), 1u);
  const std::string error = input_error([&] { words_of("(?: |x)+", blanks); });
  EXPECT_NE(error.find("1000000 bytes"), std::string::npos) << error;
}

/// Each of n letters starts a search to the end: n^2 / 2 steps.
TEST(TextPieces, RejectExpressionsThatTakeTooLong) {
  const std::string error = input_error([&] { words_of("(?:a|a)*b", std::string(200'000, 'a')); });
  EXPECT_NE(error.find("place"), std::string::npos) << error;
  EXPECT_NE(error.find("200000 bytes in a proportional number of steps"), std::string::npos) << error;
}

}  // namespace text_pieces_test
}  // namespace dflop::testing
