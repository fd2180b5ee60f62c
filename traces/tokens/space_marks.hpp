// SentencePiece vocabularies write each space as a mark, U+2581, and put a mark before a text, so that its
// first word is the same token as in the middle of a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

inline constexpr std::string_view kSpaceMark = "\u2581";

/// A TextPlace says what precedes a text.
enum class TextPlace : std::uint8_t {
  begin,        ///< nothing
  after_token,  ///< an added token or a medium
  within        ///< words, which the text continues
};

/// SpaceMarks are the settings of a tokenizer.json: a normalizer Prepend and Replace, or a pre-tokenizer
/// Metaspace.
struct SpaceMarks {
  enum class Before : std::uint8_t { never, begin, always };

  Before before = Before::always;  ///< which texts get a mark before them, unless they continue words
  bool in_normalizer = false;      ///< marks are set before normalized added tokens are searched
  bool doubles = false;            ///< a text that begins with a mark gets another one
  bool splits = false;             ///< a word begins at each mark; otherwise, the text is one word
  bool strips = false;             ///< a decoded text loses its first space

  /// Replaces spaces by marks, and puts a mark before the text if it gets one.
  std::string marked(std::string_view text, TextPlace place) const;

  /// Sets `ends` to the offsets at which the words of a marked text end.
  void split(std::string_view text, std::vector<std::size_t>& ends) const;
};

/// Replaces marks by spaces.
std::string with_spaces(std::string_view token);

}  // namespace dflop
