// dflop models --check says what is read of a model folder, and of data for it, before anything runs.
#include "experiments/commands/models_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/content/folder_weights.hpp"
#include "backend/content/model_folder.hpp"
#include "backend/model/parameter_list.hpp"
#include "core/refuse.hpp"
#include "experiments/options/data_options.hpp"
#include "traces/dataset/shard_data.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/media/model_processor.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/chat_template.hpp"
#include "traces/tokens/tokenizer.hpp"
#include "traces/weights/own_head.hpp"

namespace dflop {
namespace {

constexpr std::size_t kNamed = 5;  // keys or tensors that a line names

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
      add(name, "rejected", error.what());
      rejected_ = true;
    }
  }
  void note(const char* name, const std::string& finding) { add(name, "note", finding); }

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

std::int64_t parameters_of(const ModelSpec& model) {
  StagePlace place;
  place.stage.encoder_layers = model.encoder.layers;
  place.stage.connector = place.patches = model.encoder.layers > 0;
  place.stage.llm_layers = model.llm.layers;
  place.stage.embedding = place.stage.head = true;
  std::int64_t sum = 0;
  for (const Parameter& parameter : stage_parameter_list(model, place, 0)) sum += parameter.count();
  return sum;
}

std::string describe_config(const ModelSpec& model, std::int64_t parameters) {
  std::string text = fmt::format("{}: ", to_string(model.architecture->family));
  if (model.encoder.layers > 0) text += describe_stack(model.encoder) + "; ";
  if (model.second) text += describe_stack(model.second->encoder) + "; ";
  return text +
         fmt::format("LLM {}, vocabulary {}{}; {:.4g} million parameters; sequences of at most {} tokens",
                     describe_stack(model.llm), model.llm.vocabulary,
                     model.llm.tied_embeddings ? " (tied)" : "", static_cast<double>(parameters) / 1e6,
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
  return model;
}

void check_weights(FolderCheck& check, const ModelSpec& model) {
  std::vector<std::string> unused;
  if (!std::filesystem::exists(check.folder() + "/" + std::string(kWeightsFile)) &&
      !std::filesystem::exists(check.folder() + "/" + std::string(kWeightsIndex))) {
    return check.note("weights", "none: training begins with random weights");
  }
  check.part("weights", [&] {
    const WeightsFolder files(check.folder());
    const FolderWeights weights(model, check.folder());
    unused = weights.unused(model);
    if (const std::vector<std::string> missing = weights.missing(model); !missing.empty()) {
      refuse_input(check.folder(), "{} tensors are missing: {}{}", missing.size(), some_of(missing),
                   files.hint_of_both());
    }
    return fmt::format("{} tensors are read", files.names().size() - unused.size());
  });
  if (!unused.empty())
    check.note("weights", fmt::format("{} tensors are not read: {}", unused.size(), some_of(unused)));
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

void check_data(FolderCheck& check, const ModelSpec& model, const Values& values) {
  check.part("data", [&] {
    const auto name = values["data"].as<std::string>();
    if (!kind_of_shards(name))
      return fmt::format("{} samples", read_samples(values, model, 0, "data", nullptr, false).size());
    const std::shared_ptr<const Dataset> data = open_shards(values, model, "data", nullptr, false);
    std::int64_t tokens = 0;
    std::int64_t longest = 0;
    for (const Sample& sample : data->samples()) {
      tokens += sample.llm_tokens;
      longest = std::max(longest, sample.llm_tokens);
    }
    return fmt::format("{} samples, {} tokens, the longest has {}; {} left out, {} cut{}",
                       data->samples().size(), tokens, longest, data->left_out().size(), data->cut().samples,
                       data->left_out().empty() ? "" : "; first left out: " + data->left_out().front().why);
  });
}

}  // namespace

int run_models_check(const Values& values) {
  FolderCheck check(values["check"].as<std::string>());
  if (const std::optional<ModelSpec> model = check_config(check)) {
    check_weights(check, *model);
    check.part("processor", [&] {
      return describe_processor(read_model_processor(*model, check.folder()),
                                read_second_processor(*model, check.folder()));
    });
    check.part("tokenizer", [&] {
      const Tokenizer tokenizer(check.folder() + "/tokenizer.json");
      const UsualChatForm form = usual_chat_form(*model, read_chat_template(check.folder()));
      return fmt::format("{} tokens; chat form {}{}", tokenizer.vocabulary_size(), form.name,
                         form.note.empty() ? "" : ": " + form.note);
    });
    // AdamW in mixed precision: weights in bf16, gradients, master weights and two moments in f32.
    constexpr double kTrainedBytes = 2 + 4 * 4;
    const double parameters = static_cast<double>(parameters_of(*model));
    check.note(
        "memory",
        fmt::format("{:.3g} GB of weights in bf16; {:.3g} GB to train them with AdamW, divided over tp, pp "
                    "and, with ZeRO-1, dp ranks; activations come on top (dflop plan)",
                    2 * parameters / 1e9, kTrainedBytes * parameters / 1e9));
    if (values.count("data") > 0) check_data(check, *model, values);
  }
  print_table(check.table(), read_format(values));
  return check.rejected() ? Error(ErrorKind::input, "").exit_code() : 0;
}

}  // namespace dflop
