#include "traces/files/correction.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kCorrectionSchema = "dflop.correction";
constexpr int kCorrectionVersion = 1;
constexpr std::size_t kMaxBuckets = 4096;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;  // whole numbers up to this are exact in a double
constexpr int kMaxLog = 2048;                              // 16 log2 of any 64-bit number is less
constexpr double kMaxSum = 1e15;                           // far beyond any run; their sums stay finite
constexpr double kCorrectionRounding = 1e-6;               // relative to the largest sum
constexpr double kMinSum = 1e-12;

void write_workload(JsonWriter& writer, std::string_view key, const Workload& work) {
  std::vector<std::int64_t> counts = {work.sequences, work.tokens, work.attention_pairs};
  const SecondWork& second = work.second;
  if (second.tokens > 0)
    counts.insert(counts.end(), {second.sequences, second.tokens, second.attention_pairs});
  writer.row(key, counts);
}

Workload read_workload(const JsonValue& json) {
  const std::vector<std::int64_t> counts = json.integers(0, kMaxCount);
  if (counts.size() != 3 && counts.size() != 6)
    json.refuse_type("sequences, tokens and attention pairs, of one encoder or two");
  Workload work{counts[0], counts[1], counts[2]};
  if (counts.size() == 6) work.second = {counts[3], counts[4], counts[5]};
  return work;
}

void write_fit(JsonWriter& writer, const CorrectionFit& fit) {
  writer.begin_object();
  writer.field("kind", to_string(fit.kind));
  writer.field("op", to_string(fit.op));
  write_workload(writer, "reference_encoder", fit.reference.encoder);
  write_workload(writer, "reference_llm", fit.reference.llm);
  if (fit.reference.llm.untrained_tokens > 0)
    writer.field("reference_untrained_tokens", fit.reference.llm.untrained_tokens);
  writer.field("iterations", fit.iterations);
  writer.field("variance", fit.variance);
  writer.row("bucket_modules", fit.buckets, [](const ShapeBucket& bucket) {
    return to_string(bucket.encoder ? StageKind::encoder : StageKind::llm);
  });
  writer.row("bucket_tokens", fit.buckets, [](const ShapeBucket& bucket) { return bucket.tokens; });
  writer.row("bucket_lengths", fit.buckets, [](const ShapeBucket& bucket) { return bucket.length; });
  writer.begin_array("information");
  const std::span<const double> triangle(fit.information);
  for (std::size_t row = 0; row < fit.columns(); ++row) {
    writer.row("", triangle.subspan(row * (row + 1) / 2, row + 1));
  }
  writer.end_array();
  writer.row("moment", fit.moment);
  writer.row("rise", fit.rise);
  writer.row("fall", fit.fall);
  writer.end_object();
}

std::vector<ShapeBucket> read_buckets(const JsonValue& json) {
  const std::vector<JsonValue> modules = json.at("bucket_modules").elements();
  const std::vector<std::int64_t> tokens = json.at("bucket_tokens").integers(0, kMaxLog);
  const std::vector<std::int64_t> lengths = json.at("bucket_lengths").integers(-kMaxLog, kMaxLog);
  if (modules.size() > kMaxBuckets) {
    json.at("bucket_modules").refuse_type("at most {} buckets", kMaxBuckets);
  }
  if (tokens.size() != modules.size() || lengths.size() != modules.size()) {
    json.refuse("expected bucket tokens and lengths of {} modules, found {} and {}", modules.size(),
                tokens.size(), lengths.size());
  }
  std::vector<ShapeBucket> buckets;
  for (std::size_t b = 0; b < modules.size(); ++b) {
    const bool encoder = modules[b].choice({StageKind::encoder, StageKind::llm}) == StageKind::encoder;
    const ShapeBucket bucket{encoder, static_cast<int>(tokens[b]), static_cast<int>(lengths[b])};
    if (std::find(buckets.begin(), buckets.end(), bucket) != buckets.end()) {
      json.at("bucket_tokens").refuse("expected different buckets, found the bucket of {} twice", b);
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

/// Checks that a matrix has no negative eigenvalue, apart from rounding, as sums of squares must.
void require_semidefinite(const JsonValue& json, const CorrectionFit& fit) {
  const auto size = static_cast<Eigen::Index>(fit.columns());
  Eigen::MatrixXd lower = Eigen::MatrixXd::Zero(size, size);
  std::size_t next = 0;
  for (Eigen::Index i = 0; i < size; ++i) {
    for (Eigen::Index j = 0; j <= i; ++j) lower(i, j) = fit.information[next++];
  }
  lower.diagonal().array() += kCorrectionRounding * lower.diagonal().maxCoeff() + kMinSum;
  if (!Eigen::LDLT<Eigen::MatrixXd>(lower).isPositive()) {
    json.refuse("expected a positive semidefinite matrix, found one with a negative eigenvalue");
  }
}

CorrectionFit read_fit(const JsonValue& json) {
  json.require_keys(
      {"kind", "op", "reference_encoder", "reference_llm", "iterations", "variance", "bucket_modules",
       "bucket_tokens", "bucket_lengths", "information", "moment", "rise", "fall"},
      {"reference_untrained_tokens"});
  CorrectionFit fit;
  fit.kind = json.at("kind").choice<StageKind>();
  fit.op = json.at("op").choice({Op::forward, Op::backward, Op::backward_input, Op::backward_weight});
  fit.reference = {read_workload(json.at("reference_encoder")), read_workload(json.at("reference_llm"))};
  if (json.has("reference_untrained_tokens")) {
    fit.reference.llm.untrained_tokens =
        json.at("reference_untrained_tokens").integer<std::int64_t>(0, fit.reference.llm.tokens);
  }
  fit.iterations = json.at("iterations").integer<std::int64_t>(0, kMaxCount);
  fit.variance = json.at("variance").number_in(0, kMaxSum);
  fit.buckets = read_buckets(json);
  const std::vector<JsonValue> rows = json.at("information").elements();
  if (rows.size() != fit.columns()) {
    json.at("information").refuse_type("{} rows", fit.columns());
  }
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::vector<double> numbers = rows[row].numbers(row + 1, 0, kMaxSum);
    fit.information.insert(fit.information.end(), numbers.begin(), numbers.end());
  }
  require_semidefinite(json.at("information"), fit);
  fit.moment = json.at("moment").numbers(fit.columns(), -kMaxSum, kMaxSum);
  fit.rise = json.at("rise").numbers(fit.columns(), 0, kMaxSum);
  fit.fall = json.at("fall").numbers(fit.columns(), 0, kMaxSum);
  return fit;
}

}  // namespace

std::string to_json(const CorrectionFile& correction) {
  JsonWriter writer(kCorrectionSchema, kCorrectionVersion);
  writer.field("model", correction.model);
  writer.field("cluster", correction.cluster);
  writer.begin_array("fits");
  for (const CorrectionFit& fit : correction.fits) write_fit(writer, fit);
  writer.end_array();
  return writer.finish();
}

CorrectionFile parse_correction(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kCorrectionSchema, kCorrectionVersion);
  root.require_keys({"schema", "version", "model", "cluster", "fits"});
  CorrectionFile correction{root.at("model").string(), root.at("cluster").string(), {}};
  for (const JsonValue& element : root.at("fits").elements()) {
    const CorrectionFit fit = read_fit(element);
    const auto same = [&](const CorrectionFit& other) {
      return other.kind == fit.kind && other.op == fit.op;
    };
    if (std::any_of(correction.fits.begin(), correction.fits.end(), same)) {
      element.refuse("expected one fit of each kind and op, found {} {} twice", to_string(fit.kind),
                     to_string(fit.op));
    }
    correction.fits.push_back(fit);
  }
  return correction;
}

}  // namespace dflop
