#include "traces/weights/writer.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

/// Returns the path. @throws Error (output) for a pipe or device, which cannot be renamed at the end
const std::string& checked_path(const std::string& path) {
  if (is_pipe_or_device(path)) refuse_output(path, "expected a file, found a pipe or device");
  return path;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const TensorShape> tensors,
                                     const WriterOptions& options)
    : path_(path),
      header_(lay_out(tensors, options.metadata)),
      sync_(options.sync),
      counts_checksum_(options.checksum),
      file_(checked_path(path)),
      buffer_(kBufferBytes) {
  write(header_bytes(header_));
  pass_finished();
}

void SafetensorsWriter::append(std::string_view tensor, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  in_turn(tensor);
  count(bytes.size());
  if (bytes.size() > buffer_.size() - filled_) flush();
  if (bytes.size() > buffer_.size()) {
    write(as_text(bytes));
    return;
  }
  std::memcpy(buffer_.data() + filled_, bytes.data(), bytes.size());
  filled_ += bytes.size();
}

void SafetensorsWriter::append(std::string_view tensor, std::span<const float> numbers) {
  append_numbers(tensor, numbers);
}

void SafetensorsWriter::append(std::string_view tensor, std::span<const double> numbers) {
  append_numbers(tensor, numbers);
}

template <typename Real>
void SafetensorsWriter::append_numbers(std::string_view tensor, std::span<const Real> numbers) {
  if (numbers.empty()) return;
  const Dtype dtype = in_turn(tensor).dtype;
  if (!is_encoded(dtype)) {
    throw Error(
        ErrorKind::internal,
        fmt::format("expected numbers to be written as F64, F32, F16 or BF16, found {}", to_string(dtype)),
        fmt::format("{}: tensor '{}'", path_, tensor));
  }
  const std::size_t width = static_cast<std::size_t>(bits_of(dtype)) / 8;
  count(numbers.size() * width);
  while (!numbers.empty()) {
    if (buffer_.size() - filled_ < width) flush();
    const std::size_t fits = std::min(numbers.size(), (buffer_.size() - filled_) / width);
    encode(dtype, numbers.first(fits), buffer_.data() + filled_);
    filled_ += fits * width;
    numbers = numbers.subspan(fits);
  }
}

const StoredTensor& SafetensorsWriter::in_turn(std::string_view tensor) const {
  if (turn_ == header_.tensors.size() || header_.tensors[turn_].name != tensor) {
    const std::string expected =
        turn_ == header_.tensors.size() ? "no more data" : "data of '" + header_.tensors[turn_].name + "'";
    throw Error(ErrorKind::internal, fmt::format("expected {}, found those of '{}'", expected, tensor),
                path_);
  }
  return header_.tensors[turn_];
}

void SafetensorsWriter::count(std::uint64_t bytes) {
  const StoredTensor& tensor = header_.tensors[turn_];
  if (bytes > tensor.bytes - counted_) {
    throw Error(ErrorKind::internal,
                fmt::format("expected {} bytes in all, found {}", tensor.bytes, counted_ + bytes),
                fmt::format("{}: tensor '{}'", path_, tensor.name));
  }
  counted_ += bytes;
  pass_finished();
}

/// Moves on to the first tensor that lacks data.
void SafetensorsWriter::pass_finished() {
  while (turn_ < header_.tensors.size() && counted_ == header_.tensors[turn_].bytes) {
    ++turn_;
    counted_ = 0;
  }
}

void SafetensorsWriter::flush() {
  write(as_text(std::span(buffer_).first(filled_)));
  filled_ = 0;
}

void SafetensorsWriter::write(std::string_view bytes) {
  if (counts_checksum_) {
    const auto* begin = reinterpret_cast<const Bytef*>(bytes.data());
    checksum_ = static_cast<std::uint32_t>(crc32_z(checksum_, begin, bytes.size()));
  }
  file_.append(bytes);
  if (sync_) file_.start_sync();  // otherwise everything would wait in memory until the end
}

void SafetensorsWriter::complete() {
  if (is_complete_) return;
  if (turn_ < header_.tensors.size()) {
    const StoredTensor& tensor = header_.tensors[turn_];
    throw Error(ErrorKind::internal,
                fmt::format("expected {} bytes before the file ends, found {}", tensor.bytes, counted_),
                fmt::format("{}: tensor '{}'", path_, tensor.name));
  }
  flush();
  buffer_ = {};
  if (sync_) file_.sync();
  file_.close();
  is_complete_ = true;
}

void SafetensorsWriter::finish() {
  complete();
  file_.take_final_name();
}

std::vector<std::size_t> divide_into_files(std::span<const TensorShape> tensors, std::uint64_t most_bytes) {
  std::vector<std::size_t> counts = {0};
  std::uint64_t bytes = 0;
  for (const TensorShape& shape : tensors) {
    const std::uint64_t more = stored_bytes(shape);
    if (counts.back() > 0 && (bytes > most_bytes || more > most_bytes - bytes)) {
      counts.push_back(0);
      bytes = 0;
    }
    ++counts.back();
    bytes += more;
  }
  return counts;
}

WeightsWriter::WeightsWriter(const std::string& folder, std::vector<TensorShape> tensors,
                             const WriterOptions& options, std::uint64_t most_file_bytes)
    : folder_(folder),
      tensors_(std::move(tensors)),
      options_(options),
      counts_(divide_into_files(tensors_, most_file_bytes)) {
  const std::string one = (fs::path(folder) / kWeightsFile).string();
  std::error_code ignored;
  if (counts_.size() > 1 && fs::exists(one, ignored)) {
    refuse_output(one,
                  "readers would take it for all weights, but they will be in several files next to "
                  "it");
  }
  check_all();
  begin_file();
}

/// Divides the tensors, and reports errors now that would otherwise occur after other files are written.
void WeightsWriter::check_all() {
  auto left = std::span<const TensorShape>(tensors_);
  for (std::size_t file = 0; file < counts_.size(); ++file) {
    const auto tensors = left.first(counts_[file]);
    left = left.subspan(counts_[file]);
    const SafetensorsHeader header = lay_out(tensors, options_.metadata);
    total_bytes_ += header.file_bytes - header.data_begin;
    for (const TensorShape& tensor : tensors) {
      if (weights_.emplace(tensor.name, file_name(file)).second) continue;
      throw Error(ErrorKind::internal, "expected it once",
                  fmt::format("{}: tensor '{}' to be written", folder_, tensor.name));
    }
  }
}

/// Returns the name of a file, counting from 0.
std::string WeightsWriter::file_name(std::size_t file) const {
  if (counts_.size() == 1) return std::string(kWeightsFile);
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, counts_.size());
}

void WeightsWriter::begin_file() {
  const std::size_t file = files_.size();
  const std::string path = (fs::path(folder_) / file_name(file)).string();
  const auto tensors = std::span(tensors_).subspan(begun_, counts_[file]);
  files_.push_back(std::make_unique<SafetensorsWriter>(path, tensors, options_));
  begun_ += tensors.size();
}

SafetensorsWriter& WeightsWriter::current() {
  while (files_.back()->has_all() && files_.size() < counts_.size()) {
    files_.back()->complete();
    begin_file();
  }
  return *files_.back();
}

void WeightsWriter::finish() {
  current().complete();
  if (files_.size() == 1) {
    files_.back()->finish();
    return;
  }
  StagedFile index((fs::path(folder_) / kWeightsIndex).string());
  index.append(weight_map_text(weights_, total_bytes_));
  if (options_.sync) index.sync();
  for (const auto& file : files_) file->finish();
  index.take_final_name();  // last, because it declares that the others are there
}

}  // namespace dflop
