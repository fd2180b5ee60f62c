// ValueText parses option values with several parts.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// A ValueText parses an option value such as "rank=3:1.5:0.2" piece by piece. Errors about a wrong value
/// name the expected `form`. The constructor's arguments must outlive it.
class ValueText {
 public:
  ValueText(std::string_view option, std::string_view form, std::string_view text)
      : option_(option), form_(form), text_(text), rest_(text) {}

  /// Consumes `word` if it comes next, and returns whether it did.
  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail();
  }
  /// Consumes and returns the text before `end`, which must follow.
  std::string word_before(std::string_view end) {
    const std::size_t length = rest_.find(end);
    if (length == std::string_view::npos || length == 0) fail();
    std::string word(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return word;
  }
  template <typename Number>
  Number number(Number least, Number most) {
    Number value{};
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (problem != std::errc() || !(value >= least && value <= most)) fail();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  void expect_end() const {
    if (!rest_.empty()) fail();
  }
  bool starts_with_digit() const { return !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; }
  std::string_view rest() const { return rest_; }
  /// Rejects the value. @throws what refuse_value() throws
  [[noreturn]] void fail() const {
    refuse_value(std::string(option_), std::string(form_), std::string(text_));
  }

 private:
  std::string_view option_;
  std::string_view form_;
  std::string_view text_;
  std::string_view rest_;
};

}  // namespace dflop
