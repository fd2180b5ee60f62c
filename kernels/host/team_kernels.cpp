// An operation's output decides how it is cut into chunks: by rows of the output, by columns of a weight's
// gradient, or by sequences of a head. Sums over rows are computed for each chunk and then added in the order
// of chunks.
#include "kernels/host/team_kernels.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/support/bytes.hpp"
#include "kernels/host/scratch.hpp"
#include "kernels/host/variants.hpp"

namespace dflop::team {
namespace {

constexpr std::int64_t kChunkRows = 64;
constexpr std::int64_t kChunkOutputs = 32;      ///< columns of a weight's gradient
constexpr std::int64_t kChunkValues = 1 << 14;  ///< values of element-wise operations
constexpr std::int64_t kTableParts = 16;        ///< parts of an embedding's gradient

std::int64_t chunks_of(std::int64_t count, std::int64_t chunk) {
  return (count + chunk - 1) / chunk;
}

/// A Range is the range of rows [first, first + count).
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A SequenceRun is a run of consecutive sequences. Its attention is one chunk for each key head.
struct SequenceRun {
  Range rows;
  Range offsets;  ///< in TeamPlace::run_offsets: one more than sequences
};

/// A TeamPlace holds a team, the single-threaded kernels, and temporary memory for each member and for the
/// whole team. Values and sums have the same type, f32 or f64.
struct TeamPlace {
  std::unique_ptr<Kernels> single;
  Team& team;
  std::size_t value_bytes = bytes_of(single->dtype());
  std::vector<host::Scratch> of_member{static_cast<std::size_t>(team.threads())};
  host::Scratch shared{};
  std::vector<SequenceRun> runs{};
  std::vector<std::int32_t> run_offsets{};  ///< offsets of each run's sequences from 0, run after run
};

/// A Call is a variant and the team that computes it.
template <typename... Args>
struct Call {
  host::VariantOf<Args...> variant;
  TeamPlace& place;

  void operator()(Args... args) const { variant(args...); }
};

Range chunk_range(std::int64_t chunk, std::int64_t size, std::int64_t all) {
  return {chunk * size, std::min(size, all - chunk * size)};
}

/// Returns some rows of a matrix, or some of the indices.
template <typename Argument>
Argument rows_of(const TeamPlace& place, const Argument& argument, Range range) {
  if constexpr (std::is_same_v<Argument, Indices>) {
    return {
        argument.host.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count)),
        argument.device == nullptr ? nullptr : argument.device + range.first};
  } else {
    if (argument.data == nullptr) return Argument(nullptr, range.count, argument.columns);
    const auto before = static_cast<std::size_t>(range.first * argument.columns) * place.value_bytes;
    return Argument(offset(argument.data, before), range.count, argument.columns);
  }
}

/// Returns some values of a matrix, as a row.
template <typename AnyMatrix>
AnyMatrix values_of(const TeamPlace& place, const AnyMatrix& matrix, Range range) {
  const AnyMatrix column = rows_of(place, AnyMatrix(matrix.data, matrix.size(), 1), range);
  return AnyMatrix(column.data, 1, range.count);
}

/// Returns some columns of a vector. An empty vector stays empty.
Sums columns_of_row(const TeamPlace& place, Sums row, Range columns) {
  if (row.columns == 0) return {};
  return {offset(row.data, static_cast<std::size_t>(columns.first) * place.value_bytes), 1, columns.count};
}

template <typename... Args>
decltype(auto) first_of(const Args&... args) {
  return std::get<0>(std::tie(args...));
}

/// Cuts the arguments whose bit in `cut` is set into chunks of rows. The lowest bit stands for the first
/// argument.
template <unsigned cut, typename... Args>
void by_rows(const Call<Args...>& call, Args... args) {
  const std::int64_t rows = first_of(args...).rows;
  call.place.team.run(chunks_of(rows, kChunkRows), [&](std::int64_t chunk, int) {
    const Range range = chunk_range(chunk, kChunkRows, rows);
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      const auto part = [&]<std::size_t index, typename Argument>(const Argument& argument) -> Argument {
        if constexpr ((cut >> index & 1U) != 0) {
          return rows_of(call.place, argument, range);
        } else {
          return argument;
        }
      };
      call(part.template operator()<i, Args>(args)...);
    }
    (std::index_sequence_for<Args...>());
  });
}

/// Cuts all matrices into chunks of values, regardless of rows.
template <typename... Args>
void by_values(const Call<Args...>& call, Args... args) {
  const std::int64_t values = first_of(args...).size();
  call.place.team.run(chunks_of(values, kChunkValues), [&](std::int64_t chunk, int) {
    const Range range = chunk_range(chunk, kChunkValues, values);
    const auto part = [&]<typename Argument>(const Argument& argument) -> Argument {
      if constexpr (requires { argument.size(); }) {
        return values_of(call.place, argument, range);
      } else {
        return argument;
      }
    };
    call(part.template operator()<Args>(args)...);
  });
}

/// Calls the variant in the calling thread, for operations that take almost no time in a step.
template <typename... Args>
void whole(const Call<Args...>& call, Args... args) {
  call(args...);
}

/// A Part is some rows and columns of a matrix. Its values are not contiguous.
struct Part {
  std::byte* begin = nullptr;
  std::size_t stride = 0;  ///< bytes between rows
  std::int64_t rows = 0;
  std::size_t bytes = 0;  ///< of a row
};

template <typename AnyMatrix>
Part part_of(const TeamPlace& place, const AnyMatrix& matrix, Range rows, Range columns) {
  const auto bytes = [&](std::int64_t values) {
    return static_cast<std::size_t>(values) * place.value_bytes;
  };
  if (matrix.data == nullptr) return {nullptr, bytes(matrix.columns), 0, bytes(columns.count)};  // no rows
  const auto* begin =
      offset(static_cast<const void*>(matrix.data), bytes(rows.first * matrix.columns + columns.first));
  return {const_cast<std::byte*>(begin), bytes(matrix.columns), rows.count, bytes(columns.count)};
}

void copy(const Part& to, const Part& from) {
  for (std::int64_t row = 0; row < to.rows; ++row) {
    const auto at = static_cast<std::size_t>(row);
    std::memcpy(to.begin + at * to.stride, from.begin + at * from.stride, to.bytes);
  }
}

/// A Packing is a member's memory, from which it allocates matrices.
class Packing {
 public:
  /// @pre at most kMaxMatrices matrices with `values` values in total are allocated
  Packing(TeamPlace& place, int member, std::int64_t values)
      : place_(place),
        next_(place.of_member[static_cast<std::size_t>(member)].of_size(
            static_cast<std::size_t>(values) * place.value_bytes + kMaxMatrices * kAligned)) {}

  template <typename AnyMatrix>
  AnyMatrix take(std::int64_t rows, std::int64_t columns) {
    const AnyMatrix matrix(next_, rows, columns);
    const auto bytes = static_cast<std::size_t>(rows * columns) * place_.value_bytes;
    next_ = offset(next_, (bytes + kAligned - 1) / kAligned * kAligned);
    return matrix;
  }

  /// Returns a copy of the columns of the rows.
  template <typename AnyMatrix>
  AnyMatrix copy_of(const AnyMatrix& matrix, Range rows, Range columns) {
    const auto packed = take<AnyMatrix>(rows.count, columns.count);
    copy(whole_part(packed), part_of(place_, matrix, rows, columns));
    return packed;
  }

  /// Copies a packed matrix to the columns of the rows.
  template <typename AnyMatrix>
  void copy_back(const AnyMatrix& packed, const AnyMatrix& matrix, Range rows,
                 std::int64_t first_column) const {
    copy(part_of(place_, matrix, rows, {first_column, packed.columns}), whole_part(packed));
  }

 private:
  static constexpr std::size_t kAligned = static_cast<std::size_t>(host::kAlignment);
  static constexpr std::size_t kMaxMatrices = 8;

  template <typename AnyMatrix>
  Part whole_part(const AnyMatrix& matrix) const {
    return part_of(place_, matrix, {0, matrix.rows}, {0, matrix.columns});
  }

  TeamPlace& place_;
  void* next_;
};

void linear_backward_weight(const Call<Sums, Sums, ConstMatrix, ConstMatrix, Beta>& call, Sums dweight,
                            Sums dbias, ConstMatrix dy, ConstMatrix x, Beta beta) {
  TeamPlace& place = call.place;
  place.team.run(chunks_of(dweight.rows, kChunkOutputs), [&](std::int64_t chunk, int member) {
    const Range outputs = chunk_range(chunk, kChunkOutputs, dweight.rows);
    Packing packing(place, member, dy.rows * outputs.count);
    const auto gradient = packing.copy_of(dy, {0, dy.rows}, outputs);
    call(rows_of(place, dweight, outputs), columns_of_row(place, dbias, outputs), gradient, x, beta);
  });
}

void embedding_backward(const Call<Sums, ConstMatrix, Indices, std::int64_t>& call, Sums dtable,
                        ConstMatrix dy, Indices ids, std::int64_t first) {
  const std::int64_t size = chunks_of(dtable.rows, kTableParts);
  if (size == 0) return;
  call.place.team.run(chunks_of(dtable.rows, size), [&](std::int64_t chunk, int) {
    const Range rows = chunk_range(chunk, size, dtable.rows);
    call(rows_of(call.place, dtable, rows), dy, ids, first + rows.first);  // others' ids are ignored
  });
}

/// PartialSums holds the sums of each chunk of rows and adds them to the total.
class PartialSums {
 public:
  PartialSums(TeamPlace& place, std::int64_t chunks, std::int64_t columns)
      : place_(place),
        chunks_(chunks),
        columns_(columns),
        bytes_(static_cast<std::size_t>(columns) * place.value_bytes) {
    const std::size_t all = static_cast<std::size_t>(chunks) * bytes_;
    data_ = place.shared.of_size(all);
    if (all > 0) std::memset(data_, 0, all);
  }

  /// Returns the chunk's sums for some columns; empty for no columns.
  Sums of_chunk(std::int64_t chunk, Range columns) const {
    if (columns.count == 0) return {};
    const auto at = static_cast<std::size_t>(chunk * columns_ + columns.first) * place_.value_bytes;
    return {offset(data_, at), 1, columns.count};
  }

  /// Adds the sums of all chunks to `total`, in chunk order.
  void add_to(Sums total, std::int64_t first_column) const {
    for (std::int64_t chunk = 0; chunk < chunks_ && total.columns > 0; ++chunk) {
      const Sums sums = of_chunk(chunk, {first_column, total.columns});
      place_.single->add(Matrix(total.data, 1, total.columns), ConstMatrix(sums.data, 1, sums.columns));
    }
  }

 private:
  TeamPlace& place_;
  std::int64_t chunks_;
  std::int64_t columns_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

void layer_norm_backward(
    const Call<Matrix, Sums, Sums, ConstMatrix, ConstMatrix, ConstMatrix, ConstSums, ConstMatrix>& call,
    Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
    ConstSums statistics, ConstMatrix added) {
  TeamPlace& place = call.place;
  const std::int64_t chunks = chunks_of(x.rows, kChunkRows);
  const PartialSums sums(place, chunks, dgamma.columns + dbeta.columns);
  place.team.run(chunks, [&](std::int64_t chunk, int) {
    const Range rows = chunk_range(chunk, kChunkRows, x.rows);
    call(rows_of(place, dx, rows), sums.of_chunk(chunk, {0, dgamma.columns}),
         sums.of_chunk(chunk, {dgamma.columns, dbeta.columns}), rows_of(place, dy, rows),
         rows_of(place, x, rows), gamma, rows_of(place, statistics, rows), rows_of(place, added, rows));
  });
  sums.add_to(dgamma, 0);
  sums.add_to(dbeta, dgamma.columns);
}

void rms_norm_backward(
    const Call<Matrix, Sums, ConstMatrix, ConstMatrix, ConstMatrix, ConstSums, ConstMatrix>& call, Matrix dx,
    Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma, ConstSums statistics, ConstMatrix added) {
  TeamPlace& place = call.place;
  const std::int64_t chunks = chunks_of(x.rows, kChunkRows);
  const PartialSums sums(place, chunks, dgamma.columns);
  place.team.run(chunks, [&](std::int64_t chunk, int) {
    const Range rows = chunk_range(chunk, kChunkRows, x.rows);
    call(rows_of(place, dx, rows), sums.of_chunk(chunk, {0, dgamma.columns}), rows_of(place, dy, rows),
         rows_of(place, x, rows), gamma, rows_of(place, statistics, rows), rows_of(place, added, rows));
  });
  sums.add_to(dgamma, 0);
}

void cross_entropy_backward(const Call<InOutMatrix, Sums, ConstSums, Indices, std::int64_t, double>& call,
                            InOutMatrix logits, Sums loss, ConstSums merged, Indices targets,
                            std::int64_t first, double weight) {
  TeamPlace& place = call.place;
  const std::int64_t chunks = chunks_of(logits.rows, kChunkRows);
  const PartialSums sums(place, chunks, 1);
  place.team.run(chunks, [&](std::int64_t chunk, int) {
    const Range rows = chunk_range(chunk, kChunkRows, logits.rows);
    call(rows_of(place, logits, rows), sums.of_chunk(chunk, {0, 1}), rows_of(place, merged, rows),
         rows_of(place, targets, rows), first, weight);
  });
  sums.add_to(loss, 0);
}

void unpack_values(const Call<Matrix, Sums, const StoredNumbers&>& call, Matrix y, Sums not_finite,
                   const StoredNumbers& x) {
  TeamPlace& place = call.place;
  const std::int64_t chunks = chunks_of(y.size(), kChunkValues);
  const PartialSums found(place, chunks, 1);
  place.team.run(chunks, [&](std::int64_t chunk, int) {
    const Range range = chunk_range(chunk, kChunkValues, y.size());
    call(values_of(place, y, range), found.of_chunk(chunk, {0, 1}), part_of(x, range.first, range.count));
  });
  found.add_to(not_finite, 0);
}

void unpack_sums(const Call<Sums, const StoredNumbers&>& call, Sums y, const StoredNumbers& x) {
  call.place.team.run(chunks_of(y.size(), kChunkValues), [&](std::int64_t chunk, int) {
    const Range range = chunk_range(chunk, kChunkValues, y.size());
    call(values_of(call.place, y, range), part_of(x, range.first, range.count));
  });
}

/// Groups sequences into runs that have at least the rows of a chunk, except for the last run.
void find_runs(TeamPlace& place, Indices offsets) {
  place.runs.clear();
  place.run_offsets.clear();
  std::size_t first = 0;
  for (std::size_t next = 1; next < offsets.host.size(); ++next) {
    const std::int64_t begin = offsets.host[first];
    const std::int64_t rows = offsets.host[next] - begin;
    if (rows == 0 || (rows < kChunkRows && next + 1 < offsets.host.size())) continue;
    const auto sequences = static_cast<std::int64_t>(next - first);
    place.runs.push_back({{begin, rows}, {std::ssize(place.run_offsets), sequences + 1}});
    for (; first <= next; ++first) {
      place.run_offsets.push_back(offsets.host[first] - static_cast<std::int32_t>(begin));
    }
    first = next;
  }
}

/// A HeadGroup is one chunk of attention: one key head and its query heads, in one run of sequences. Its
/// columns are in three places of the packed projection.
struct HeadGroup {
  AttentionShape shape;  ///< of this group only
  Range rows;
  Range queries;  ///< columns in the projection and in the output
  Range keys;
  Range values;
  Range heads;  ///< columns of statistics
  Indices offsets;
};

HeadGroup head_group(const TeamPlace& place, const AttentionShape& shape, std::int64_t chunk) {
  const SequenceRun& run = place.runs[static_cast<std::size_t>(chunk / shape.kv_heads)];
  const std::int64_t key_head = chunk % shape.kv_heads;
  const std::int64_t width = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  return {.shape = {static_cast<int>(group), 1, shape.head_dim, shape.causal},
          .rows = run.rows,
          .queries = {key_head * group * width, group * width},
          .keys = {(shape.heads + key_head) * width, width},
          .values = {(shape.heads + shape.kv_heads + key_head) * width, width},
          .heads = {key_head * group, group},
          .offsets = rows_of(place, Indices{place.run_offsets, place.run_offsets.data()}, run.offsets)};
}

/// Copies the group's columns of a packed projection to a separate one, or back.
template <typename AnyMatrix>
void copy_projection(const TeamPlace& place, const HeadGroup& group, const AnyMatrix& projection,
                     const AnyMatrix& packed, bool back) {
  std::int64_t first = 0;
  for (const Range columns : {group.queries, group.keys, group.values}) {
    const Part theirs = part_of(place, projection, group.rows, columns);
    const Part own = part_of(place, packed, {0, group.rows.count}, {first, columns.count});
    back ? copy(theirs, own) : copy(own, theirs);
    first += columns.count;
  }
}

ConstMatrix packed_projection(const TeamPlace& place, const HeadGroup& group, ConstMatrix qkv,
                              Packing& packing) {
  const auto packed = packing.take<ConstMatrix>(group.rows.count, group.shape.qkv_columns());
  copy_projection(place, group, qkv, packed, false);
  return packed;
}

void attention(const Call<Matrix, Sums, ConstMatrix, const AttentionShape&, Indices>& call, Matrix out,
               Sums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets) {
  TeamPlace& place = call.place;
  find_runs(place, offsets);
  place.team.run(std::ssize(place.runs) * shape.kv_heads, [&](std::int64_t chunk, int member) {
    const HeadGroup group = head_group(place, shape, chunk);
    const std::int64_t rows = group.rows.count;
    Packing packing(place, member,
                    rows * (group.shape.qkv_columns() + group.shape.out_columns() + group.shape.heads));
    const auto own_out = packing.take<Matrix>(rows, group.shape.out_columns());
    const auto own_statistics = packing.take<Sums>(rows, group.shape.heads);
    call(own_out, own_statistics, packed_projection(place, group, qkv, packing), group.shape, group.offsets);
    packing.copy_back(own_out, out, group.rows, group.queries.first);
    packing.copy_back(own_statistics, statistics, group.rows, group.heads.first);
  });
}

void attention_backward(const Call<Matrix, ConstMatrix, ConstMatrix, ConstSums, ConstMatrix,
                                   const AttentionShape&, Indices>& call,
                        Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                        const AttentionShape& shape, Indices offsets) {
  TeamPlace& place = call.place;
  find_runs(place, offsets);
  place.team.run(std::ssize(place.runs) * shape.kv_heads, [&](std::int64_t chunk, int member) {
    const HeadGroup group = head_group(place, shape, chunk);
    const std::int64_t rows = group.rows.count;
    Packing packing(
        place, member,
        rows * (2 * group.shape.qkv_columns() + 2 * group.shape.out_columns() + group.shape.heads));
    const auto own_dqkv = packing.take<Matrix>(rows, group.shape.qkv_columns());
    const auto own_dout = packing.copy_of(dout, group.rows, group.queries);
    const auto own_out = packing.copy_of(out, group.rows, group.queries);
    const auto own_statistics = packing.copy_of(statistics, group.rows, group.heads);
    call(own_dqkv, own_dout, own_out, own_statistics, packed_projection(place, group, qkv, packing),
         group.shape, group.offsets);
    copy_projection(place, group, dqkv, own_dqkv, true);
  });
}

class TeamKernels final : public Kernels {
 public:
  TeamKernels(std::unique_ptr<Kernels> single, Team& team)
      : Kernels(single->dtype()), place_{std::move(single), team} {
    using K = Kernels;
    cut_rows<0b0011>(&K::linear);
    cut_rows<0b011>(&K::linear_backward_input);
    cut<team::linear_backward_weight>(&K::linear_backward_weight);
    cut_rows<0b0001111>(&K::layer_norm);
    cut<team::layer_norm_backward>(&K::layer_norm_backward);
    cut_rows<0b001111>(&K::rms_norm);
    cut<team::rms_norm_backward>(&K::rms_norm_backward);
    cut_values(&K::gelu);
    cut_values(&K::gelu_backward);
    cut_values(&K::gelu_erf);
    cut_values(&K::gelu_erf_backward);
    cut_values(&K::gelu_quick);
    cut_values(&K::gelu_quick_backward);
    cut_rows<0b11>(&K::swiglu);
    cut_rows<0b111>(&K::swiglu_backward);
    cut_rows<0b00101>(&K::rope);
    cut<team::attention>(&K::attention);
    cut<team::attention_backward>(&K::attention_backward);
    cut_rows<0b0101>(&K::embedding);
    cut<team::embedding_backward>(&K::embedding_backward);
    cut_rows<0b001101>(&K::mix_rows);
    cut_rows<0b101>(&K::gather_rows);
    cut_nothing(&K::scatter_add_rows);
    cut_rows<0b011>(&K::scale_columns);
    cut_nothing(&K::column_products);
    cut_rows<0b0111>(&K::cross_entropy_parts);
    cut_nothing(&K::cross_entropy_merge);
    cut<team::cross_entropy_backward>(&K::cross_entropy_backward);
    cut_values(&K::add);
    cut_values(&K::zero_values);
    cut_values(&K::zero_sums);
    cut_values(&K::round);
    cut<team::unpack_values>(&K::unpack_values);
    cut<team::unpack_sums>(&K::unpack_sums);
    cut_nothing(&K::sum_of_squares);
    cut_values(&K::adamw);
  }

 private:
  /// Adds a variant for each single-threaded variant of the operation.
  template <auto function, typename... Args>
  void cut(Operation<void(Args...)> Kernels::*operation) {
    const Operation<void(Args...)>& single = (*place_.single).*operation;
    for (std::size_t i = 0; i < single.variants(); ++i) {
      auto& call = states_.keep(Call<Args...>{{single, i}, place_});
      (this->*operation).template add<function>(single.variant_name(i), call);
    }
  }
  /// Cuts the arguments whose bit is set by rows, like by_rows().
  template <unsigned arguments, typename... Args>
  void cut_rows(Operation<void(Args...)> Kernels::*operation) {
    cut<by_rows<arguments, Args...>>(operation);
  }
  template <typename... Args>
  void cut_values(Operation<void(Args...)> Kernels::*operation) {
    cut<by_values<Args...>>(operation);
  }
  /// These operations take almost no time in a step.
  template <typename... Args>
  void cut_nothing(Operation<void(Args...)> Kernels::*operation) {
    cut<whole<Args...>>(operation);
  }

  TeamPlace place_;
  host::KeptStates states_;
};

}  // namespace

std::unique_ptr<Kernels> make_team_kernels(std::unique_ptr<Kernels> single, Team& team) {
  return std::make_unique<TeamKernels>(std::move(single), team);
}

}  // namespace dflop::team
