// refuse_input() throws the errors of wrong inputs; fmt makes their messages.
#pragma once

#include <fmt/format.h>

#include <string>
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

}  // namespace dflop
