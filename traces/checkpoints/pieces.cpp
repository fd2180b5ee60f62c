#include "traces/checkpoints/pieces.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/parallel.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kVerifiedAtATime = std::size_t{4} << 20;

IndexRun common(const IndexRun& a, const IndexRun& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Returns the shapes of pieces in a file. A whole block is a matrix, as other programs expect; a part of a
/// block is a row.
std::vector<TensorShape> shapes_of(std::span<const PlacedPiece> pieces, Dtype dtype) {
  std::vector<TensorShape> shapes;
  for (const auto& [tensor, piece] : pieces) {
    const TensorBlock& block = piece->block;
    const bool is_whole = piece->values == IndexRun{0, block.values()};
    shapes.push_back({piece->name, dtype,
                      is_whole ? std::vector{block.held_rows(), block.columns.size()}
                               : std::vector{piece->values.size()}});
  }
  return shapes;
}

/// Returns the file's tensor. @throws Error (input) if it does not match the index
const StoredTensor& stored_piece(const SafetensorsFile& file, const TensorPiece& piece) {
  const StoredTensor& stored = file.at(piece.name);
  const bool has_values = stored.dtype == Dtype::f32 || stored.dtype == Dtype::f64;
  const std::int64_t width = bits_of(stored.dtype) / 8;
  if (!has_values || static_cast<std::int64_t>(stored.bytes) / width != piece.values.size()) {
    refuse_input(fmt::format("{}: tensor '{}'", file.path(), piece.name),
                 "expected {} values of F32 or F64, as {} says, found {} x {} of {}", piece.values.size(),
                 kCheckpointIndex, stored.rows, stored.columns, to_string(stored.dtype));
  }
  return stored;
}

/// A Target receives rows x columns of a tensor, row by row.
template <typename Real>
struct Target {
  IndexRun rows;
  IndexRun columns;
  std::span<Real> values;
};

/// Copies a piece's values of `columns` and rows [row, row + count) of the tensor, which begin at row `held`
/// of the block. Several rows are always whole in block and target, so they are one run of values in both.
template <typename Real>
void copy_rows(const TensorPiece& piece, const StoredTensor& stored, const std::byte* bytes,
               std::int64_t held, std::int64_t row, std::int64_t count, const IndexRun& columns,
               const Target<Real>& target) {
  const std::int64_t first = held * piece.block.columns.size() + columns.begin - piece.block.columns.begin;
  const IndexRun run = common({first, first + count * columns.size()}, piece.values);
  if (run.size() == 0) return;
  const std::int64_t to = (row - target.rows.begin) * target.columns.size() + columns.begin -
                          target.columns.begin + run.begin - first;
  const auto width = static_cast<std::size_t>(bits_of(stored.dtype)) / 8;
  const auto from = static_cast<std::size_t>(run.begin - piece.values.begin);
  decode(stored.dtype, bytes + from * width,
         target.values.subspan(static_cast<std::size_t>(to), static_cast<std::size_t>(run.size())));
}

template <typename Real>
void copy_piece(const TensorPiece& piece, const StoredTensor& stored, const std::byte* bytes,
                const Target<Real>& target) {
  const IndexRun columns = common(piece.block.columns, target.columns);
  const bool are_whole_rows = piece.block.columns == target.columns;
  std::int64_t held = 0;  // the run's first row in the block
  for (const IndexRun& run : piece.block.rows) {
    const IndexRun rows = common(run, target.rows);
    const std::int64_t at_once = are_whole_rows ? std::max<std::int64_t>(1, rows.size()) : 1;
    for (std::int64_t row = rows.begin; row < rows.end; row += at_once) {
      copy_rows(piece, stored, bytes, held + row - run.begin, row, at_once, columns, target);
    }
    held += run.size();
  }
}

/// Tells whether a piece may contain values of a target.
bool has_some(const TensorPiece& piece, const IndexRun& rows, const IndexRun& columns) {
  if (common(piece.block.columns, columns).size() == 0) return false;
  return std::any_of(piece.block.rows.begin(), piece.block.rows.end(),
                     [&](const IndexRun& run) { return common(run, rows).size() > 0; });
}

}  // namespace

std::vector<PlacedPiece> pieces_of(const CheckpointIndex& index, std::size_t file) {
  std::vector<PlacedPiece> pieces;
  for (const PiecedTensor& tensor : index.tensors) {
    for (const TensorPiece& piece : tensor.pieces) {
      if (piece.file == file) pieces.push_back({&tensor, &piece});
    }
  }
  return pieces;
}

PieceWriter::PieceWriter(const std::string& folder, const CheckpointIndex& index, std::size_t file,
                         Dtype dtype)
    : name_(index.files.at(file).name),
      pieces_(pieces_of(index, file)),
      writer_((fs::path(folder) / name_).string(), shapes_of(pieces_, dtype),
              {.sync = true, .checksum = true}) {}

CheckpointFile PieceWriter::finish() {
  writer_.finish();
  return {name_, writer_.file_bytes(), writer_.checksum()};
}

CheckpointReader::CheckpointReader(const std::string& folder) : folder_(folder) {
  const std::string path = (fs::path(folder) / kCheckpointIndex).string();
  index_ = parse_checkpoint_index(read_text_file(path), path);
  files_.resize(index_.files.size());
}

void CheckpointReader::verify(const std::function<bool(std::size_t)>& counts) const {
  std::vector<std::exception_ptr> faults(index_.files.size());
  parallel_for(faults.size(), [&](std::size_t f) {
    if (counts && !counts(f)) return;
    try {
      verify_file(f);
    } catch (...) {
      faults[f] = std::current_exception();
    }
  });
  for (const std::exception_ptr& fault : faults) {
    if (fault) std::rethrow_exception(fault);
  }
}

void CheckpointReader::verify_file(std::size_t f) const {
  const CheckpointFile& file = index_.files[f];
  const std::string path = (fs::path(folder_) / file.name).string();
  const Mapping mapping(path);
  const std::span<const std::byte> bytes = mapping.bytes();
  if (bytes.size() != file.bytes) {
    refuse_input(path, "{}: expected {} bytes, found {}",
                 bytes.size() < file.bytes ? "cut short" : "followed by something else", file.bytes,
                 bytes.size());
  }
  uLong crc = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kVerifiedAtATime) {
    const auto some = bytes.subspan(at, std::min(kVerifiedAtATime, bytes.size() - at));
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(some.data()), some.size());
    mapping.drop(at, some.size());
  }
  if (crc != file.crc32) {
    refuse_input(path, "damaged: the CRC-32 of the file differs from the CRC-32 when it was written");
  }
  for (const PlacedPiece& placed : pieces_of(index_, f)) stored_piece(open(f), *placed.piece);
}

const PiecedTensor& CheckpointReader::at(TensorKind kind, std::string_view name) const {
  const PiecedTensor* tensor = index_.find(kind, name);
  if (tensor == nullptr) {
    refuse_input(folder_, "expected a {} '{}', found none of this name", to_string(kind), name);
  }
  return *tensor;
}

void CheckpointReader::read(const PiecedTensor& tensor, IndexRun rows, IndexRun columns,
                            std::span<float> out) const {
  read_all(tensor, rows, columns, out);
}

void CheckpointReader::read(const PiecedTensor& tensor, IndexRun rows, IndexRun columns,
                            std::span<double> out) const {
  read_all(tensor, rows, columns, out);
}

template <typename Real>
void CheckpointReader::read_all(const PiecedTensor& tensor, IndexRun rows, IndexRun columns,
                                std::span<Real> out) const {
  const auto is_within = [](const IndexRun& part, std::int64_t size) {
    return 0 <= part.begin && part.begin <= part.end && part.end <= size;
  };
  if (!is_within(rows, tensor.rows) || !is_within(columns, tensor.columns) ||
      out.size() != static_cast<std::size_t>(rows.size() * columns.size())) {
    throw Error(ErrorKind::internal,
                fmt::format("expected rows and columns of {} x {} and memory for {} numbers, found {}",
                            tensor.rows, tensor.columns, rows.size() * columns.size(), out.size()),
                fmt::format("{}: {} '{}'", folder_, to_string(tensor.kind), tensor.name));
  }
  const Target<Real> target{rows, columns, out};
  for (const TensorPiece& piece : tensor.pieces) {
    if (!has_some(piece, rows, columns)) continue;
    const SafetensorsFile& file = open(piece.file);
    const StoredTensor& stored = stored_piece(file, piece);
    copy_piece(piece, stored, file.bytes(stored).data(), target);
    file.drop_pages(stored);
  }
}

const SafetensorsFile& CheckpointReader::open(std::size_t file) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<SafetensorsFile>& opened = files_[file];
  if (opened == nullptr) {
    opened = std::make_unique<SafetensorsFile>((fs::path(folder_) / index_.files[file].name).string());
  }
  return *opened;
}

}  // namespace dflop
