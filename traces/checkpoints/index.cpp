#include "traces/checkpoints/index.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/refuse.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kIndexSchema = "dflop.checkpoint";
constexpr int kIndexVersion = 2;
/// The text before the CRC-32, which covers everything before this text.
constexpr std::string_view kBeforeCrc = ",\n  \"crc32\": ";
/// A tensor has at most this many values, so that their bytes can be counted.
constexpr std::int64_t kMaxValues = std::numeric_limits<std::int64_t>::max() / 8;

std::uint32_t crc_of_text(std::string_view text) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

// These functions check whether pieces make up a tensor.

/// Tells whether runs, in any order, cover [0, size) without gaps or overlaps.
bool make_up(std::vector<IndexRun> parts, std::int64_t size) {
  std::sort(parts.begin(), parts.end());
  std::int64_t end = 0;
  for (const IndexRun& part : parts) {
    if (part.begin != end || part.end <= part.begin) return false;
    end = part.end;
  }
  return end == size;
}

/// Returns why the pieces do not contain each value of the tensor exactly once; nothing if they do. Columns
/// are divided first, and then the rows of each run of columns.
std::optional<std::string> find_fault(const PiecedTensor& tensor) {
  std::map<IndexRun, std::map<std::vector<IndexRun>, std::vector<IndexRun>>> shards;
  for (const TensorPiece& piece : tensor.pieces) {
    shards[piece.block.columns][piece.block.rows].push_back(piece.values);
  }
  std::vector<IndexRun> columns;
  for (const auto& [run, blocks] : shards) columns.push_back(run);
  if (!make_up(columns, tensor.columns)) {
    return fmt::format("expected pieces with each of {} columns once", tensor.columns);
  }
  for (const auto& [run, blocks] : shards) {
    std::vector<IndexRun> rows;
    for (const auto& [runs, values] : blocks) rows.insert(rows.end(), runs.begin(), runs.end());
    if (!make_up(rows, tensor.rows)) {
      return fmt::format("expected pieces with each of {} rows once in columns [{}, {})", tensor.rows,
                         run.begin, run.end);
    }
    for (const auto& [runs, values] : blocks) {
      const std::int64_t count = TensorBlock{runs, run}.values();
      if (!make_up(values, count)) {
        return fmt::format("expected pieces with each of {} values of a block once", count);
      }
    }
  }
  return std::nullopt;
}

// These functions write an index.

std::vector<std::int64_t> flat(std::span<const IndexRun> runs) {
  std::vector<std::int64_t> ends;
  for (const IndexRun& run : runs) ends.insert(ends.end(), {run.begin, run.end});
  return ends;
}

void write_tensor(JsonWriter& writer, const PiecedTensor& tensor) {
  writer.begin_object();
  writer.field("name", tensor.name);
  writer.field("kind", to_string(tensor.kind));
  writer.field("rows", tensor.rows);
  writer.field("columns", tensor.columns);
  writer.begin_array("pieces");
  for (const TensorPiece& piece : tensor.pieces) {
    writer.begin_object();
    writer.field("file", piece.file);
    writer.field("name", piece.name);
    writer.row("rows", flat(piece.block.rows));
    writer.row("columns", flat({&piece.block.columns, 1}));
    writer.row("values", flat({&piece.values, 1}));
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
}

// These functions read an index.

/// Reads consecutive runs, each within [0, size).
std::vector<IndexRun> read_runs(const JsonValue& json, std::int64_t size) {
  const std::vector<std::int64_t> ends = json.integers(0, size);
  if (ends.empty() || ends.size() % 2 != 0) json.refuse_type("a begin and an end for each run");
  std::vector<IndexRun> runs;
  for (std::size_t i = 0; i < ends.size(); i += 2) {
    if (ends[i] >= ends[i + 1]) {
      json.refuse("expected runs that end after they begin, found [{}, {})", ends[i], ends[i + 1]);
    }
    runs.push_back({ends[i], ends[i + 1]});
  }
  return runs;
}

IndexRun read_run(const JsonValue& json, std::int64_t size) {
  const std::vector<IndexRun> runs = read_runs(json, size);
  if (runs.size() != 1) json.refuse("expected one run, found {}", runs.size());
  return runs.front();
}

TensorPiece read_piece(const JsonValue& json, const PiecedTensor& tensor, std::size_t files) {
  json.require_keys({"file", "name", "rows", "columns", "values"});
  TensorPiece piece;
  const std::uint64_t file = json.at("file").unsigned_integer();
  if (file >= files) json.at("file").refuse("expected a file index below {}, found {}", files, file);
  piece.file = file;
  piece.name = json.at("name").string();
  piece.block.rows = read_runs(json.at("rows"), tensor.rows);
  piece.block.columns = read_run(json.at("columns"), tensor.columns);
  // Overlapping runs could have more rows than can be counted.
  std::int64_t left = tensor.rows;
  for (const IndexRun& run : piece.block.rows) {
    if (run.size() > left) json.at("rows").refuse("expected at most {} rows, found more", tensor.rows);
    left -= run.size();
  }
  piece.values = read_run(json.at("values"), piece.block.values());
  return piece;
}

PiecedTensor read_pieced_tensor(const JsonValue& json, std::size_t files) {
  json.require_keys({"name", "kind", "rows", "columns", "pieces"});
  PiecedTensor tensor;
  tensor.name = json.at("name").string();
  tensor.kind = json.at("kind").choice<TensorKind>();
  tensor.rows = json.at("rows").integer<std::int64_t>(1);
  tensor.columns = json.at("columns").integer<std::int64_t>(1);
  if (tensor.rows > kMaxValues / tensor.columns) {
    json.refuse("expected at most {} values, found {} x {}", kMaxValues, tensor.rows, tensor.columns);
  }
  for (const JsonValue& piece : json.at("pieces").elements()) {
    tensor.pieces.push_back(read_piece(piece, tensor, files));
  }
  if (const auto fault = find_fault(tensor)) json.at("pieces").refuse(*fault);
  return tensor;
}

/// Reads the name of a file in the folder; a name with "/" could refer to any file of the machine.
std::string read_file_name(const JsonValue& json) {
  const std::string& name = json.string();
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    json.refuse_type("the name of a file in the same folder");
  }
  return name;
}

std::vector<CheckpointFile> read_files(const JsonValue& json) {
  std::vector<CheckpointFile> files;
  std::set<std::string> known;
  for (const JsonValue& element : json.elements()) {
    element.require_keys({"name", "bytes", "crc32"});
    files.push_back({read_file_name(element.at("name")), element.at("bytes").unsigned_integer(),
                     element.at("crc32").integer<std::uint32_t>(0)});
    if (!known.insert(files.back().name).second) {
      element.at("name").refuse("expected each file once, found '{}' twice", files.back().name);
    }
  }
  return files;
}

void check_crc_of_index(std::string_view text, const std::string& file) {
  const std::size_t end = text.rfind(kBeforeCrc);
  if (end == std::string_view::npos) {
    refuse_input(file, "damaged or cut short: expected the CRC-32 of the text at its end, found none");
  }
  const std::string expected = fmt::format("{}\n}}\n", crc_of_text(text.substr(0, end)));
  if (text.substr(end + kBeforeCrc.size()) != expected) {
    refuse_input(file, "damaged: the CRC-32 of the text differs from the CRC-32 at its end");
  }
}

}  // namespace

std::int64_t TensorBlock::held_rows() const {
  std::int64_t count = 0;
  for (const IndexRun& run : rows) count += run.size();
  return count;
}

const PiecedTensor* CheckpointIndex::find(TensorKind kind, std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const PiecedTensor& tensor) {
    return tensor.kind == kind && tensor.name == name;
  });
  return found == tensors.end() ? nullptr : &*found;
}

std::string rank_file_name(int rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

namespace {

/// Returns the parts to write: each block's from its first stage and tp rank, and among equal ones from the
/// first rank. They are sorted by tensor, then by block and position in it.
std::vector<const HeldPart*> written_parts(std::span<const HeldPart> parts) {
  const auto block_of = [](const HeldPart* p) { return std::tie(p->kind, p->tensor, p->block); };
  const auto holder_of = [](const HeldPart* p) { return std::tie(p->stage, p->tp_rank); };
  std::vector<const HeldPart*> sorted;
  for (const HeldPart& part : parts) sorted.push_back(&part);
  std::sort(sorted.begin(), sorted.end(), [&](const HeldPart* a, const HeldPart* b) {
    if (block_of(a) != block_of(b)) return block_of(a) < block_of(b);
    return std::tie(a->stage, a->tp_rank, a->values, a->rank) <
           std::tie(b->stage, b->tp_rank, b->values, b->rank);
  });
  std::vector<const HeldPart*> written;
  const HeldPart* first = nullptr;  // with the same block
  for (const HeldPart* part : sorted) {
    if (first == nullptr || block_of(first) != block_of(part)) first = part;
    const bool is_copy = holder_of(part) != holder_of(first) ||
                         (!written.empty() && block_of(written.back()) == block_of(part) &&
                          written.back()->values == part->values);
    if (!is_copy && part->values.size() > 0) written.push_back(part);
  }
  return written;
}

}  // namespace

void divide_among_files(std::span<const HeldPart> parts, CheckpointIndex& index) {
  const std::vector<const HeldPart*> written = written_parts(parts);
  std::map<int, std::size_t> files;  // by rank
  for (const HeldPart* part : written) files.emplace(part->rank, 0);
  index.files.clear();
  for (auto& [rank, file] : files) {
    file = index.files.size();
    index.files.push_back({rank_file_name(rank), 0, 0});
  }
  index.tensors.clear();
  for (const HeldPart* part : written) {
    if (index.tensors.empty() || index.tensors.back().name != part->tensor ||
        index.tensors.back().kind != part->kind) {
      index.tensors.push_back({part->tensor, part->kind, part->rows, part->columns, {}});
    }
    PiecedTensor& tensor = index.tensors.back();
    if (tensor.rows != part->rows || tensor.columns != part->columns) {
      throw Error(ErrorKind::internal,
                  fmt::format("expected {} x {} values on all ranks, found {} x {} on rank {}", tensor.rows,
                              tensor.columns, part->rows, part->columns, part->rank),
                  fmt::format("{} '{}' of a checkpoint", to_string(tensor.kind), tensor.name));
    }
    tensor.pieces.push_back({files.at(part->rank), fmt::format("{}:{}", to_string(part->kind), part->tensor),
                             part->block, part->values});
  }
  for (const PiecedTensor& tensor : index.tensors) {
    if (const auto fault = find_fault(tensor)) {
      throw Error(ErrorKind::internal, *fault,
                  fmt::format("{} '{}' of a checkpoint", to_string(tensor.kind), tensor.name));
    }
  }
}

std::string to_json(const CheckpointIndex& index) {
  JsonWriter writer(kIndexSchema, kIndexVersion);
  writer.field("model", index.model);
  writer.field("model_spec", index.model_spec);
  writer.field("step", index.step);
  writer.field("seed", index.seed);
  writer.field("dtype", to_string(index.dtype));
  writer.field("gbs", index.gbs);
  writer.field("scheduler", index.scheduler);
  writer.field("data_file", index.data_file);
  writer.field("data_fingerprint", index.data_fingerprint);
  writer.field("samples_drawn", index.samples_drawn);
  writer.field("plan", index.plan);
  if (!index.optimizer.empty()) {
    writer.begin_object("optimizer");
    for (const auto& [option, value] : index.optimizer) writer.field(option, value);
    writer.end_object();
  }
  if (!index.kernels.empty()) writer.field("kernels", index.kernels);
  if (!index.attention_sums.empty()) writer.field("attention_sums", index.attention_sums);
  writer.begin_array("files");
  for (const CheckpointFile& file : index.files) {
    writer.begin_object();
    writer.field("name", file.name);
    writer.field("bytes", file.bytes);
    writer.field("crc32", file.crc32);
    writer.end_object();
  }
  writer.end_array();
  writer.begin_array("tensors");
  for (const PiecedTensor& tensor : index.tensors) write_tensor(writer, tensor);
  writer.end_array();
  std::string text = writer.finish();
  text.resize(text.rfind("\n}"));
  const std::uint32_t crc = crc_of_text(text);
  return fmt::format("{}{}{}\n}}\n", text, kBeforeCrc, crc);
}

CheckpointIndex parse_checkpoint_index(std::string_view text, const std::string& file) {
  check_crc_of_index(text, file);
  const JsonDocument document(text, file);
  const JsonValue root = document.root(kIndexSchema, kIndexVersion);
  root.require_keys({"schema", "version", "model", "model_spec", "step", "seed", "dtype", "gbs", "scheduler",
                     "data_file", "data_fingerprint", "samples_drawn", "plan", "files", "tensors", "crc32"},
                    {"attention_sums", "kernels", "optimizer"});
  CheckpointIndex index;
  index.model = root.at("model").string();
  index.model_spec = root.at("model_spec").string();
  index.step = root.at("step").integer<std::int64_t>(0);
  index.seed = root.at("seed").unsigned_integer();
  index.dtype = root.at("dtype").choice<Dtype>();
  index.gbs = root.at("gbs").integer(1);
  index.scheduler = root.at("scheduler").string();
  index.data_file = root.at("data_file").string();
  index.data_fingerprint = root.at("data_fingerprint").string();
  index.samples_drawn = root.at("samples_drawn").integer<std::int64_t>(0);
  index.plan = root.at("plan").string();
  if (root.has("optimizer")) {
    for (const auto& [option, value] : root.at("optimizer").members())
      index.optimizer.emplace(option, value.string());
  }
  if (root.has("kernels")) index.kernels = root.at("kernels").string();
  if (root.has("attention_sums")) index.attention_sums = root.at("attention_sums").string();
  index.files = read_files(root.at("files"));
  std::set<std::pair<TensorKind, std::string>> known;
  for (const JsonValue& element : root.at("tensors").elements()) {
    index.tensors.push_back(read_pieced_tensor(element, index.files.size()));
    const PiecedTensor& tensor = index.tensors.back();
    if (!known.emplace(tensor.kind, tensor.name).second) {
      element.at("name").refuse("expected one {} of each name, found '{}' twice", to_string(tensor.kind),
                                tensor.name);
    }
  }
  return index;
}

}  // namespace dflop
