#include "traces/weights/safetensors.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <semaphore>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// This many bytes of a block are read at once.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

/// A ReadAhead has a thread that reads the next piece while the current one is used. Two pieces are in
/// memory.
class ReadAhead {
 public:
  /// Reads the bytes from `begin` on that fit into `piece`.
  using Read = std::function<void(std::size_t begin, std::span<std::byte> piece)>;

  ReadAhead(std::size_t bytes, Read read) : bytes_(bytes), read_(std::move(read)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~ReadAhead() {
    thread_.request_stop();
    free_.release();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Returns the next piece, which is valid until the next call. @throws errors of reading it
  std::span<const std::byte> next() {
    if (taken_ > 0) free_.release();
    full_.acquire();
    const Piece& piece = pieces_[taken_++ % pieces_.size()];
    if (piece.failure) std::rethrow_exception(piece.failure);
    return piece.bytes;
  }

 private:
  struct Piece {
    std::vector<std::byte> bytes;
    std::exception_ptr failure;
  };

  void run(const std::stop_token& stop) {
    for (std::size_t begin = 0; begin < bytes_; begin += kPieceBytes) {
      free_.acquire();
      if (stop.stop_requested()) return;
      Piece& piece = pieces_[begin / kPieceBytes % pieces_.size()];
      try {
        piece.bytes.resize(std::min(kPieceBytes, bytes_ - begin));
        read_(begin, piece.bytes);
      } catch (...) {
        piece.failure = std::current_exception();
      }
      full_.release();
      if (piece.failure) return;
    }
  }

  std::size_t bytes_;
  Read read_;
  std::array<Piece, 2> pieces_;
  std::size_t taken_ = 0;
  std::counting_semaphore<3> free_{2};  // one more, as the end frees one
  std::counting_semaphore<2> full_{0};
  std::jthread thread_;
};

std::string range_text(std::int64_t begin, std::int64_t end) {
  return fmt::format("[{}, {})", begin, end);
}

}  // namespace

Mapping::Mapping(const ReadableFile& file) : size_(file.size()) {
  if (size_ == 0) return;  // the system cannot map empty files
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED) refuse_input(file.path(), "cannot be mapped into memory: {}", std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
  ::madvise(data, size_, MADV_SEQUENTIAL);
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void Mapping::drop(std::size_t begin, std::size_t size) const {
  if (size == 0) return;
  // Also drop the pages at the ends; otherwise all pages of blocks shorter than a page would stay.
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t from = begin / page * page;
  const std::size_t to = std::min(size_, (begin + size + page - 1) / page * page);
  ::madvise(const_cast<std::byte*>(data_ + from), to - from, MADV_DONTNEED);
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path),
      mapping_(file_),
      header_(parse_header(as_text(mapping_.bytes()), mapping_.bytes().size(), path)) {
  mapping_.drop(0, header_.data_begin);
  for (const StoredTensor& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) refuse_input(path(), "expected a tensor '{}', found none of this name", name);
  return *tensor;
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  return mapping_.bytes().subspan(tensor.begin, tensor.bytes);
}

void SafetensorsFile::drop_pages(const StoredTensor& tensor) const {
  mapping_.drop(tensor.begin, tensor.bytes);
}

void SafetensorsFile::read_block(const StoredTensor& tensor, const Block& block, std::span<float> out) const {
  read(tensor, block, out);
}

void SafetensorsFile::read_block(const StoredTensor& tensor, const Block& block,
                                 std::span<double> out) const {
  read(tensor, block, out);
}

void SafetensorsFile::check_block(const StoredTensor& tensor, const Block& block) const {
  const std::string place = fmt::format("{}: tensor '{}'", path(), tensor.name);
  if (!is_decoded(tensor.dtype)) {
    refuse_input(place, "expected numbers of F64, F32, F16 or BF16, found {}", to_string(tensor.dtype));
  }
  const auto is_within = [](std::int64_t begin, std::int64_t end, std::int64_t size) {
    return 0 <= begin && begin <= end && end <= size;
  };
  if (!is_within(block.row_begin, block.row_end, tensor.rows) ||
      !is_within(block.column_begin, block.column_end, tensor.columns)) {
    refuse_input(place, "expected rows {} and columns {}, found {} rows of {}, of shape [{}]",
                 range_text(block.row_begin, block.row_end), range_text(block.column_begin, block.column_end),
                 tensor.rows, tensor.columns, fmt::join(tensor.shape, ", "));
  }
}

void SafetensorsFile::visit_block(
    const StoredTensor& tensor, const Block& block,
    const std::function<void(const std::byte* bytes, std::size_t numbers)>& visit) const {
  check_block(tensor, block);
  if (block.rows() == 0 || block.columns() == 0) return;
  const auto index = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  const std::size_t width = index(bits_of(tensor.dtype)) / 8;
  // Whole rows are adjacent and form one run of bytes; otherwise each row is a run.
  const bool is_whole = block.columns() == tensor.columns;
  const std::size_t all = index(block.rows() * block.columns()) * width;
  const std::size_t run = is_whole ? all : index(block.columns()) * width;
  const std::size_t stride = index(tensor.columns) * width;
  const std::size_t first =
      tensor.begin + index(block.row_begin) * stride + index(block.column_begin) * width;
  const auto read_piece = [&](std::size_t begin, std::span<std::byte> piece) {
    for (std::size_t done = 0; done < piece.size();) {
      const std::size_t row = (begin + done) / run;
      const std::size_t before = (begin + done) % run;
      const std::size_t count = std::min(run - before, piece.size() - done);
      file_.read(first + row * stride + before, piece.data() + done, count);
      done += count;
    }
  };
  if (all <= kPieceBytes) {
    std::vector<std::byte> piece(all);
    read_piece(0, piece);
    return visit(piece.data(), all / width);
  }
  ReadAhead pieces(all, read_piece);
  for (std::size_t done = 0; done < all;) {
    const std::span<const std::byte> piece = pieces.next();
    visit(piece.data(), piece.size() / width);
    done += piece.size();
  }
}

template <typename Real>
void SafetensorsFile::read(const StoredTensor& tensor, const Block& block, std::span<Real> out) const {
  check_block(tensor, block);
  const auto numbers = static_cast<std::size_t>(block.rows() * block.columns());
  if (out.size() != numbers) {
    throw Error(ErrorKind::internal,
                fmt::format("expected memory for {} numbers, found {}", numbers, out.size()),
                fmt::format("{}: tensor '{}'", path(), tensor.name));
  }
  std::size_t done = 0;
  visit_block(tensor, block, [&](const std::byte* bytes, std::size_t count) {
    decode(tensor.dtype, bytes, out.subspan(done, count));
    done += count;
  });
}

}  // namespace dflop
