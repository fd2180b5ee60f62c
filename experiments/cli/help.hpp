// This file makes the texts of help and manual. Both come from the table of commands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/cli/command.hpp"

namespace dflop {

/// Returns the width of help in columns: the width of the terminal on standard output, limited to 60 to 100;
/// 100 if there is no terminal.
int help_width();

/// Returns the overview of `dflop --help`: one line for each noun, under the headings of the tasks.
std::string overview_text(int width);

/// Returns whether several commands begin with this word, but no command's name is this word alone.
bool is_bare_noun(const std::vector<Command>& all, std::string_view word);

/// Returns the help of a word with which several commands begin: a list of these commands.
std::string noun_text(std::string_view noun, int width);

/// Returns the help of one command: its required and common options or, with `all` and for commands with few
/// options, all options under the headings of their groups.
std::string help_text(const Command& command, bool all, int width);

/// Returns the text of docs/cli.md. An option that several commands share is described only once.
std::string manual_text();

}  // namespace dflop
