// This file normalizes texts and splits them into words with ICU, before byte pairs are joined within each
// word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// A text has at most this many bytes: NFC makes at most three times as many 16-bit units, which ICU counts
/// in 32 bits.
inline constexpr std::size_t kLongestText = std::size_t{256} << 20;

/// Rejects a text that is not UTF-8, or too long. @throws Error (input) with `place` and the offset of the
/// first wrong byte
void check_text(std::string_view text, const std::string& place);

/// Returns a text in Unicode's normal form C. @param text  must pass check_text()
std::string to_nfc(std::string_view text);

/// Replaces invalid UTF-8: each invalid byte, or longest incomplete beginning of a character, becomes one
/// U+FFFD, as in Unicode's chapter 3.9 and Rust's from_utf8_lossy.
std::string to_valid_utf8(std::string_view bytes);

/// A WordSplitter splits texts by a regular expression: each match is a word, and so is each text between
/// matches.
class WordSplitter {
 public:
  /// @param place  of the expression, for errors
  /// @throws Error (input) with `place` if ICU does not accept the expression
  WordSplitter(const std::string& pattern, const std::string& place);
  ~WordSplitter();
  WordSplitter(WordSplitter&&) noexcept;

  /// Sets `ends` to the byte offsets, in rising order, at which the words of a text end. The last offset is
  /// the text's size. The number of search steps is bounded by the text's length. @param text must pass
  /// check_text()
  /// @throws Error (input) with the expression's place if the search exceeds the bound on steps or needs too
  /// much memory
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  struct Pattern;
  std::unique_ptr<const Pattern> pattern_;
};

}  // namespace dflop
