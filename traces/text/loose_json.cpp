#include "traces/text/loose_json.hpp"

#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>

namespace dflop {
namespace {

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

/// A Tightener walks over the text, string by string and word by word.
class Tightener {
 public:
  explicit Tightener(std::string_view text) : from_(text) { loose_.text = text; }

  LooseJson run() {
    while (at_ < from_.size()) {
      const char c = from_[at_];
      if (c == '"') {
        tighten_string();
      } else if (c == '-' || c == '+' || is_letter(c)) {
        tighten_word();
      } else if (c >= '0' && c <= '9') {
        skip_number();
      } else {
        ++at_;
      }
    }
    return std::move(loose_);
  }

 private:
  char peek(std::size_t at) const { return at < from_.size() ? from_[at] : '\0'; }
  void damage(std::size_t begin, std::size_t end) {
    std::fill(loose_.text.begin() + static_cast<std::ptrdiff_t>(begin),
              loose_.text.begin() + static_cast<std::ptrdiff_t>(end), kDamaged);
  }

  /// Passes over a number, whose exponent is not a word.
  void skip_number() {
    const std::size_t end = from_.find_first_not_of("0123456789.eE+-", at_);
    at_ = std::min(end, from_.size());
  }

  void tighten_word() {
    const std::size_t begin = at_;
    if (from_[at_] == '-' || from_[at_] == '+') ++at_;
    if (!is_letter(peek(at_))) return;
    std::string word;
    for (; is_letter(peek(at_)); ++at_) word += static_cast<char>(std::tolower(peek(at_)));
    if (from_.substr(at_).starts_with("(ind)")) at_ += 5;  // Microsoft's library prints -nan(ind)
    constexpr std::array<std::string_view, 3> kNotFinite = {"nan", "inf", "infinity"};
    if (std::find(kNotFinite.begin(), kNotFinite.end(), word) == kNotFinite.end()) return;
    // A string of the same length, as the shortest of them, nan, has place for.
    loose_.text[begin] = '"';
    damage(begin + 1, begin + 2);
    loose_.text[begin + 2] = '"';
    std::fill(loose_.text.begin() + static_cast<std::ptrdiff_t>(begin) + 3,
              loose_.text.begin() + static_cast<std::ptrdiff_t>(at_), ' ');
    ++loose_.numbers;
  }

  /// Returns the value of "\uXXXX" at `at`; nothing if something else is there.
  std::optional<unsigned> escaped_unit(std::size_t at) const {
    if (peek(at) != '\\' || peek(at + 1) != 'u') return {};
    unsigned unit = 0;
    for (std::size_t i = at + 2; i < at + 6; ++i) {
      const char c = peek(i);
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return {};
      unit = unit * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return unit;
  }

  static bool is_high(unsigned unit) { return unit >= 0xD800 && unit < 0xDC00; }
  static bool is_low(unsigned unit) { return unit >= 0xDC00 && unit < 0xE000; }

  /// Tells whether the quote at `at` can end a string: what may follow a string comes after it.
  bool can_end(std::size_t at) const {
    const std::size_t next = from_.find_first_not_of(" \t\r\n", at + 1);
    return next == std::string_view::npos ||
           std::string_view(",:]}").find(from_[next]) != std::string_view::npos;
  }

  void tighten_string() {
    const std::size_t begin = at_;
    bool whole = true;    // nothing was damaged so far
    bool escapes = true;  // backslashes are escapes
    const auto replace = [&](std::size_t length) {
      damage(at_, at_ + length);
      at_ += length;
      whole = false;
    };
    for (++at_; at_ < from_.size();) {
      const char c = from_[at_];
      if (c == '"') break;
      if (c == '\\') {
        if (escapes && (!valid_escape() || ends_before_quote())) {
          // Begin the string again, now that its backslashes are known to be plain.
          escapes = whole = false;
          at_ = begin + 1;
          continue;
        }
        if (!escapes) {
          const bool escapes_quote = peek(at_ + 1) == '"' && !can_end(at_ + 1);
          replace(escapes_quote ? 2 : 1);
        } else if (const auto unit = escaped_unit(at_); unit && (is_high(*unit) || is_low(*unit))) {
          const auto next = escaped_unit(at_ + 6);
          if (is_high(*unit) && next && is_low(*next)) {
            at_ += 12;
          } else {
            replace(6);
          }
        } else {
          at_ += 2;
        }
      } else if (static_cast<unsigned char>(c) < 0x20) {
        replace(1);
      } else if (static_cast<unsigned char>(c) < 0x80) {
        ++at_;
      } else {
        const auto size = static_cast<std::int64_t>(from_.size());
        auto next = static_cast<std::int64_t>(at_);
        UChar32 letter = 0;
        U8_NEXT(from_.data(), next, size, letter);
        if (letter < 0) {
          replace(static_cast<std::size_t>(next) - at_);
        } else {
          at_ = static_cast<std::size_t>(next);
        }
      }
    }
    ++at_;
    if (!whole) ++loose_.strings;
  }

  /// Tells whether the quote after the backslash at the current position must end the string: something may
  /// follow it, and if the string went on, nothing could follow its next quote.
  bool ends_before_quote() const {
    if (peek(at_ + 1) != '"' || !can_end(at_ + 1)) return false;
    constexpr std::size_t kMaxScanned = 1 << 16;
    for (std::size_t at = at_ + 2; at < std::min(from_.size(), at_ + kMaxScanned); ++at) {
      if (from_[at] == '"') return !can_end(at);
      if (from_[at] == '\\') ++at;
    }
    return false;
  }

  /// Tells whether the backslash at the current position begins an escape.
  bool valid_escape() const {
    const char c = peek(at_ + 1);
    return c == 'u' ? escaped_unit(at_).has_value()
                    : c != '\0' && std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
  }

  std::string_view from_;
  std::size_t at_ = 0;
  LooseJson loose_;
};

}  // namespace

LooseJson tighten_json(std::string_view text) {
  return Tightener(text).run();
}

}  // namespace dflop
