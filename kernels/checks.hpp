// What checks of an operation's arguments are made of; operation_checks.hpp has one for each operation.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/kernels.hpp"

namespace dflop {

/// An argument as errors name it: "linear: weight".
struct Argument {
  std::string_view operation;
  std::string_view name;
};

/// @throws Error(internal) with both shapes unless the matrix is rows x columns and has memory for them.
void require_shape(Argument argument, ConstMatrix matrix, std::int64_t rows, std::int64_t columns);
void require_shape(Argument argument, ConstSums sums, std::int64_t rows, std::int64_t columns);

/// @throws Error(internal) unless there are `count` numbers.
void require_count(Argument argument, Indices indices, std::int64_t count);

/// @throws Error(internal) unless each number is in [0, bound).
void require_below(Argument argument, Indices indices, std::int64_t bound);

/// @throws Error(internal) unless there are `count` windows [begin[i], end[i]), each of one or more of
/// `rows`.
void require_windows(std::string_view operation, Indices begin, Indices end, std::int64_t count,
                     std::int64_t rows);

/// @throws Error(internal) unless all heads are whole and kv_heads divides heads.
void require_heads(std::string_view operation, const AttentionShape& shape);

/// @throws Error(internal) unless heads are whole and made of pairs.
void require_paired_heads(std::string_view operation, const AttentionShape& shape);

/// The offsets of sequences that fill `rows`: 0 first, never falling, `rows` last; or none for no rows.
/// @throws Error(internal) otherwise.
void require_offsets(std::string_view operation, Indices offsets, std::int64_t rows);

/// @throws Error(internal) unless logits have a class.
void require_classes(std::string_view operation, ConstMatrix logits);

/// @throws Error(internal) unless there is a rank.
void require_ranks(std::string_view operation, int ranks);

/// @throws Error(internal) unless steps count from 1.
void require_step(const AdamWStep& step);

}  // namespace dflop
