#include "traces/files/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "core/refuse.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "files are the memory of a little-endian machine");

constexpr std::string_view kMagic = "DFLOPCKP";
constexpr std::uint32_t kLayout = 1;
constexpr std::string_view kCheckpointSchema = "dflop.checkpoint";
constexpr int kCheckpointVersion = 1;

/// A Preamble is how a file begins.
struct Preamble {
  std::array<char, 8> magic{};
  std::uint32_t layout = kLayout;
  std::uint32_t crc = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t file_bytes = 0;
};
static_assert(sizeof(Preamble) == 32 && std::is_trivially_copyable_v<Preamble>);

std::size_t width(ElementType element) {
  return element == ElementType::f32 ? sizeof(float) : sizeof(double);
}

std::uint32_t crc_of(std::string_view bytes, std::uint32_t crc = 0) {
  return static_cast<std::uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t crc_of(Preamble preamble, std::string_view header) {
  preamble.crc = 0;
  return crc_of(header, crc_of({reinterpret_cast<const char*>(&preamble), sizeof preamble}));
}

// These functions write checkpoints.

[[noreturn]] void refuse_tensor(const NamedTensor& tensor, const std::string& message) {
  throw Error(ErrorKind::internal, message,
              fmt::format("{} '{}' of a checkpoint", to_string(tensor.kind), tensor.name));
}

/// Returns the value as a float. @throws Error (internal) if this is no float.
float to_float(const NamedTensor& tensor, double value) {
  const bool in_range = !(std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max());
  const float single = in_range ? static_cast<float>(value) : 0.0F;
  if (!std::isnan(value) && static_cast<double>(single) != value) {
    refuse_tensor(tensor, fmt::format("expected values that f32 holds, found {}", value));
  }
  return single;
}

std::string raw_values(const NamedTensor& tensor) {
  std::string raw(tensor.values.size() * width(tensor.element), '\0');
  if (tensor.element == ElementType::f64) {
    std::memcpy(raw.data(), tensor.values.data(), raw.size());
    return raw;
  }
  char* out = raw.data();
  for (const double value : tensor.values) {
    const float single = to_float(tensor, value);
    std::memcpy(out, &single, sizeof single);
    out += sizeof single;
  }
  return raw;
}

void check_writable(const Checkpoint& checkpoint) {
  if (checkpoint.step < 0 || checkpoint.gbs < 1 || checkpoint.samples_drawn < 0) {
    throw Error(
        ErrorKind::internal,
        fmt::format("expected no negative step, gbs or drawn samples in a checkpoint, found {}, {}, {}",
                    checkpoint.step, checkpoint.gbs, checkpoint.samples_drawn));
  }
  std::set<std::pair<TensorKind, std::string_view>> known;
  for (const NamedTensor& tensor : checkpoint.tensors) {
    if (!known.emplace(tensor.kind, tensor.name).second) refuse_tensor(tensor, "expected it once");
    const std::size_t size = tensor.values.size();
    const auto rows = static_cast<std::uint64_t>(tensor.rows);
    const auto columns = static_cast<std::uint64_t>(tensor.columns);
    // This is a division, as the product of any two numbers may overflow.
    if (tensor.rows < 1 || tensor.columns < 1 || size % rows != 0 || size / rows != columns) {
      refuse_tensor(tensor,
                    fmt::format("expected {} x {} values, found {}", tensor.rows, tensor.columns, size));
    }
  }
}

void write_tensors(JsonWriter& writer, const std::vector<NamedTensor>& tensors) {
  std::size_t offset = 0;
  writer.begin_array("tensors");
  for (const NamedTensor& tensor : tensors) {
    const std::string raw = raw_values(tensor);
    writer.begin_object();
    writer.field("name", tensor.name);
    writer.field("kind", to_string(tensor.kind));
    writer.field("element", to_string(tensor.element));
    writer.field("rows", tensor.rows);
    writer.field("columns", tensor.columns);
    writer.field("offset_bytes", offset);
    writer.field("crc32", crc_of(raw));
    writer.end_object();
    offset += raw.size();
  }
  writer.end_array();
}

std::string write_header(const Checkpoint& checkpoint) {
  JsonWriter writer(kCheckpointSchema, kCheckpointVersion);
  writer.field("model", checkpoint.model);
  writer.field("model_spec", checkpoint.model_spec);
  writer.field("step", checkpoint.step);
  writer.field("seed", checkpoint.seed);
  writer.field("dtype", to_string(checkpoint.dtype));
  writer.field("gbs", checkpoint.gbs);
  writer.field("scheduler", checkpoint.scheduler);
  writer.field("data_file", checkpoint.data_file);
  writer.field("data_fingerprint", checkpoint.data_fingerprint);
  writer.field("samples_drawn", checkpoint.samples_drawn);
  writer.field("plan", checkpoint.plan);
  if (!checkpoint.kernels.empty()) writer.field("kernels", checkpoint.kernels);
  write_tensors(writer, checkpoint.tensors);
  return writer.finish();
}

/// Waits until a file's or a folder's content is on the disk. What cannot be waited for, as a device, is no
/// error.
void sync_to_disk(const std::string& path, const std::string& place) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && (::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP);
  const int reason = errno;
  if (file >= 0) ::close(file);
  if (!synced) {
    throw Error(ErrorKind::output, std::string("cannot be kept on the disk: ") + std::strerror(reason),
                place);
  }
}

// These functions read checkpoints.

/// Reads how a file begins: `begin` is the file's first bytes, at least those of a preamble if it has them,
/// and `size` its length.
Preamble read_preamble(std::string_view begin, std::uint64_t size, const std::string& file) {
  if (begin.substr(0, kMagic.size()) != kMagic.substr(0, begin.size())) {
    refuse_input(file, "expected a checkpoint, which begins with {}, found another kind of file", kMagic);
  }
  Preamble preamble;
  if (begin.size() < sizeof preamble) {
    refuse_input(file, "cut short: expected at least {} bytes, found {}", sizeof preamble, size);
  }
  std::memcpy(&preamble, begin.data(), sizeof preamble);
  if (preamble.layout != kLayout) {
    refuse_input(file, "written by another version: this one reads version {}, found {}", kLayout,
                 preamble.layout);
  }
  if (preamble.file_bytes != size) {
    refuse_input(file, "{}: expected {} bytes, found {}",
                 size < preamble.file_bytes ? "cut short" : "followed by something else", preamble.file_bytes,
                 size);
  }
  const std::uint64_t most = size - sizeof preamble;
  if (preamble.header_bytes > most) {
    refuse_input(file, "damaged: expected a header of at most {} bytes, found {}", most,
                 preamble.header_bytes);
  }
  return preamble;
}

/// Returns the bytes of a tensor, of which `left` are there.
std::size_t size_of(const JsonValue& json, const NamedTensor& tensor, std::size_t left) {
  const auto rows = static_cast<std::size_t>(tensor.rows);
  const auto columns = static_cast<std::size_t>(tensor.columns);
  const std::size_t most = left / width(tensor.element);
  if (columns > most || rows > most / columns) {
    json.refuse("expected at most {} values, as many as the file has left, found {} x {}", most, tensor.rows,
                tensor.columns);
  }
  return rows * columns * width(tensor.element);
}

std::vector<double> read_values(std::string_view raw, ElementType element) {
  std::vector<double> values(raw.size() / width(element));
  if (element == ElementType::f64) {
    // An empty span may have no address, which memcpy does not allow.
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
  const char* in = raw.data();
  for (double& value : values) {
    float single = 0;
    std::memcpy(&single, in, sizeof single);
    value = static_cast<double>(single);
    in += sizeof single;
  }
  return values;
}

/// Reads the tensor at the beginning of `data`, `offset` bytes behind the first; takes it off.
NamedTensor read_tensor(const JsonValue& json, std::string_view& data, std::size_t offset) {
  json.require_keys({"name", "kind", "element", "rows", "columns", "offset_bytes", "crc32"});
  NamedTensor tensor;
  tensor.name = json.at("name").string();
  tensor.kind = json.at("kind").choice<TensorKind>();
  tensor.element = json.at("element").choice<ElementType>();
  tensor.rows = json.at("rows").integer<std::int64_t>(1);
  tensor.columns = json.at("columns").integer<std::int64_t>(1);
  if (json.at("offset_bytes").unsigned_integer() != offset) {
    json.at("offset_bytes").refuse_type("{}, where the tensor before it ends", offset);
  }
  const std::string_view raw = data.substr(0, size_of(json, tensor, data.size()));
  if (json.at("crc32").unsigned_integer() != crc_of(raw)) {
    json.at("crc32").refuse("damaged: the values of {} '{}' have another CRC-32 than when written",
                            to_string(tensor.kind), tensor.name);
  }
  tensor.values = read_values(raw, tensor.element);
  data.remove_prefix(raw.size());
  return tensor;
}

std::vector<NamedTensor> read_tensors(const JsonValue& json, const std::string_view data) {
  std::vector<NamedTensor> tensors;
  std::set<std::pair<TensorKind, std::string>> known;
  std::string_view left = data;
  for (const JsonValue& element : json.elements()) {
    tensors.push_back(read_tensor(element, left, data.size() - left.size()));
    const NamedTensor& tensor = tensors.back();
    if (!known.emplace(tensor.kind, tensor.name).second) {
      element.at("name").refuse("expected one {} of each name, found '{}' twice", to_string(tensor.kind),
                                tensor.name);
    }
  }
  if (!left.empty()) {
    json.refuse("expected tensors of {} bytes, which follow the header, found {}", data.size(),
                data.size() - left.size());
  }
  return tensors;
}

}  // namespace

std::string to_bytes(const Checkpoint& checkpoint) {
  check_writable(checkpoint);
  const std::string header = write_header(checkpoint);
  Preamble preamble;
  kMagic.copy(preamble.magic.data(), preamble.magic.size());
  preamble.header_bytes = header.size();
  preamble.file_bytes = sizeof preamble + header.size();
  for (const NamedTensor& tensor : checkpoint.tensors) {
    preamble.file_bytes += tensor.values.size() * width(tensor.element);
  }
  preamble.crc = crc_of(preamble, header);

  std::string bytes;
  bytes.reserve(preamble.file_bytes);
  bytes.append(reinterpret_cast<const char*>(&preamble), sizeof preamble);
  bytes += header;
  // Values are converted once more rather than kept since their CRC was taken: memory is scarcer than time
  // here.
  for (const NamedTensor& tensor : checkpoint.tensors) bytes += raw_values(tensor);
  return bytes;
}

Checkpoint parse_checkpoint(std::string_view bytes, const std::string& file) {
  const Preamble preamble = read_preamble(bytes, bytes.size(), file);
  const std::string_view header = bytes.substr(sizeof preamble, preamble.header_bytes);
  if (preamble.crc != crc_of(preamble, header)) {
    refuse_input(file, "damaged: the header has another CRC-32 than when written");
  }
  const JsonDocument document(header, file);
  const JsonValue root = document.root(kCheckpointSchema, kCheckpointVersion);
  root.require_keys({"schema", "version", "model", "model_spec", "step", "seed", "dtype", "gbs", "scheduler",
                     "data_file", "data_fingerprint", "samples_drawn", "plan", "tensors"},
                    {"kernels"});
  Checkpoint checkpoint;
  checkpoint.model = root.at("model").string();
  checkpoint.model_spec = root.at("model_spec").string();
  checkpoint.step = root.at("step").integer<std::int64_t>(0);
  checkpoint.seed = root.at("seed").unsigned_integer();
  checkpoint.dtype = root.at("dtype").choice<ElementType>();
  checkpoint.gbs = root.at("gbs").integer(1);
  checkpoint.scheduler = root.at("scheduler").string();
  checkpoint.data_file = root.at("data_file").string();
  checkpoint.data_fingerprint = root.at("data_fingerprint").string();
  checkpoint.samples_drawn = root.at("samples_drawn").integer<std::int64_t>(0);
  checkpoint.plan = root.at("plan").string();
  if (root.has("kernels")) checkpoint.kernels = root.at("kernels").string();
  checkpoint.tensors = read_tensors(root.at("tensors"), bytes.substr(sizeof preamble + header.size()));
  return checkpoint;
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  if (path.ends_with(".gz")) {
    throw Error(ErrorKind::output, "expected a path that does not end in .gz: checkpoints are not compressed",
                path);
  }
  write_file_atomically(path, to_bytes(checkpoint));
  const fs::path folder = fs::path(path).parent_path();
  sync_to_disk(path, path);
  sync_to_disk(folder.empty() ? "." : folder.string(), path);
}

Checkpoint read_checkpoint(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) refuse_input(path, "cannot be read: {}", error.message());
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse_input(path, "cannot be opened: {}", std::strerror(errno));
  std::string bytes(std::min<std::uint64_t>(size, sizeof(Preamble)), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  // This is checked before the rest is read: another kind of file may be of any size.
  read_preamble({bytes.data(), static_cast<std::size_t>(in.gcount())}, size, path);
  bytes.resize(size);
  in.read(bytes.data() + sizeof(Preamble), static_cast<std::streamsize>(size - sizeof(Preamble)));
  if (!in) refuse_input(path, "cannot be read to its end");
  return parse_checkpoint(bytes, path);
}

namespace {

/// Returns the step of a file name that checkpoint_path() gives.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* digits = name.data() + kPrefix.size();
  if (std::from_chars(digits, name.data() + name.size(), step).ec != std::errc()) return std::nullopt;
  return step >= 0 && checkpoint_path("", step) == name ? std::optional(step) : std::nullopt;
}

struct CheckpointFiles {
  std::map<std::int64_t, std::string, std::greater<>> complete;  // by step, the highest first
  std::multimap<std::int64_t, std::string> parts;                // of killed writers
  std::map<std::int64_t, std::string> others;                    // that are called so and are no files
};

CheckpointFiles list_existing(const std::string& folder) {
  CheckpointFiles files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code ignored;  // of a link to nowhere
    const bool is_file = entry.is_regular_file(ignored);
    const std::string name = entry.path().filename().string();
    const std::size_t part = name.find(".part-");
    const auto step = step_of(name.substr(0, part));
    if (!step) continue;
    if (!is_file) {
      if (part == std::string::npos && entry.exists(ignored))
        files.others.emplace(*step, entry.path().string());
    } else if (part == std::string::npos) {
      files.complete.emplace(*step, entry.path().string());
    } else {
      files.parts.emplace(*step, entry.path().string());
    }
  }
  return files;
}

/// Lists the checkpoints of a folder. @throws Error (input)
CheckpointFiles list_checkpoints(const std::string& folder) {
  try {
    return fs::exists(folder) ? list_existing(folder) : CheckpointFiles();
  } catch (const fs::filesystem_error& error) {
    refuse_input(folder, "cannot be listed: {}", error.code().message());
  }
}

NewestCheckpoint newest_of(const CheckpointFiles& files) {
  NewestCheckpoint newest;
  for (const auto& [step, path] : files.complete) {
    try {
      const std::int64_t inside = read_checkpoint(path).step;
      if (inside != step) refuse_input(path, "is of step {}: expected that of its name, {}", inside, step);
      newest.path = path;
      return newest;
    } catch (const Error& error) {
      newest.notes.emplace_back(error.what());
    }
  }
  return newest;
}

void remove_file(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw Error(ErrorKind::output, "cannot be removed: " + error.message(), path);
}

}  // namespace

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return (fs::path(folder) / fmt::format("step-{:08}.ckpt", step)).string();
}

NewestCheckpoint newest_checkpoint(const std::string& folder) {
  return newest_of(list_checkpoints(folder));
}

std::vector<std::string> taken_checkpoint_paths(const std::string& folder, std::int64_t last_step,
                                                std::int64_t every) {
  std::vector<std::string> taken;
  for (const auto& [step, path] : list_checkpoints(folder).others) {
    const bool is_written = step == last_step || (every > 0 && step % every == 0);
    if (step >= 1 && step <= last_step && is_written) taken.push_back(path);
  }
  return taken;
}

void keep_newest(const std::string& folder, int count) {
  if (count < 1) throw Error(ErrorKind::internal, "expected to keep at least one checkpoint", folder);
  const CheckpointFiles files = list_checkpoints(folder);
  const NewestCheckpoint newest = newest_of(files);
  if (!newest.path) return;
  const std::int64_t newest_step = *step_of(fs::path(*newest.path).filename().string());
  int kept = 0;
  for (auto file = files.complete.find(newest_step); file != files.complete.end(); ++file) {
    if (kept++ >= count) remove_file(file->second);
  }
  for (auto part = files.parts.begin(); part != files.parts.upper_bound(newest_step); ++part) {
    remove_file(part->second);
  }
}

}  // namespace dflop
