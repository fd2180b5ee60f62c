// A data set's shards are named by a folder or by a pattern.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dflop {

/// A ShardKind is a form that shards have: WebDataset tars, or Megatron indexed data sets.
enum class ShardKind : std::uint8_t { tar, megatron };

/// Returns what shards a data set's name stands for, or nothing where it stands for another kind of data: a
/// folder is one of tars, unless it has files *.idx and none; a name may end in .tar, .idx or .bin; and it
/// may be a Megatron data set's without an ending, a pattern of such names, too.
std::optional<ShardKind> kind_of_shards(const std::string& name);

/// Returns the shards that a name stands for:
///   a folder                        its files *.tar, sorted by their names
///   data/shard-{000000..000009}.tar a file for each number, from the first to the last; several braces give
///                                   all combinations, the last number running fastest
///   anything else                   the file of this name, which need not be there
/// Numbers have as many digits as the longer end where one of the ends begins with a zero, as in shells.
/// @throws Error (input) for a folder without shards, braces that hold no such range, and more than
/// 1,000,000 shards
std::vector<std::string> expand_shards(const std::string& name);

/// Returns the paths of Megatron indexed data sets, without .idx and .bin, that a name stands for, which may
/// have either ending: those of a folder's files *.idx, and else as expand_shards(). @throws Error (input) as
/// that
std::vector<std::string> expand_prefixes(const std::string& name);

}  // namespace dflop
