#include "backend/run/live_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

using StoreKind = ParameterStore::Kind;

constexpr std::int64_t kCopiedAtATime = std::int64_t{1} << 20;  // values
constexpr std::array<std::pair<StoreKind, TensorKind>, 3> kKeptKinds = {{
    {StoreKind::weight, TensorKind::weight},
    {StoreKind::moment1, TensorKind::moment1},
    {StoreKind::moment2, TensorKind::moment2},
}};

StoreKind store_kind(TensorKind kind) {
  return std::find_if(kKeptKinds.begin(), kKeptKinds.end(),
                      [&](const auto& kept) { return kept.second == kind; })
      ->first;
}

TensorBlock block_of(const Parameter& parameter) {
  TensorBlock block;
  for (const Range& range : parameter.row_ranges) block.rows.push_back({range.begin, range.end});
  block.columns = {parameter.column_range.begin, parameter.column_range.end};
  return block;
}

/// Calls f with a zero of the host type of sums.
template <typename F>
auto with_zero_of_sums(const RankContext& rank, const F& f) {
  return sum_type_of(rank.kernels.dtype()) == DType::f64 ? f(double{}) : f(float{});
}

struct HeldParameter {
  ParameterStore* store = nullptr;
  const Parameter* parameter = nullptr;
};

/// Finds the rank's parameter that a piece belongs to. @throws Error (internal)
HeldParameter find_held(std::span<const LiveRank::HeldStage> stages, const PlacedPiece& placed) {
  for (const LiveRank::HeldStage& stage : stages) {
    ParameterStore& store = stage.module->parameters();
    for (const Parameter& parameter : store.list()) {
      if (parameter.name != placed.tensor->name || block_of(parameter) != placed.piece->block) continue;
      const Range held = store.held(parameter, store_kind(placed.tensor->kind));
      if (held == Range{placed.piece->values.begin, placed.piece->values.end}) return {&store, &parameter};
    }
  }
  throw Error(ErrorKind::internal, "a rank must write '" + placed.piece->name + "', but does not hold it");
}

template <typename Real>
void write_piece(const RankContext& rank, const HeldParameter& held, const PlacedPiece& placed,
                 PieceWriter& writer) {
  std::vector<Real> values;
  const IndexRun all = placed.piece->values;
  for (std::int64_t first = all.begin; first < all.end; first += kCopiedAtATime) {
    values.resize(static_cast<std::size_t>(std::min(kCopiedAtATime, all.end - first)));
    held.store->read_values(rank, *held.parameter, store_kind(placed.tensor->kind), first,
                            std::span<Real>(values));
    writer.append(placed, std::span<const Real>(values));
  }
}

const PiecedTensor& tensor_of(const CheckpointReader& reader, TensorKind kind, const Parameter& parameter) {
  const PiecedTensor& tensor = reader.at(kind, parameter.name);
  if (tensor.rows != parameter.rows || tensor.columns != parameter.columns) {
    refuse_input(reader.path(), "{}: tensor '{}': expected {} x {} values, found {} x {}", to_string(kind),
                 parameter.name, parameter.rows, parameter.columns, tensor.rows, tensor.columns);
  }
  return tensor;
}

/// Reads some rows at a time, and only rows that contain values that the rank holds.
template <typename Real>
void read_parameter_values(const RankContext& rank, ParameterStore& store, const Parameter& parameter,
                           StoreKind kind, const CheckpointReader& reader, const PiecedTensor& tensor) {
  const Range held = kind == StoreKind::weight ? Range{0, parameter.count()} : store.held(parameter, kind);
  const std::int64_t width = parameter.held_columns();
  const std::int64_t at_once = std::max<std::int64_t>(1, kCopiedAtATime / std::max<std::int64_t>(1, width));
  std::vector<Real> values;
  std::int64_t first = 0;  // of the parameter's values, of the rows
  for (const Range& range : parameter.row_ranges) {
    for (std::int64_t row = range.begin; row < range.end; row += at_once) {
      const std::int64_t rows = std::min(at_once, range.end - row);
      const std::int64_t count = rows * width;
      if (first < held.end && first + count > held.begin) {
        values.resize(static_cast<std::size_t>(count));
        reader.read(tensor, {row, row + rows}, {parameter.column_range.begin, parameter.column_range.end},
                    std::span<Real>(values));
        store.write_values(rank, parameter, kind, first, std::span<const Real>(values));
      }
      first += count;
    }
  }
}

}  // namespace

Dtype dtype_of_index(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Dtype::f32;
    case DType::f64:
      return Dtype::f64;
    case DType::bf16:
      return Dtype::bf16;
  }
  throw Error(ErrorKind::internal, "unknown element type");
}

std::vector<HeldPart> held_parts(std::span<const LiveRank::HeldStage> stages, int rank, bool weights_alone) {
  std::vector<HeldPart> parts;
  for (const LiveRank::HeldStage& stage : stages) {
    const ParameterStore& store = stage.module->parameters();
    for (const Parameter& parameter : store.list()) {
      for (const auto& [kind, kept] : kKeptKinds) {
        if (weights_alone && kind != StoreKind::weight) continue;
        const Range held = store.held(parameter, kind);
        parts.push_back({parameter.name, kept, parameter.rows, parameter.columns, block_of(parameter),
                         IndexRun{held.begin, held.end}, rank, stage.stage, stage.rank->tp_rank});
      }
    }
  }
  return parts;
}

void add_held_parts(ByteWriter& writer, std::span<const HeldPart> parts) {
  for (const HeldPart& part : parts) {
    writer.add(part.tensor);
    writer.add(part.kind);
    writer.add(part.rows);
    writer.add(part.columns);
    writer.add(part.block.rows);
    writer.add(part.block.columns);
    writer.add(part.values);
    writer.add(part.rank);
    writer.add(part.stage);
    writer.add(part.tp_rank);
  }
}

std::vector<HeldPart> get_held_parts(ByteReader& reader) {
  std::vector<HeldPart> parts;
  while (!reader.at_end()) {
    HeldPart& part = parts.emplace_back();
    part.tensor = reader.get_text();
    part.kind = reader.get<TensorKind>();
    part.rows = reader.get<std::int64_t>();
    part.columns = reader.get<std::int64_t>();
    part.block.rows = reader.get_all<IndexRun>();
    part.block.columns = reader.get<IndexRun>();
    part.values = reader.get<IndexRun>();
    part.rank = reader.get<int>();
    part.stage = reader.get<int>();
    part.tp_rank = reader.get<int>();
  }
  return parts;
}

CheckpointFile write_pieces(const RankContext& rank, std::span<const LiveRank::HeldStage> stages,
                            const std::string& part, const CheckpointIndex& index, std::size_t file) {
  return with_zero_of_sums(rank, [&](auto zero) {
    using Real = decltype(zero);
    PieceWriter writer(part, index, file, dtype_of_index(sum_type_of(rank.kernels.dtype())));
    for (const PlacedPiece& placed : writer.pieces()) {
      write_piece<Real>(rank, find_held(stages, placed), placed, writer);
    }
    return writer.finish();
  });
}

void read_pieces(const RankContext& rank, std::span<const LiveRank::HeldStage> stages,
                 const CheckpointReader& reader) {
  with_zero_of_sums(rank, [&](auto zero) {
    using Real = decltype(zero);
    for (const LiveRank::HeldStage& stage : stages) {
      ParameterStore& store = stage.module->parameters();
      for (const Parameter& parameter : store.list()) {
        for (const auto& [kind, kept] : kKeptKinds) {
          const PiecedTensor& tensor = tensor_of(reader, kept, parameter);
          read_parameter_values<Real>(rank, store, parameter, kind, reader, tensor);
        }
      }
    }
  });
}

}  // namespace dflop
