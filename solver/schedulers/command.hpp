// This header lets a user's process, in any language, act as a scheduling method.
#pragma once

#include <string>
#include <string_view>

#include "core/units.hpp"

namespace dflop {

/// The method of use_scheduler_command() has this name.
inline constexpr std::string_view kCommandMethod = "command";

/// By default, dflop waits this long for each answer of a command.
inline constexpr Seconds kCommandTimeout{60};

/// Registers the method "command" (register_method()), which asks a process for bins. At the first batch,
/// /bin/sh starts `command` with its standard input and output connected to dflop. The process lives until
/// dflop closes the connection. For each batch it reads one line and answers with one line, both JSON, as
/// docs/schedule-file.md describes. Bins stay in the order in which the process numbers them. Only one thread
/// may call the method at a time.
///
/// The method throws Error (input) that names the command if the process cannot be started, ends, does not
/// answer within `timeout`, answers with an error or anything that is not an answer, puts an item into no
/// bin, or leaves a bin empty. It then ends the process, and the next batch starts a new one.
/// @throws Error (usage) if `command` is empty, or if a command is already registered
void use_scheduler_command(const std::string& command, Seconds timeout = kCommandTimeout);

/// Unregisters the method and ends its process. This is for tests; otherwise the process ends with dflop.
void drop_scheduler_command();

}  // namespace dflop
