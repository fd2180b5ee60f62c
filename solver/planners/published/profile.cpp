#include "solver/planners/published/profile.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "costmodel/analytic/flops.hpp"

namespace dflop {
namespace {

constexpr double kTera = 1e12;
constexpr double kRecomputed = 4.0 / 3;  // forward, recomputation and backward over forward and backward

/// Rounds to 0.01. Values below `least` stay as they are: rounding would change them much, or make them zero,
/// by which the released code divides.
double hundredths(double value, double least) {
  return value < least ? value : std::nearbyint(value * 100) / 100;
}

constexpr double kLeastRoundedTime = 0.05;     // ms
constexpr double kLeastRoundedThroughput = 1;  // TFLOP/s; only tiny models are slower

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns a curve of TFLOP/s on one GPU, rounded as the released code does.
Curve throughput_curve(const std::vector<TimeRow>& rows, const std::vector<double>& tflop) {
  std::vector<double> x;
  std::vector<double> y;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    x.push_back(static_cast<double>(rows[i].units));
    // Attention may take no time if launches of kernels hide it. The released code divides by zero.
    const double time = rows[i].milliseconds * rows[i].tp;
    const double throughput = time > 0 ? tflop[i] / time * 1000 : 0;
    y.push_back(hundredths(throughput, kLeastRoundedThroughput));
  }
  return {std::move(x), std::move(y)};
}

/// Returns rows by tp.
template <typename Row>
std::map<int, std::vector<Row>> by_tp(const std::vector<Row>& rows) {
  std::map<int, std::vector<Row>> groups;
  for (const Row& row : rows) groups[row.tp].push_back(row);
  return groups;
}

/// Fits memory as lines over layers through the first two rows.
void fit_memory(ModuleProfile& profile, const std::vector<MemoryRow>& rows) {
  const MemoryRow& first = rows.at(0);
  const MemoryRow& second = rows.at(1);
  const int layers = second.layers - first.layers;
  const auto units = static_cast<double>(first.units);
  profile.state_of_layer = kGib * (second.state_peak - first.state_peak) / layers;
  profile.state_base = kGib * first.state_peak - first.layers * profile.state_of_layer;
  const double peak_of_layer = kGib * (second.forward_peak - first.forward_peak) / layers;
  profile.activation_of_layer = peak_of_layer / units;
  profile.activation_base = (kGib * first.forward_peak - first.layers * peak_of_layer) / units;
}

ModuleTables encoder_tables(const PublishedTables& tables, const ModelSpec& model) {
  ModuleTables encoder;
  encoder.layers = model.encoder.layers;
  const auto memory = by_tp(tables.encoder_memory);
  for (const auto& [tp, rows] : by_tp(tables.encoder_times)) {
    std::vector<double> tflop;
    for (const TimeRow& row : rows) {
      const auto tiles = static_cast<double>(row.units);
      tflop.push_back(encoder_tflop(model, tables.tile_tokens, tiles, row.layers));
    }
    fit_memory(encoder.profiles.emplace_back(ModuleProfile{tp, throughput_curve(rows, tflop)}),
               memory.at(tp));
  }
  encoder.mean_units = mean(tables.tiles);
  encoder.most_units = std::ranges::max(tables.tiles);
  encoder.mean_tflop = encoder_tflop(model, tables.tile_tokens, encoder.mean_units, encoder.layers);
  return encoder;
}

/// DataFlop has what the data says about the LLM's FLOP.
struct DataFlop {
  double mean = 0;       ///< TFLOP of a sample
  double attention = 0;  ///< the fraction of the attention core
};

/// Returns the LLM's throughput at one tp. `full` and `linear` are rows with and without attention.
Curve llm_throughput(const TransformerSpec& llm, const PublishedTables& tables, const DataFlop& data,
                     std::vector<TimeRow> full, std::vector<TimeRow> linear) {
  std::vector<double> linear_tflop;
  std::vector<double> core_tflop;
  for (std::size_t i = 0; i < full.size(); ++i) {
    const auto tokens = static_cast<double>(full[i].units);
    core_tflop.push_back(attention_tflop(llm, tokens, full[i].layers));
    linear_tflop.push_back(llm_tflop(llm, tokens, full[i].layers) - core_tflop.back());
    full[i].milliseconds = hundredths(full[i].milliseconds - linear[i].milliseconds, kLeastRoundedTime);
    linear[i].milliseconds = hundredths(linear[i].milliseconds, kLeastRoundedTime);
  }
  const Curve of_attention = throughput_curve(full, core_tflop);
  const Curve of_linear = throughput_curve(linear, linear_tflop);
  double attention = 0;
  for (const double tokens : tables.tokens) attention += of_attention.extended(tokens);
  attention /= static_cast<double>(tables.tokens.size());
  std::vector<double> x;
  std::vector<double> y;
  for (const TimeRow& row : linear) {
    x.push_back(static_cast<double>(row.units));
    y.push_back((1 - data.attention) * of_linear.held(x.back()) + data.attention * attention);
  }
  return {std::move(x), std::move(y)};
}

ModuleTables llm_tables(const PublishedTables& tables, const ModelSpec& model) {
  ModuleTables llm;
  llm.layers = model.llm.layers;
  double all = 0;
  double attention = 0;
  for (const double tokens : tables.tokens) {
    all += llm_tflop(model.llm, tokens, llm.layers);
    attention += attention_tflop(model.llm, tokens, llm.layers);
  }
  const DataFlop data{all / static_cast<double>(tables.tokens.size()), attention / all};
  const auto memory = by_tp(tables.llm_memory);
  const auto linear = by_tp(tables.llm_times_without_attention);
  for (const auto& [tp, rows] : by_tp(tables.llm_times)) {
    fit_memory(llm.profiles.emplace_back(
                   ModuleProfile{tp, llm_throughput(model.llm, tables, data, rows, linear.at(tp))}),
               memory.at(tp));
  }
  llm.mean_tflop = data.mean;
  llm.mean_units = mean(tables.tokens);
  llm.most_units = std::ranges::max(tables.tokens);
  return llm;
}

}  // namespace

double Curve::extended(double x) const {
  const auto above = std::upper_bound(x_.begin() + 1, x_.end() - 1, x);
  const auto i = static_cast<std::size_t>(above - x_.begin());
  return y_[i - 1] + (y_[i] - y_[i - 1]) * ((x - x_[i - 1]) / (x_[i] - x_[i - 1]));
}

std::optional<int> tile_side(const ModelSpec& model) {
  if (model.preprocess == "llava-ov") return 384;
  if (model.preprocess.starts_with("internvl")) return 448;
  return std::nullopt;
}

double encoder_tflop(const ModelSpec& model, std::int64_t tile_tokens, double tiles, int layers) {
  const double hidden = model.encoder.hidden;
  const double ffn = model.encoder.ffn;
  const std::optional<int> side = tile_side(model);
  constexpr int kPatch = 14;
  const double tokens = side ? (*side / kPatch) * (*side / kPatch) : static_cast<double>(tile_tokens);
  const double layer = 8 * hidden * hidden * tokens + 4 * tokens * tokens * hidden +
                       (model.encoder.gated_mlp ? 6 : 4) * tokens * hidden * ffn;
  double front = 0;
  double connector = 0;
  if (side) {
    const double width = model.llm.hidden;
    front = 2 * hidden * 3 * *side * *side;
    connector = 2 * tokens * hidden * width + 2 * tokens * width * width;
  } else {
    const Workload tile{1, tile_tokens, 0};
    const FrontFlop flop = front_flop(model, tile);
    front = flop.first.count + flop.rest.count;
    connector = connector_flop(model, tile).count;
  }
  return 3 * kRecomputed * tiles * (layers * layer + front + kRecomputed * connector) / kTera;
}

double attention_tflop(const TransformerSpec& llm, double tokens, int layers) {
  return 3 * kRecomputed * 4 * tokens * tokens * llm.hidden * layers * 0.5 / kTera;
}

double llm_tflop(const TransformerSpec& llm, double tokens, int layers) {
  const double hidden = llm.hidden;
  const double heads_of_group = llm.heads / llm.kv_heads;  // whole, as in the released code
  const double projections = 2 * tokens * hidden * hidden * (heads_of_group / llm.heads * 2 + 2);
  const double mlp = 2 * tokens * hidden * (llm.gated_mlp ? 3 : 2) * llm.ffn;
  const double head = 2 * tokens * hidden * static_cast<double>(llm.vocabulary);
  return 3 * kRecomputed * (layers * (projections + mlp) + head) / kTera +
         attention_tflop(llm, tokens, layers);
}

PublishedProfile published_profile(const PublishedTables& tables, const ModelSpec& model) {
  return {encoder_tables(tables, model), llm_tables(tables, model)};
}

}  // namespace dflop
