// These functions make the text of --help and of the manual from the table of commands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/cli/command.hpp"

namespace dflop {

/// Returns the width of help in columns: the width of the terminal on standard output, limited to 60 to 100;
/// 100 without a terminal.
int help_width();

/// Returns the overview of `dflop --help`: one line for each noun (the first word of commands), under the
/// headings of the tasks.
std::string overview_text(int width);

/// Returns whether the word is not a command but the first word of commands.
bool is_bare_noun(const std::vector<Command>& all, std::string_view word);

/// Returns the help of a noun: a list of the commands that begin with it.
std::string noun_text(std::string_view noun, int width);

/// Returns the help of one command. If `all`, or if the command has few options, it has all options under the
/// headings of their groups. Else it has only the required and common options.
std::string help_text(const Command& command, bool all, int width);

/// Returns the text of docs/cli.md. It describes an option once, even if several commands have it.
std::string manual_text();

}  // namespace dflop
