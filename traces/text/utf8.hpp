// This file checks whether bytes are UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace dflop {

/// Returns the offset of the first byte that does not begin a valid UTF-8 character; nullopt if the text is
/// valid.
std::optional<std::size_t> find_no_utf8(std::string_view text);

}  // namespace dflop
