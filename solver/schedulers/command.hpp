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

/// Registers the method "command" (register_method()), which asks a process for bins. /bin/sh starts
/// `command` when the first batch comes, with its standard input and output connected to ours, and it lives
/// until we close the connection. For each batch it gets one line and answers with one, both JSON, as
/// docs/schedule-file.md describes. Bins stay in the order in which it numbers them. Only one thread calls
/// the method at a time.
///
/// The method throws Error (input) naming the command if it cannot be started, ends, does not answer within
/// `timeout` of the request, answers with anything else or with an error of its own, puts an item into no bin
/// or leaves a bin empty. Then the process is ended, and the next batch starts another.
/// @throws Error (usage) for a command that is empty, or a second one
void use_scheduler_command(const std::string& command, Seconds timeout = kCommandTimeout);

/// Unregisters the method and ends its process. For tests; in a dflop command the process ends with dflop.
void drop_scheduler_command();

}  // namespace dflop
