// This file finds the shards of a data set that is named by a folder or a pattern.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dflop {

/// A ShardKind is a format of training data: WebDataset tars, Megatron indexed data sets, or lists of samples
/// in JSON (JsonList).
enum class ShardKind : std::uint8_t { tar, megatron, list };

/// Returns the kind of shards that a data set's name denotes; nullopt for other data. A folder denotes tars
/// or, if it has none, *.idx files or, if it has none of these either, *.jsonl files. Another name may end in
/// .tar, .idx, .bin or .jsonl. A file .json is a list if it begins with '[', or if its first line is an
/// object and the next one begins another. A Megatron data set may also be named without an ending, or by a
/// pattern of such names.
/// @throws Error (input) that says how to convert the data for a .parquet file or a folder of such files
std::optional<ShardKind> kind_of_shards(const std::string& name);

/// Returns the shards that a name denotes:
///   a folder                        its files *.tar or, if it has none, *.jsonl, sorted by their names
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
