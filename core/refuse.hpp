// refuse_input() throws the errors of wrong inputs; fmt makes their messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace dflop {

/// Refuses an input with a message as fmt::format() makes it. `place` is the Error's context.
/// @throws Error (input)
template <typename... Values>
[[noreturn]] void refuse_input(const std::string& place, fmt::format_string<Values...> message,
                               Values&&... values) {
  throw Error(ErrorKind::input, fmt::format(message, std::forward<Values>(values)...), place);
}

/// Refuses what stands under a key of an input: the Error's context is "place: key 'key'".
/// @throws Error (input)
template <typename... Values>
[[noreturn]] void refuse_key(const std::string& place, std::string_view key,
                             fmt::format_string<Values...> message, Values&&... values) {
  refuse_input(fmt::format("{}: key '{}'", place, key), message, std::forward<Values>(values)...);
}

}  // namespace dflop
