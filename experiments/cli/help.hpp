// Help and the manual are printed here. Both come from the table of commands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/cli/command.hpp"

namespace dflop {

/// Returns the width of help in columns: the terminal's on standard output, from 60 to 100; 100 without one.
int help_width();

/// Returns the overview of `dflop --help`: one line for each noun, under the headings of the tasks.
std::string overview_text(int width);

/// Returns whether no command is named by this word alone, but several begin with it.
bool is_bare_noun(const std::vector<Command>& all, std::string_view word);

/// Returns the help of a word that several commands begin with: what they are.
std::string noun_text(std::string_view noun, int width);

/// Returns the help of one command: its required and common options or, with `all` and for commands with few
/// options, all of them under the headings of their groups.
std::string help_text(const Command& command, bool all, int width);

/// Returns the text of docs/cli.md. Options that several commands share are in it once.
std::string manual_text();

}  // namespace dflop
