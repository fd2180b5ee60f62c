// What is said to people on standard error.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace dflop {

/// One line without control characters, which names of files and keys may hold.
std::string printable(std::string text);

/// Writes to standard error. One that cannot be written, as of a terminal that has gone, says nothing and
/// ends nothing; the exit status still tells.
void say_text(const std::string& text) noexcept;

/// The same of a text as fmt::format() makes it.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace dflop
