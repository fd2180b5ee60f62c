#include "traces/tokens/byte_letters.hpp"

#include <unicode/utf8.h>

#include <array>
#include <cstdint>

namespace dflop {
namespace {

/// The letters of the alphabet are below this.
constexpr int kLetters = 256 + 68;

/// Returns the byte of each letter, or -1. Printable bytes are their own letters; the other 68 have the
/// letters from 256 on, in order.
std::array<int, kLetters> make_bytes() {
  std::array<int, kLetters> bytes;
  bytes.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printed =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    bytes[static_cast<std::size_t>(is_printed ? byte : next++)] = byte;
  }
  return bytes;
}

}  // namespace

std::optional<std::string> bytes_of_letters(std::string_view token) {
  static const std::array<int, kLetters> bytes_of = make_bytes();
  std::string bytes;
  const auto size = static_cast<std::int32_t>(token.size());
  for (std::int32_t at = 0; at < size;) {
    UChar32 letter = 0;
    U8_NEXT(token.data(), at, size, letter);
    if (letter < 0 || letter >= kLetters || bytes_of[static_cast<std::size_t>(letter)] < 0)
      return std::nullopt;
    bytes += static_cast<char>(bytes_of[static_cast<std::size_t>(letter)]);
  }
  return bytes;
}

}  // namespace dflop
