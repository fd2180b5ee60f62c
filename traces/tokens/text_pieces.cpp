#include "traces/tokens/text_pieces.hpp"

#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <utility>

#include "core/refuse.hpp"
#include "traces/text/utf8.hpp"

namespace dflop {
namespace {

icu::StringPiece as_piece(std::string_view text) {
  return {text.data(), static_cast<std::int32_t>(text.size())};
}

/// Returns how many bytes of UTF-8 a UTF-16 unit stands for; a surrogate pair stands for four.
std::size_t utf8_bytes(char16_t unit) {
  if (unit < 0x80) return 1;
  return unit < 0x800 || U16_IS_SURROGATE(unit) ? 2 : 3;
}

/// ICU counts search steps in units of about 10,000 saved states. A real tokenizer's pattern saves up to
/// about 20 for a match, which may be one digit, or as many as a run of blanks is long.
std::int32_t most_steps(std::int32_t units) {
  return 100 + units / 100;
}

/// Replaces \s by the equivalent [\s]: in a loop over only the class, ICU keeps a state for each letter, with
/// room for about 100,000, and in a loop over a set it keeps none.
std::string with_sets_of_blanks(std::string_view pattern) {
  std::string changed;
  int depth = 0;  // nesting of sets
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const bool is_escape = pattern[at] == '\\' && at + 1 < pattern.size();
    const std::string_view piece = pattern.substr(at, is_escape ? 2 : 1);
    if (piece == "\\Q") return std::string(pattern);  // begins a quote
    depth += piece == "[" ? 1 : 0;
    depth -= piece == "]" ? 1 : 0;
    changed += piece == "\\s" && depth == 0 ? "[\\s]" : piece;
    at += piece.size() - 1;
  }
  return changed;
}

}  // namespace

void check_text(std::string_view text, const std::string& place) {
  if (text.size() > kLongestText)
    refuse_input(place, "expected a text of at most {} bytes, found {}", kLongestText, text.size());
  if (const auto wrong = find_no_utf8(text)) {
    refuse_input(place, "expected UTF-8, found byte 0x{:02x}, which begins no character, at offset {}",
                 static_cast<unsigned char>(text[*wrong]), *wrong);
  }
}

std::string to_nfc(std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
  std::string normal;
  if (U_SUCCESS(error)) {
    icu::StringByteSink<std::string> sink(&normal);
    nfc->normalizeUTF8(0, as_piece(text), sink, nullptr, error);
  }
  if (U_FAILURE(error)) throw Error(ErrorKind::internal, fmt::format("ICU's NFC: {}", u_errorName(error)));
  return normal;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  const auto size = static_cast<std::int64_t>(bytes.size());
  for (std::int64_t at = 0; at < size;) {
    const std::int64_t begin = at;
    UChar32 letter = 0;
    U8_NEXT(bytes.data(), at, size, letter);
    if (letter < 0) {
      text += "\xEF\xBF\xBD";
    } else {
      text += bytes.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(at - begin));
    }
  }
  return text;
}

struct WordSplitter::Pattern {
  std::unique_ptr<icu::RegexPattern> regex;
  std::string place;
};

WordSplitter::WordSplitter(const std::string& pattern, const std::string& place) {
  UErrorCode error = U_ZERO_ERROR;
  UParseError at{};
  std::unique_ptr<icu::RegexPattern> regex(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(with_sets_of_blanks(pattern)), at, error));
  if (U_FAILURE(error) || regex == nullptr) {
    refuse_input(place, "expected a regular expression, found '{}': {} at letter {}", pattern,
                 u_errorName(error), at.offset);
  }
  pattern_ = std::make_unique<const Pattern>(Pattern{std::move(regex), place});
}

WordSplitter::~WordSplitter() = default;
WordSplitter::WordSplitter(WordSplitter&&) noexcept = default;

void WordSplitter::split(std::string_view text, std::vector<std::size_t>& ends) const {
  ends.clear();
  if (text.empty()) return;
  const icu::UnicodeString units = icu::UnicodeString::fromUTF8(as_piece(text));
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->regex->matcher(units, error));
  if (U_SUCCESS(error)) matcher->setTimeLimit(most_steps(units.length()), error);
  std::int32_t unit = 0;
  std::size_t byte = 0;
  // Ends a word at a position in units, unless a word already ends there.
  const auto end_at = [&](std::int32_t place) {
    if (place <= unit) return;
    for (; unit < place; ++unit) byte += utf8_bytes(units.charAt(unit));
    ends.push_back(byte);
  };
  while (U_SUCCESS(error) && matcher->find(error)) {
    end_at(matcher->start(error));
    end_at(matcher->end(error));
  }
  if (U_FAILURE(error)) {
    refuse_input(pattern_->place,
                 "expected an expression that splits {} bytes in a proportional number of steps, found {}",
                 text.size(), u_errorName(error));
  }
  end_at(units.length());
}

}  // namespace dflop
