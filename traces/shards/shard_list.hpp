// A data set's shards are named by a folder or by a pattern.
#pragma once

#include <string>
#include <vector>

namespace dflop {

/// Returns the shards that a name stands for:
///   a folder                        its files *.tar, sorted by their names
///   data/shard-{000000..000009}.tar a file for each number, from the first to the last; several braces give
///                                   all combinations, the last number running fastest
///   anything else                   the file of this name, which need not be there
/// Numbers have as many digits as the longer end where one of the ends begins with a zero, as in shells.
/// @throws Error (input) for a folder without shards, braces that hold no such range, and more than
/// 1,000,000 shards
std::vector<std::string> expand_shards(const std::string& name);

}  // namespace dflop
