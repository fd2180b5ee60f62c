// This file finds the shards of a data set that is named by a folder or a pattern.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dflop {

/// A ShardKind is a format of shards: WebDataset tars, or Megatron indexed data sets.
enum class ShardKind : std::uint8_t { tar, megatron };

/// Returns the kind of shards that a data set's name denotes; nullopt for other data. A folder denotes tars,
/// unless it has *.idx files and no tars. Another name may end in .tar, .idx or .bin. A Megatron data set may
/// also be named without an ending, or by a pattern of such names.
std::optional<ShardKind> kind_of_shards(const std::string& name);

/// Returns the shards that a name denotes:
///   a folder                        its files *.tar, sorted by their names
///   data/shard-{000000..000009}.tar a file for each number, from the first to the last; several braces give
///                                   all combinations, the last number running fastest
///   anything else                   the file of this name, which need not exist
/// As in shells, numbers are padded to the digits of the longer end if either end begins with a zero.
/// @throws Error (input) for a folder without shards, braces without a range of numbers, and more than
/// 1,000,000 shards
std::vector<std::string> expand_shards(const std::string& name);

/// Returns the paths, without .idx and .bin, of the Megatron indexed data sets that a name denotes. The name
/// may have either ending. A folder denotes its *.idx files; other names work as in expand_shards().
/// @throws what expand_shards() throws
std::vector<std::string> expand_prefixes(const std::string& name);

}  // namespace dflop
