// refuse_input() and refuse_key() throw errors about wrong inputs, with messages formatted by fmt.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace dflop {

/// Rejects an input with a message formatted as by fmt::format(). `place` is the Error's context.
/// @throws Error (input)
template <typename... Values>
[[noreturn]] void refuse_input(const std::string& place, fmt::format_string<Values...> message,
                               Values&&... values) {
  throw Error(ErrorKind::input, fmt::format(message, std::forward<Values>(values)...), place);
}

/// Rejects the value under a key of an input: the Error's context is "place: key 'key'".
/// @throws Error (input)
template <typename... Values>
[[noreturn]] void refuse_key(const std::string& place, std::string_view key,
                             fmt::format_string<Values...> message, Values&&... values) {
  refuse_input(fmt::format("{}: key '{}'", place, key), message, std::forward<Values>(values)...);
}

}  // namespace dflop
