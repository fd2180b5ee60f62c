// dflop models --check says what is read of a model folder, and of data for it, before anything runs.
#include "experiments/commands/models_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/content/folder_weights.hpp"
#include "backend/content/model_folder.hpp"
#include "backend/model/parameter_list.hpp"
#include "core/refuse.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/analytic/flops.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/presets/presets.hpp"
#include "traces/dataset/shard_data.hpp"
#include "traces/dataset/special_tokens.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/media/model_processor.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/chat_template.hpp"
#include "traces/tokens/tokenizer.hpp"
#include "traces/weights/own_head.hpp"

namespace dflop {
namespace {

constexpr std::size_t kNamed = 5;        // keys or tensors that a line names
constexpr std::size_t kListed = 20;      // bad samples that get a row each
constexpr std::int64_t kDecoded = 1000;  // samples whose media are decoded without --decode
constexpr std::size_t kMeasured = 32;    // samples with which reading is measured, at most
constexpr double kMeasuredS = 2;         // and for how long

/// Returns "a, b and 3 more".
std::string some_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.begin() + std::min(kNamed, names.size()));
  const std::string more =
      names.size() > kNamed ? fmt::format(" and {} more", names.size() - kNamed) : std::string();
  return fmt::format("{}{}", fmt::join(first, ", "), more);
}

/// A FolderCheck collects the findings about the parts of a folder.
class FolderCheck {
 public:
  explicit FolderCheck(const std::string& folder) : folder_(folder) {
    table_.columns = {{"part", "part"}, {"state", "state"}, {"finding", "finding"}};
  }

  /// Adds what `find` returns. If it throws, the part is rejected.
  void part(const char* name, const std::function<std::string()>& find) {
    try {
      add(name, "read", find());
    } catch (const Error& error) {
      reject(name, error.what());
    }
  }
  void note(const char* name, const std::string& finding) { add(name, "note", finding); }
  void reject(const char* name, const std::string& finding) {
    add(name, "rejected", finding);
    rejected_ = true;
  }

  const std::string& folder() const { return folder_; }
  const Table& table() const { return table_; }
  bool rejected() const { return rejected_; }

 private:
  void add(const char* name, const char* state, const std::string& finding) {
    table_.rows.push_back({std::string(name), std::string(state), finding});
  }

  std::string folder_;
  Table table_;
  bool rejected_ = false;
};

std::string describe_stack(const TransformerSpec& spec) {
  return fmt::format("{} {} x {}, ffn {}, heads {}/{} of {}", spec.name, spec.layers, spec.hidden, spec.ffn,
                     spec.heads, spec.kv_heads, spec.head_dim);
}

/// Parameters counts the numbers of a model's tensors.
struct Parameters {
  std::int64_t trained = 0;
  std::int64_t computed = 0;  ///< tables of sinusoids, which are never trained
};

/// Returns "1 tensor is" or "3 tensors are".
std::string tensors_are(std::size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "tensor is" : "tensors are");
}

Parameters parameters_of(const ModelSpec& model) {
  StagePlace place;
  place.stage.encoder_layers = model.encoder.layers;
  place.stage.connector = place.patches = model.encoder.layers > 0;
  place.stage.llm_layers = model.llm.layers;
  place.stage.embedding = place.stage.head = true;
  Parameters all;
  for (const Parameter& parameter : stage_parameter_list(model, place, 0))
    (parameter.frozen ? all.computed : all.trained) += parameter.count();
  return all;
}

std::string describe_config(const ModelSpec& model, const Parameters& parameters) {
  std::string text = fmt::format("{}: ", to_string(model.architecture->family));
  if (model.encoder.layers > 0) text += describe_stack(model.encoder) + "; ";
  if (model.second) text += describe_stack(model.second->encoder) + "; ";
  return text + fmt::format(
                    "LLM {}, vocabulary {}{}; {:.4g} million parameters{}; sequences of at most {} tokens",
                    describe_stack(model.llm), model.llm.vocabulary,
                    model.llm.tied_embeddings ? " (tied)" : "", static_cast<double>(parameters.trained) / 1e6,
                    parameters.computed > 0
                        ? fmt::format(", and {:.4g} million numbers of fixed position tables",
                                      static_cast<double>(parameters.computed) / 1e6)
                        : "",
                    model.max_tokens);
}

/// Reads config.json; nothing if it is rejected.
std::optional<ModelSpec> check_config(FolderCheck& check) {
  std::optional<ModelSpec> model;
  ConfigReport report;
  check.part("config.json", [&] {
    const std::string file = check.folder() + "/config.json";
    model = parse_hugging_face(read_text_file(file), file, has_own_head(check.folder()), &report);
    model->name = check.folder();
    require_live(*model);
    return describe_config(*model, parameters_of(*model));
  });
  std::vector<std::string> defaults;
  for (const auto& [key, value] : report.defaults) defaults.push_back(key + " " + value);
  if (!defaults.empty())
    check.note("config.json", "defaults of missing keys: " + fmt::format("{}", fmt::join(defaults, ", ")));
  if (!report.unknown.empty())
    check.note("config.json", "keys that are not read: " + some_of(report.unknown));
  if (model && report.positions > model->max_tokens) {
    check.note(
        "config.json",
        fmt::format("max_position_embeddings allows sequences of {} tokens, but longer samples than {} "
                    "are cut: --max-tokens allows more",
                    report.positions, model->max_tokens));
  }
  return model;
}

void check_weights(FolderCheck& check, const ModelSpec& model) {
  std::vector<std::string> unused;
  std::string both;
  if (!std::filesystem::exists(check.folder() + "/" + std::string(kWeightsFile)) &&
      !std::filesystem::exists(check.folder() + "/" + std::string(kWeightsIndex))) {
    return check.note("weights", "none: training begins with random weights");
  }
  check.part("weights", [&] {
    const WeightsFolder files(check.folder());
    const FolderWeights weights(model, check.folder());
    unused = weights.unused(model);
    both = files.hint_of_both();
    if (const std::vector<std::string> missing = weights.missing(model); !missing.empty()) {
      refuse_input(check.folder(), "{} missing: {}{}", tensors_are(missing.size()), some_of(missing),
                   files.hint_of_both());
    }
    return tensors_are(files.names().size() - unused.size()) + " read";
  });
  if (!unused.empty())
    check.note("weights", fmt::format("{} not read: {}", tensors_are(unused.size()), some_of(unused)));
  if (!both.empty()) check.note("weights", both.substr(2));  // without "; "
}

std::string describe_processor(const ModelProcessor& processor, const std::optional<MelOptions>& second) {
  struct Describe {
    std::string operator()(std::monostate) const { return "none: the model takes only text"; }
    std::string operator()(const ClipProcessor& of) const {
      return fmt::format("pictures {} and cut to {} x {}", of.pads ? "padded to squares" : "resized", of.tile,
                         of.tile);
    }
    std::string operator()(const LlavaProcessor& of) const {
      return fmt::format("tiles of {} x {} in {} grids", of.tile, of.tile, of.pinpoints.size());
    }
    std::string operator()(const QwenProcessor& of) const {
      return fmt::format("patches of {} x {}, {} x {} merged, {} to {} pixels", of.patch, of.patch, of.merge,
                         of.merge, of.min_pixels, of.max_pixels);
    }
    std::string operator()(const InternvlProcessor& of) const {
      return fmt::format("{} to {} tiles of {} x {}", of.min_tiles, of.max_tiles, of.tile, of.tile);
    }
    std::string operator()(const MelOptions& of) const {
      return fmt::format("sounds as {} mel bins", of.bins);
    }
  };
  const std::string first = std::visit(Describe(), processor);
  return second ? first + "; " + Describe()(*second) : first;
}

/// Lists the bad samples of a data set. They are rejected if there are more than --bad-samples allows.
void list_bad(FolderCheck& check, const std::vector<LeftOutSample>& left_out, std::int64_t allowed) {
  const bool is_allowed = std::ranges::count_if(left_out, &LeftOutSample::is_bad) <= allowed;
  const auto say = [&](const std::string& finding) {
    is_allowed ? check.note("data", finding) : check.reject("data", finding);
  };
  std::size_t listed = 0;
  for (const LeftOutSample& sample : left_out) {
    if (sample.is_bad && listed++ < kListed) say(fmt::format("bad sample {}: {}", sample.id, sample.why));
  }
  if (listed > kListed)
    say(fmt::format("{} more bad samples; --bad-samples-out names all", listed - kListed));
}

/// Measures how long one thread takes to read and decode some samples. Prints the result to standard error,
/// because measured times differ from run to run.
void measure_reading(const Dataset& data) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::chrono::duration<double> elapsed{0};
  std::size_t read = 0;
  while (read < std::min(kMeasured, data.samples().size()) && elapsed.count() < kMeasuredS) {
    data.read(data.samples()[read++].id, true);
    elapsed = Clock::now() - begin;
  }
  say("dflop: reading and decoding: {:.3g} samples/s on one thread of this machine, the mean of the first {} "
      "(train --data-threads)\n",
      static_cast<double>(read) / elapsed.count(), read);
}

std::vector<Sample> check_shards(FolderCheck& check, const ModelSpec& model, const Values& values) {
  const std::int64_t allowed = read_allowed_bad(values);
  const std::int64_t all = std::numeric_limits<std::int64_t>::max();
  const std::int64_t decoded =
      read_optional_integer(values, "decode", 0, all).value_or(allowed > 0 ? all : kDecoded);
  std::shared_ptr<const Dataset> data;
  check.part("data", [&] {
    data = open_shards_to_check(values, model, decoded);
    const std::vector<LeftOutSample>& left_out = data->left_out();
    if (data->samples().empty() && left_out.empty())
      refuse_input(values["data"].as<std::string>(), "has no samples");
    std::int64_t tokens = 0;
    std::int64_t longest = 0;
    for (const Sample& sample : data->samples()) {
      tokens += sample.llm_tokens;
      longest = std::max(longest, sample.llm_tokens);
    }
    const std::int64_t opened = std::ssize(data->samples()) + std::ssize(left_out);
    return fmt::format(
        "{} samples, {} tokens, the longest has {}; {} left out, {} cut{}; pictures and sounds of {} decoded",
        data->samples().size(), tokens, longest, left_out.size(), data->cut().samples,
        left_out.empty() ? "" : "; first left out: " + left_out.front().why,
        decoded >= opened ? "all" : fmt::format("the first {} (--decode)", decoded));
  });
  if (!data) return {};
  list_bad(check, data->left_out(), allowed);
  if (!data->note().empty()) check.note("data", data->note());
  if (data->samples().empty()) {
    check.reject("data", "no sample is left to train on");
  } else if (!check.rejected()) {
    measure_reading(*data);
  }
  return data->samples();
}

/// Predicts how long a GPU computes for the samples.
void predict_times(FolderCheck& check, const ModelSpec& model, const std::vector<Sample>& samples,
                   const std::string& name) {
  const ClusterSpec cluster = find_uniform_cluster(name);
  const AnalyticCostModel cost(model, cluster);
  Stage whole;
  whole.encoder_layers = model.encoder.layers;
  whole.front = whole.connector = model.encoder.layers > 0;
  whole.llm_layers = model.llm.layers;
  whole.embedding = whole.head = true;
  whole.recomputation = Recomputation::none;
  Seconds time{0};
  double flop = 0;
  for (const Sample& sample : samples) {
    time += cost.both_passes(whole, {sample.encoder(), sample.llm()});
    flop += model_flop(model, sample.encoder(), sample.llm()).count;
  }
  const double thousands = static_cast<double>(samples.size()) / 1000;
  check.note("times",
             fmt::format("1,000 of these samples take {:.3g} PFLOP forward and backward, and {:.3g} s of "
                         "one {}, which is {:.2g} % of its peak",
                         flop / thousands / 1e15, time.count() / thousands, cluster.gpu.name,
                         100 * flop / (time.count() * cluster.gpu.peak_flop_per_s)));
  check.note(
      "times",
      fmt::format("predicted by the analytic cost model for cluster {} (--cluster); counts only compute, "
                  "with one sample in each microbatch, all parameters trained and no "
                  "recomputation, as if memory sufficed; the optimizer, messages and waiting come "
                  "on top (dflop plan)",
                  name));
}

void check_data(FolderCheck& check, const ModelSpec& model, const Values& values,
                const std::string& cluster) {
  const auto name = values["data"].as<std::string>();
  if (!kind_of_shards(name)) {
    return check.reject("data", name +
                                    ": expected tars, a JSON list of conversations or Megatron's token ids, "
                                    "which train reads; 'dflop data' shows the samples of records");
  }
  const std::vector<Sample> samples = check_shards(check, model, values);
  if (!samples.empty()) predict_times(check, model, samples, cluster);
}

}  // namespace

int run_models_check(const Values& values) {
  const auto folder = values["check"].as<std::string>();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    refuse_value("check", "the folder of a Transformers model, which has its config.json", folder);
  }
  FolderCheck check(folder);
  const std::string cluster = values["cluster"].as<std::string>();
  find_uniform_cluster(cluster);  // rejects a wrong name before the long work
  if (const std::optional<ModelSpec> model = check_config(check)) {
    check_weights(check, *model);
    check.part("processor", [&] {
      return describe_processor(read_model_processor(*model, check.folder()),
                                read_second_processor(*model, check.folder()));
    });
    check.part("tokenizer", [&] {
      const Tokenizer tokenizer(check.folder() + "/tokenizer.json");
      require_special_tokens(*model, tokenizer, check.folder());
      const UsualChatForm form = usual_chat_form(*model, read_chat_template(check.folder()));
      return fmt::format("{} tokens; chat form {}{}", tokenizer.vocabulary_size(), form.name,
                         form.note.empty() ? "" : ": " + form.note);
    });
    // AdamW in mixed precision: weights in bf16, gradients, master weights and two moments in f32.
    constexpr double kTrainedBytes = 2 + 4 * 4;
    const Parameters of = parameters_of(*model);
    const auto trained = static_cast<double>(of.trained);
    check.note(
        "memory",
        fmt::format("{:.3g} GB of weights in bf16; {:.3g} GB to train them with AdamW, divided over tp, pp "
                    "and, with ZeRO-1, dp ranks; activations come on top (dflop plan)",
                    2 * (trained + static_cast<double>(of.computed)) / 1e9, kTrainedBytes * trained / 1e9));
    if (values.count("data") > 0) check_data(check, *model, values, cluster);
  }
  print_table(check.table(), read_format(values));
  return check.rejected() ? Error(ErrorKind::input, "").exit_code() : 0;
}

}  // namespace dflop
