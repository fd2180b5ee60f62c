#include "traces/text/utf8.hpp"

#include <unicode/utf8.h>

#include <cstdint>

namespace dflop {

std::optional<std::size_t> find_no_utf8(std::string_view text) {
  const auto size = static_cast<std::int64_t>(text.size());
  for (std::int64_t at = 0; at < size;) {
    const std::int64_t begin = at;
    UChar32 letter = 0;
    U8_NEXT(text.data(), at, size, letter);
    if (letter < 0) return static_cast<std::size_t>(begin);
  }
  return {};
}

}  // namespace dflop
