// Texts are normalised and split into words by ICU, before byte pairs are joined within each word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// A text has at most so many bytes: NFC makes at most three times as many units of 16 bits, which ICU counts
/// in 32 bits.
inline constexpr std::size_t kLongestText = std::size_t{256} << 20;

/// Refuses a text that is not UTF-8, or too long. @throws Error (input) with `place` and the offset of the
/// first wrong byte
void check_text(std::string_view text, const std::string& place);

/// Returns a text in Unicode's normal form C. @param text  as check_text() takes it
std::string to_nfc(std::string_view text);

/// Returns the valid UTF-8 nearest to any bytes: each longest beginning of a character that is not one
/// becomes U+FFFD, as in Unicode's chapter 3.9 and Rust's from_utf8_lossy.
std::string to_valid_utf8(std::string_view bytes);

/// A WordSplitter cuts texts by a regular expression: each match is a word, and so is each text between
/// matches.
class WordSplitter {
 public:
  /// @param place  of the expression, for errors
  /// @throws Error (input) with `place` for what is no regular expression of ICU
  WordSplitter(const std::string& pattern, const std::string& place);
  ~WordSplitter();
  WordSplitter(WordSplitter&&) noexcept;

  /// Sets `ends` to where the words of a text end, in bytes, rising; the last is the text's size. The steps
  /// of the search are bounded by the text's length. @param text  as check_text() takes it
  /// @throws Error (input) with the expression's place where it needs more steps, or keeps more
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  struct Pattern;
  std::unique_ptr<const Pattern> pattern_;
};

}  // namespace dflop
