// This file makes strict JSON from text of programs that do not escape strings, or that write numbers which
// JSON does not have.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dflop {

/// Each damaged byte of a string is replaced with this byte, a control character that JSON permits. A number
/// that is not finite becomes a string that begins with it.
inline constexpr char kDamaged = '\x7F';

/// A LooseJson is a text in which everything that tighten_json() knows is strict JSON.
struct LooseJson {
  std::string text;
  std::size_t strings = 0;  ///< strings that were not strict JSON
  std::size_t numbers = 0;  ///< numbers that were not: NaN and infinities

  std::size_t values() const { return strings + numbers; }
};

/// Makes a text strict, at the same length, so that positions in it stay valid:
/// * in strings, control characters, bytes that are not UTF-8, backslashes that escape nothing, and halves of
///   surrogate pairs become kDamaged. If a string has a backslash that escapes nothing, no backslash in it
///   counts as an escape, so a quote after a backslash ends the string if a comma, a colon or a closing
///   bracket follows. The same holds if a string could not go on after such a quote ("C:\traces\", "b": 1).
/// * NaN, Infinity and inf, in any case and with any sign, become strings that begin with kDamaged.
/// Everything else, including other errors, stays unchanged.
LooseJson tighten_json(std::string_view text);

/// Tells whether a string comes from a damaged one or from a number that is not finite.
inline bool is_damaged(std::string_view text) {
  return text.find(kDamaged) != std::string_view::npos;
}

}  // namespace dflop
