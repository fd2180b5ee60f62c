// Checks bytes that should be UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace dflop {

/// Returns the offset of the first byte that begins no character of UTF-8; nothing where all is UTF-8.
std::optional<std::size_t> find_no_utf8(std::string_view text);

}  // namespace dflop
