// These functions identify the program's build and its command line, for provenance.
#pragma once

#include <string>
#include <vector>

namespace dflop {

/// Returns the commit that this program was built from, such as "41b5465"; with "-dirty" at the end if files
/// differed from the commit; empty if the sources were not a git checkout. cmake/DflopCommit.cmake generates
/// this function.
const char* commit();

/// Returns the command line of run_dflop(), quoted for a shell: "dflop plan --gbs 16".
const std::string& command_line();

/// Stores the arguments for command_line().
void keep_command_line(const std::vector<std::string>& arguments);

}  // namespace dflop
