// The build says which commit it is of, the command line what was typed.
#pragma once

#include <string>
#include <vector>

namespace dflop {

/// Returns the commit that this program was built from, as "41b5465", with "-dirty" where files had changed;
/// empty where the sources were no git checkout. cmake/DflopCommit.cmake writes it.
const char* commit();

/// Returns what run_dflop() was called with, as a shell would read it: "dflop plan --gbs 16".
const std::string& command_line();

/// Keeps the arguments for command_line().
void keep_command_line(const std::vector<std::string>& arguments);

}  // namespace dflop
