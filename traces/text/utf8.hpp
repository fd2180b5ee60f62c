// This file checks whether bytes are UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace dflop {

/// Returns the offset of the first invalid UTF-8 sequence; nullopt if the whole text is valid.
std::optional<std::size_t> find_no_utf8(std::string_view text);

}  // namespace dflop
