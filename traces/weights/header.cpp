#include "traces/weights/header.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "core/refuse.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr auto kMax = std::numeric_limits<std::int64_t>::max();

std::string place_of(const std::string& file, const std::string& name) {
  return fmt::format("{}: tensor '{}'", file, name);
}

/// Multiplies sizes, leaving out zeros, which would hide an overflow of the others.
/// @return false if the product is beyond `most`
bool multiply(std::int64_t& product, std::int64_t size, std::int64_t most) {
  if (size == 0) return true;
  if (size > most / product) return false;
  product *= size;
  return true;
}

/// Sets rows, columns and bytes from the shape.
/// @return false for negative sizes, if a product of sizes overflows the count of bits, or if the last byte
/// would not be full
bool set_extent(StoredTensor& tensor) {
  const std::int64_t bits = bits_of(tensor.dtype);
  std::int64_t numbers = 1;
  for (const std::int64_t size : tensor.shape) {
    if (size < 0 || !multiply(numbers, size, kMax / bits)) return false;
  }
  const bool has_rows = tensor.shape.size() > 1;
  tensor.rows = has_rows ? tensor.shape[0] : 1;
  tensor.columns = 1;
  for (std::size_t d = has_rows ? 1 : 0; d < tensor.shape.size(); ++d) tensor.columns *= tensor.shape[d];
  const std::int64_t all_bits = tensor.rows * tensor.columns * bits;
  tensor.bytes = static_cast<std::uint64_t>(all_bits) / 8;
  return all_bits % 8 == 0;
}

std::string shape_text(const TensorShape& tensor) {
  return fmt::format("{} [{}]", to_string(tensor.dtype), fmt::join(tensor.shape, ", "));
}

/// Reads a tensor. The data section begins at `data_begin` of the file and has `data_bytes` bytes.
StoredTensor read_tensor(std::string name, const JsonValue& json, std::uint64_t data_begin,
                         std::uint64_t data_bytes, const std::string& file) {
  json.require_keys({"dtype", "shape", "data_offsets"});
  StoredTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = json.at("dtype").choice<Dtype>();
  tensor.shape = json.at("shape").integers(0, kMax);
  const JsonValue offsets_json = json.at("data_offsets");
  const std::vector<std::int64_t> offsets = offsets_json.integers(0, kMax);
  if (offsets.size() != 2) offsets_json.refuse("expected [begin, end], found {} numbers", offsets.size());
  const auto begin = static_cast<std::uint64_t>(offsets[0]);
  const auto end = static_cast<std::uint64_t>(offsets[1]);
  tensor.begin = data_begin + begin;
  const std::string place = place_of(file, tensor.name);
  if (begin > end || end > data_bytes) {
    refuse_input(place, "expected offsets [begin, end] within the {} bytes of data, found [{}, {}]",
                 data_bytes, begin, end);
  }
  if (!set_extent(tensor)) {
    refuse_input(place, "expected a shape of a whole number of bytes that can be counted, found {}",
                 shape_text(tensor));
  }
  if (tensor.bytes != end - begin) {
    refuse_input(place, "expected {} bytes for {}, found {}, from {} to {} of the data", tensor.bytes,
                 shape_text(tensor), end - begin, begin, end);
  }
  return tensor;
}

Metadata read_metadata(const JsonValue& json) {
  Metadata metadata;
  for (const auto& [key, value] : json.members()) metadata.emplace(key, value.string());
  return metadata;
}

/// Rejects tensors, sorted by position, that overlap or leave unused bytes.
void check_places(const SafetensorsHeader& header, const std::string& file) {
  std::uint64_t end = header.data_begin;
  const std::string* before = nullptr;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != end) {
      const bool overlaps = tensor.begin < end;
      refuse_input(place_of(file, tensor.name),
                   "expected its data where the data of {} end, at byte {} of the file, found them at {}: {}",
                   before == nullptr ? "the header" : "'" + *before + "'", end, tensor.begin,
                   overlaps ? "they overlap" : "the bytes between belong to no tensor");
    }
    end = tensor.begin + tensor.bytes;
    before = &tensor.name;
  }
  if (end != header.file_bytes) {
    refuse_input(file, "expected the file to end with its last tensor, at byte {}, found {} bytes", end,
                 header.file_bytes);
  }
}

/// Returns the JSON of a header. @throws Error (input) for an impossible length
std::string_view header_text(std::string_view beginning, std::uint64_t file_bytes, const std::string& file) {
  if (file_bytes < kLengthBytes || beginning.size() < kLengthBytes) {
    refuse_input(file,
                 "expected a safetensors file, which begins with {} bytes of its header's length, "
                 "found {} bytes",
                 kLengthBytes, file_bytes);
  }
  if (beginning.starts_with("version https://git-lfs"))
    refuse_input(file, "expected a safetensors file, found a pointer to one: 'git lfs pull' fetches it");
  std::uint64_t length = 0;
  std::memcpy(&length, beginning.data(), sizeof length);
  const std::uint64_t left = file_bytes - kLengthBytes;
  if (length > left || length > kLongestHeader) {
    refuse_input(file,
                 "expected a safetensors file, whose first 8 bytes say how long its header is, at most {}, "
                 "found {}; is it another kind of file, or cut short?",
                 std::min(left, kLongestHeader), length);
  }
  const std::string_view text = beginning.substr(kLengthBytes, length);
  if (!text.starts_with('{')) {
    refuse_input(file, "expected a header that begins with '{{', at byte {}, found {}", kLengthBytes,
                 text.empty() ? "none" : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text[0])));
  }
  return text;
}

/// Tells whether a text survives a round trip through JSON: whether it is UTF-8.
bool reads_back(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return JsonDocument(json, "").root().string() == text;
}

[[noreturn]] void refuse_layout(const TensorShape& tensor, const std::string& message) {
  throw Error(ErrorKind::internal, message, fmt::format("tensor '{}' to be written", tensor.name));
}

StoredTensor with_extent(const TensorShape& shape) {
  StoredTensor tensor{shape};
  if (!set_extent(tensor)) {
    refuse_layout(
        shape, "expected a shape of a whole number of bytes that can be counted, found " + shape_text(shape));
  }
  return tensor;
}

}  // namespace

std::uint64_t stored_bytes(const TensorShape& tensor) {
  return with_extent(tensor).bytes;
}

SafetensorsHeader parse_header(std::string_view beginning, std::uint64_t file_bytes,
                               const std::string& file) {
  const std::string_view text = header_text(beginning, file_bytes, file);
  const JsonDocument document(text, file);
  SafetensorsHeader header;
  header.file_bytes = file_bytes;
  header.data_begin = kLengthBytes + text.size();
  for (auto& [name, json] : document.root().members()) {
    if (name == kMetadata) {
      header.metadata = read_metadata(json);
    } else {
      header.tensors.push_back(
          read_tensor(name, json, header.data_begin, file_bytes - header.data_begin, file));
    }
  }
  // A tensor without numbers has the position of the next one, and comes first.
  const auto place = [](const StoredTensor& t) { return std::tie(t.begin, t.bytes); };
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [&](const StoredTensor& a, const StoredTensor& b) { return place(a) < place(b); });
  check_places(header, file);
  return header;
}

SafetensorsHeader lay_out(std::span<const TensorShape> tensors, const Metadata& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const TensorShape& shape : tensors) {
    StoredTensor tensor = with_extent(shape);
    if (shape.name.empty() || shape.name == kMetadata) refuse_layout(shape, "expected another name");
    if (!names.insert(shape.name).second) refuse_layout(shape, "expected it once");
    if (!reads_back(shape.name)) refuse_layout(shape, "expected a name in UTF-8");
    if (tensor.bytes > kMax - offset) refuse_layout(shape, "expected sizes whose sum can be counted");
    if (const auto width = static_cast<std::uint64_t>(bits_of(shape.dtype)) / 8;
        width > 0 && offset % width != 0) {
      refuse_layout(shape,
                    fmt::format("expected {} at a multiple of {} bytes, found {}: sort the wider dtypes "
                                "before the narrower ones",
                                to_string(shape.dtype), width, offset));
    }
    tensor.begin = offset;
    offset += tensor.bytes;
    header.tensors.push_back(std::move(tensor));
  }
  for (const auto& [key, value] : metadata) {
    if (reads_back(key) && reads_back(value)) continue;
    throw Error(ErrorKind::internal, "expected metadata in UTF-8 to be written, found others under " + key);
  }
  header.data_begin = header_bytes(header).size();
  if (header.data_begin - kLengthBytes > kLongestHeader) {
    throw Error(ErrorKind::internal,
                fmt::format("expected a header of at most {} bytes to be written, found {}", kLongestHeader,
                            header.data_begin - kLengthBytes));
  }
  header.file_bytes = header.data_begin + offset;
  for (StoredTensor& tensor : header.tensors) tensor.begin += header.data_begin;
  return header;
}

std::string header_bytes(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto key = [&](std::string_view name) {
    if (text.back() != '{') text += ',';
    append_json_string(text, name);
    text += ':';
  };
  if (!header.metadata.empty()) {
    key(kMetadata);
    text += '{';
    for (const auto& [name, value] : header.metadata) {
      key(name);
      append_json_string(text, value);
    }
    text += '}';
  }
  for (const StoredTensor& tensor : header.tensors) {
    const std::uint64_t begin = tensor.begin - header.data_begin;
    key(tensor.name);
    text += fmt::format("{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        to_string(tensor.dtype), fmt::join(tensor.shape, ","), begin, begin + tensor.bytes);
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace dflop
