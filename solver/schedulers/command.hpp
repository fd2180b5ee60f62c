// A scheduling method may be a process of the user's, in any language.
#pragma once

#include <string>
#include <string_view>

#include "core/units.hpp"

namespace dflop {

/// The method of use_scheduler_command() has this name.
inline constexpr std::string_view kCommandMethod = "command";

/// A command is waited for so long for each answer, unless something else is said.
inline constexpr Seconds kCommandTimeout{60};

/// Registers the method "command" (register_method()), which asks a process for bins: `command` is run by
/// /bin/sh when the first batch comes, with its standard input and output at our ends of one connection, and
/// lives until ours ends. For each batch it gets one line and answers with one, both JSON, as
/// docs/schedule-file.md says. Bins stay in the order in which it numbers them. The method is called by one
/// thread at a time.
///
/// The method throws Error (input) naming the command where it cannot be started, ends, does not answer
/// within `timeout` of the request, answers with something else or with an error of its own, or puts an item
/// into no bin or leaves a bin empty. Then the process is ended, and the next batch starts another.
/// @throws Error (usage) for a command that is empty, or a second one
void use_scheduler_command(const std::string& command, Seconds timeout = kCommandTimeout);

/// Takes the method back, and ends its process. For tests; a command ends with its process.
void drop_scheduler_command();

}  // namespace dflop
