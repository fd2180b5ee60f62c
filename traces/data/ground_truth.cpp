#include "traces/data/ground_truth.hpp"

#include <algorithm>

#include "core/refuse.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

// These limits are far above real runs, and low enough that products of a few of them fit in 64 bits.
constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr std::int64_t kMaxBatch = 1 << 20;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxVocabulary = 1 << 26;
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxMemory = 1'000'000'000'000'000;
constexpr double kMinTruthSeconds = 1e-6;
constexpr double kMaxTruthSeconds = 1e6;

const std::vector<std::string> kGptColumns = {"gpus",  "global_batch", "micro_batch", "hidden",
                                              "heads", "layers",       "seq",         "tp",
                                              "dp",    "pp",           "iteration_s"};
const std::vector<std::string> kLlamaColumns = {"model",
                                                "layers",
                                                "tp",
                                                "pp",
                                                "dp",
                                                "microbatches",
                                                "iteration_s",
                                                "peak_allocated_bytes_max_rank",
                                                "peak_allocated_bytes_min_rank"};

const std::vector<std::string> kLiveColumns = {
    "model",       "hidden",       "ffn", "heads", "kv_heads", "head_dim",    "vocabulary", "layers", "seq",
    "micro_batch", "microbatches", "tp",  "dp",    "pp",       "iteration_s", "commit",     "note"};

/// Fields gives access to one row by column name.
class Fields {
 public:
  Fields(const CsvReader& reader, const std::vector<std::string>& header,
         const std::vector<std::string_view>& fields)
      : reader_(reader), header_(header), fields_(fields) {}

  std::int64_t row() const { return reader_.row(); }

  std::string_view text(std::string_view column) const {
    const auto it = std::find(header_.begin(), header_.end(), column);
    return fields_[static_cast<std::size_t>(it - header_.begin())];
  }

  std::int64_t integer(std::string_view column, std::int64_t most) const {
    std::int64_t value = 0;
    if (!parse_whole(text(column), value) || value < 1 || value > most) {
      refuse(column, fmt::format("a whole number from 1 to {}", most));
    }
    return value;
  }

  int count(std::string_view column, std::int64_t most) const {
    return static_cast<int>(integer(column, most));
  }

  Seconds seconds(std::string_view column) const {
    double value = 0;
    // The comparison is written so that NaN fails it.
    if (!parse_number(text(column), value) || !(value >= kMinTruthSeconds && value <= kMaxTruthSeconds)) {
      refuse(column, fmt::format("seconds from {} to {}", kMinTruthSeconds, kMaxTruthSeconds));
    }
    return Seconds(value);
  }

  [[noreturn]] void refuse(std::string_view column, const std::string& expected) const {
    constexpr std::size_t kLongest = 60;
    refuse_input(reader_.place(column), "expected {}, found '{}'", expected,
                 text(column).substr(0, kLongest));
  }

 private:
  const CsvReader& reader_;
  const std::vector<std::string>& header_;
  const std::vector<std::string_view>& fields_;
};

TruthRow read_parallelism(const Fields& fields) {
  TruthRow truth;
  truth.row = fields.row();
  truth.layers = fields.count("layers", kMaxLayers);
  truth.tp = fields.count("tp", kMaxRanks);
  truth.dp = fields.count("dp", kMaxRanks);
  truth.pp = fields.count("pp", kMaxRanks);
  const std::int64_t ranks = std::int64_t{truth.tp} * truth.dp;
  if (ranks > kMaxRanks || ranks * truth.pp > kMaxRanks) {
    fields.refuse("pp", fmt::format("tp x dp x pp of at most {}", kMaxRanks));
  }
  if (truth.layers % truth.pp != 0) {
    fields.refuse("pp", fmt::format("a divisor of the {} layers", truth.layers));
  }
  truth.iteration = fields.seconds("iteration_s");
  return truth;
}

TruthRow read_gpt(const Fields& fields) {
  TruthRow truth = read_parallelism(fields);
  truth.hidden = fields.count("hidden", kMaxWidth);
  truth.heads = fields.count("heads", kMaxWidth);
  truth.seq = fields.count("seq", kMaxWidth);
  truth.micro_batch = fields.count("micro_batch", kMaxBatch);
  if (truth.hidden % truth.heads != 0) {
    fields.refuse("heads", fmt::format("a divisor of the hidden width {}", truth.hidden));
  }
  if (truth.heads % truth.tp != 0) fields.refuse("tp", fmt::format("a divisor of the {} heads", truth.heads));
  if (fields.integer("gpus", kMaxRanks) != truth.gpus()) {
    fields.refuse("gpus", fmt::format("tp x dp x pp = {}", truth.gpus()));
  }
  const std::int64_t batch = fields.integer("global_batch", kMaxBatch);
  const std::int64_t at_once = std::int64_t{truth.micro_batch} * truth.dp;
  if (batch % at_once != 0) {
    fields.refuse("global_batch", fmt::format("a multiple of micro_batch x dp = {}", at_once));
  }
  truth.microbatches = static_cast<int>(batch / at_once);
  return truth;
}

TruthRow read_llama(const Fields& fields) {
  TruthRow truth = read_parallelism(fields);
  truth.model = std::string(fields.text("model"));
  if (truth.model != "llama3-70b" && truth.model != "llama3-405b") {
    fields.refuse("model", "llama3-70b or llama3-405b");
  }
  truth.microbatches = fields.count("microbatches", kMaxBatch);
  truth.peak_memory_max_rank = Bytes{fields.integer("peak_allocated_bytes_max_rank", kMaxMemory)};
  truth.peak_memory_min_rank = Bytes{fields.integer("peak_allocated_bytes_min_rank", kMaxMemory)};
  if (*truth.peak_memory_max_rank < *truth.peak_memory_min_rank) {
    fields.refuse("peak_allocated_bytes_min_rank", "at most peak_allocated_bytes_max_rank");
  }
  return truth;
}

TruthRow read_live(const Fields& fields) {
  TruthRow truth = read_parallelism(fields);
  truth.model = std::string(fields.text("model"));
  truth.hidden = fields.count("hidden", kMaxWidth);
  truth.ffn = fields.count("ffn", kMaxWidth);
  truth.heads = fields.count("heads", kMaxWidth);
  truth.kv_heads = fields.count("kv_heads", kMaxWidth);
  truth.head_dim = fields.count("head_dim", kMaxWidth);
  truth.vocabulary = fields.count("vocabulary", kMaxVocabulary);
  truth.seq = fields.count("seq", kMaxWidth);
  truth.micro_batch = fields.count("micro_batch", kMaxBatch);
  truth.microbatches = fields.count("microbatches", kMaxBatch);
  if (truth.heads % truth.kv_heads != 0)
    fields.refuse("kv_heads", fmt::format("a divisor of the {} heads", truth.heads));
  if (truth.heads % truth.tp != 0) fields.refuse("tp", fmt::format("a divisor of the {} heads", truth.heads));
  return truth;
}

/// A Form describes a kind of files: its columns, in any order, and the function that reads a row.
struct Form {
  TruthKind kind;
  const std::vector<std::string>& columns;
  TruthRow (*read)(const Fields&);
};
const Form kForms[] = {{TruthKind::megatron_gpt, kGptColumns, read_gpt},
                       {TruthKind::llama, kLlamaColumns, read_llama},
                       {TruthKind::dflop_live, kLiveColumns, read_live}};

const Form& form_of(const std::vector<std::string>& header, const std::string& file) {
  std::vector<std::string> expected;
  for (const Form& form : kForms) {
    const std::vector<std::string>& columns = form.columns;
    if (std::is_permutation(header.begin(), header.end(), columns.begin(), columns.end())) return form;
    expected.push_back(fmt::format("{}", fmt::join(columns, ",")));
  }
  refuse_input(file + ":row 1", "expected the columns {}, found {}", fmt::join(expected, " or "),
               fmt::join(header, ","));
}

}  // namespace

TruthSet parse_ground_truth(std::string_view csv, const std::string& file) {
  CsvReader reader(csv, file);
  std::vector<std::string_view> fields;
  std::vector<std::string> header;
  if (reader.next(fields)) header.assign(fields.begin(), fields.end());
  const Form& form = form_of(header, file);
  TruthSet set{file, form.kind, {}};
  while (reader.next(fields, header.size())) set.rows.push_back(form.read(Fields(reader, header, fields)));
  if (set.rows.empty()) refuse_input(file, "expected at least one row of measurements");
  return set;
}

TruthSet read_ground_truth(const std::string& path) {
  return parse_ground_truth(read_text_file(path), path);
}

}  // namespace dflop
