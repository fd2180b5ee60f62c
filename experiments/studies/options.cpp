#include "experiments/studies/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <memory>

#include "core/program/loss_weight.hpp"
#include "core/refuse.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/value_text.hpp"
#include "solver/bins/ilp.hpp"
#include "solver/schedulers/command.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/data/records.hpp"
#include "traces/files/plan.hpp"
#include "traces/media/model_media.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/chat.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMaxIterations = 100'000;

/// Reads "640x480".
ImageSize read_size(ValueText& text) {
  constexpr std::int32_t kMax = 1'000'000;
  ImageSize size;
  size.width = text.number(1, kMax);
  text.expect("x");
  size.height = text.number(1, kMax);
  return size;
}

std::vector<Modality> parse_modalities(const std::string& text) {
  std::vector<Modality> modalities;
  for (const std::string_view name : split(text, ',')) {
    const std::optional<Modality> modality = from_string<Modality>(name);
    if (!modality)
      refuse_value("modalities", "a comma-separated list of text, image, multi_image, video, audio", text);
    modalities.push_back(*modality);
  }
  return modalities;
}

/// Returns whether the planner is the search: by its name, or because an option fixes parts of the plan.
bool asks_for_search(const Values& values) {
  if (values.count("planner") == 0) return false;
  if (!values["planner"].defaulted()) return values["planner"].as<std::string>() == "search";
  return !read_wish(values).is_empty() || values.count("layout") > 0;
}

int read_chunks(const Values& values, OrderKind order) {
  constexpr int kMaxChunks = 1000;
  constexpr int kSearchedChunks = 2;
  const bool given = values.count("chunks") > 0;
  const int chunks = traits(order).chunks;
  if (chunks == OrderTraits::kSeveralChunks) {
    if (!given) {
      if (asks_for_search(values)) return kSearchedChunks;
      refuse_option("chunks", fmt::format("required with {}", to_string(order)));
    }
    return static_cast<int>(read_integer(values, "chunks", 2, kMaxChunks));
  }
  if (given) read_integer(values, "chunks", chunks, chunks);
  return chunks;
}

/// Reads an option of the plan if it was given; otherwise keeps the value of the setting.
template <Named Enum>
void read_given(const Values& values, const std::string& option, Enum& value) {
  if (!values[option].defaulted()) value = read_named<Enum>(values, option);
}

/// Reads a switch that has an option to set it and an option "no-..." to clear it.
void read_switch(const Values& values, const std::string& option, bool& value) {
  const bool on = values[option].as<bool>();
  const bool off = values["no-" + option].as<bool>();
  if (on && off) refuse_option(option, fmt::format("cannot be combined with '--no-{}'", option));
  if (on || off) value = on;
}

/// Return the orders that all planners support, and the orders that only planners of uniform plans support.
std::vector<std::string_view> orders_of_all_planners() {
  return names_of(plainest_first(
      orders_where([](const OrderTraits& order) { return !order.spreads_encoder && !order.has_chunks(); })));
}
std::vector<std::string_view> orders_of_uniform_planners() {
  return names_of(
      orders_where([](const OrderTraits& order) { return !order.spreads_encoder && order.has_chunks(); }));
}

}  // namespace

OutlierDelay read_delay(const Values& values, int gbs, const Plan* plan) {
  OutlierDelay delay;
  delay.window = static_cast<int>(read_integer(values, "delay-outliers", 0, kMaxDelay));
  const std::optional<std::string> bins = read_text(values, "outlier-bins");
  if (delay.window == 0) {
    if (bins) refuse_option("outlier-bins", "needs '--delay-outliers K' with K of at least 1");
    return delay;
  }
  if (bins) {
    const std::string form = fmt::format(
        "MxD, such as 16x4, microbatches and dp ranks, with M x D at most the {} samples of a "
        "batch",
        gbs);
    ValueText reader("outlier-bins", form, *bins);
    delay.microbatches = reader.number(1, gbs);
    reader.expect("x");
    delay.dp = reader.number(1, gbs / delay.microbatches);
    reader.expect_end();
  } else if (plan != nullptr) {
    delay.microbatches = plan->microbatches;
    delay.dp = plan->llm.dp;
  } else {
    refuse_option(
        "delay-outliers",
        "needs '--outlier-bins MxD', because there is no plan yet that gives microbatches and dp ranks");
  }
  return delay;
}

std::span<const Setting> settings() {
  // torch's DistributedDataParallel has buckets of 25 MiB.
  static const Setting kSettings[] = {
      {"tuned", "as in current training stacks"},
      {"published",
       "as in the released code of the published system: full recomputation, no ZeRO, no sequence "
       "parallelism, "
       "bf16 optimizer states, buckets of 25 MiB, reshard hub, bin order solver",
       {.gradient_bucket = {25 << 20},
        .optimizer_states = OptimizerStates::bf16,
        .reshard = Reshard::hub,
        .zero1 = false,
        .sequence_parallel = false,
        .trained = {}},
       true,
       BinOrder::solver},
  };
  return kSettings;
}

const Setting& find_setting(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Setting& setting : settings()) {
    if (setting.name == name) return setting;
    names.push_back(setting.name);
  }
  refuse_name("setting", names, name);
}

void add_plan_options(Options& options) {
  std::string what;
  std::vector<std::string_view> names;
  for (const Setting& setting : settings()) {
    what += fmt::format("; {}: {}", setting.name, setting.what);
    names.push_back(setting.name);
  }
  options.add(
      OptionGroup::plan,
      {
          {"setting", text(joined(names), std::string(names.front())),
           "values of the options of the plan that are not given" + what},
          {"pipeline-schedule", text("NAME", "1f1b"),
           fmt::format("pipeline schedule: {}; with planners pytorch and megatron also {}",
                       listed(orders_of_all_planners()), listed(orders_of_uniform_planners())),
           "order"},
          {"chunks", whole("V"),
           "stages per pipeline rank, for interleaved (zb-v always has 2); default with planner search: 2"},
          {"recompute", text(joined<Recomputation>(), "full"),
           "activations to recompute in the backward pass"},
          {"gradient-bucket", whole("BYTES", 0),
           "reduce gradients in buckets of this size, in bytes, during the last backward; 0: reduce all "
           "gradients after it"},
          {"placement", text(joined<RankOrder>(), "stage-major"),
           "which ranks are adjacent: the dp ranks of a stage (stage-major), or the stages of a dp rank "
           "(replica-major)"},
          {"optimizer-states", text(joined<OptimizerStates>(), "fp32"),
           "precision of gradients and Adam states; with bf16 a parameter takes 10 bytes in all, including "
           "gradient buckets"},
          {"reshard", text(joined<Reshard>(), "direct"),
           "how activations go from the encoder's ranks to separate LLM ranks: from each rank to each "
           "(direct), or through one encoder rank (hub)"},
          {"zero1", flag(), "split optimizer states over dp ranks"},
          {"no-zero1", flag(), "keep full optimizer states on every dp rank"},
          {"sequence-parallel", flag(), "split activations between tp regions over tp ranks"},
      });
  add_no_sequence_parallel_option(options);
  options.add(
      OptionGroup::plan,
      {
          {"clip-gradients", flag(),
           "compute the norm of all gradients before optimizer steps; all ranks wait for it"},
          {"freeze", text("LIST"),
           "parts that are not trained, from encoder, connector, llm, such as encoder,llm; they have no "
           "weight gradients, gradient reductions or optimizer states, and no backward pass if no trained "
           "part comes before them"},
          {"lora", whole("RANK"),
           "freeze the LLM and train a pair of matrices of this rank (LoRA) for each matrix of its layers"},
      });
}

const std::vector<const char*>& search_only_options() {
  static const std::vector<const char*> names = {
      "plan-objective", "layout",     "no-shared",  "budget",      "seed-plans", "tp", "pp", "dp",
      "encoder-tp",     "encoder-pp", "encoder-dp", "microbatches"};
  return names;
}

std::vector<Plan> read_seed_plans(const Values& values, const Target& target, int gbs) {
  std::vector<Plan> seeds;
  for (const std::string& file : read_texts(values, "seed-plans")) {
    Plan plan = parse_plan(read_text_file(file), file);
    if (plan.model != target.model.name) {
      refuse_input(file, "expected a plan for '{}', found one for '{}'", target.model.name, plan.model);
    }
    plan.planner = kGivenSeed;  // regardless of who made it: the search runs all planners itself
    plan.cluster = target.cluster.name;
    plan.gbs = gbs;
    try {
      validate(plan, target.model, target.cluster, file);
      seeds.push_back(std::move(plan));
    } catch (const Error& error) {
      say("dflop: note: seed plan ignored: {}\n", error.what());
    }
  }
  return seeds;
}

bool asks_for_parts(const Values& values) {
  if (!values["pipeline-schedule"].defaulted()) return true;
  PlanWish wish;
  const auto parts = parts_of(wish);
  return std::ranges::any_of(parts,
                             [&](const auto& part) { return values.count(std::string(part.first)) > 0; });
}

bool divides_heads(const TransformerSpec& module, int tp) {
  if (module.layers == 0 || tp == 1) return true;
  const bool divides_kv = module.kv_heads < tp ? tp % module.kv_heads == 0 : module.kv_heads % tp == 0;
  return module.heads % tp == 0 && divides_kv;
}

void read_padding(const Values& values, const ModelSpec& model, SearchOptions& search) {
  if (!is_set(values, "no-padded-heads")) return;
  search.can_split = [of = search.can_split, model](int encoder_tp, int llm_tp) {
    return divides_heads(model.encoder, encoder_tp) && divides_heads(model.llm, llm_tp) &&
           (!of || of(encoder_tp, llm_tp));
  };
}

SearchOptions read_search_options(const Values& values) {
  SearchOptions options;
  options.objective = read_named<PlanObjective>(values, "plan-objective");
  if (values.count("layout") > 0) options.layouts = {read_named<Layout>(values, "layout")};
  options.shared = !is_set(values, "no-shared") && !(asks_for_parts(values) && options.layouts.empty());
  if (is_set(values, "no-shared") && options.layouts == std::vector{Layout::shared})
    refuse_option("no-shared", "cannot be combined with '--layout shared'");
  if (values.count("budget") > 0) options.budget = read_integer(values, "budget", 1, INT64_MAX);
  options.respect_memory = read_respect_memory(values).value_or(options.respect_memory);
  const PlanOptions fixed = read_plan_options(values, true);
  if (traits(fixed.order).spreads_encoder) {
    // This is the only order of colocated plans. The planners whose plans a search starts from do not make
    // colocated plans.
    if (!may_be(options.layouts, Layout::colocated))
      refuse_option("layout", fmt::format("'{}' needs a colocated plan, found '{}'", to_string(fixed.order),
                                          to_string(options.layouts.front())));
    options.layouts = {Layout::colocated};
  } else if (is_fixed(values, "pipeline-schedule")) {
    options.orders = {fixed.order};
  }
  if (is_fixed(values, "recompute")) options.recomputations = {fixed.recomputation};
  if (is_fixed(values, "placement")) options.placements = {fixed.placement};
  if (is_fixed(values, "gradient-bucket")) options.gradient_buckets = {fixed.gradient_bucket};
  return options;
}

PlanWish read_wish(const Values& values) {
  constexpr int kMax = 1 << 20;
  PlanWish wish;
  for (const auto& [name, value] : parts_of(wish))
    *value = read_optional_integer<int>(values, std::string(name), 1, kMax);
  return wish;
}

std::int64_t read_longest(const Values& values, const ModelSpec& model) {
  return read_optional_integer(values, "max-tokens", 1, kMaxTokensOfSample).value_or(model.max_tokens);
}

PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed) {
  PreprocessOptions options;
  options.rule = model.preprocess;
  if (model.architecture) {
    options.media = std::make_shared<ModelMedia>(model, read_model_processor(model, model.name));
  }
  options.max_tokens = read_longest(values, model);
  options.drop_long = is_set(values, "drop-long");
  options.seed = seed;
  const auto image = values["assume-image"].as<std::string>();
  ValueText image_text("assume-image", "WxH, as 640x480", image);
  options.assume_image = read_size(image_text);
  image_text.expect_end();
  const auto video = values["assume-video"].as<std::string>();
  ValueText video_text("assume-video", "WxH@FPS, such as 640x360@30", video);
  options.assume_video.size = read_size(video_text);
  video_text.expect("@");
  options.assume_video.fps = video_text.number(0.0, 1e4);
  video_text.expect_end();
  if (options.assume_video.fps == 0) video_text.fail();
  options.assume_text = read_integer(values, "assume-text", 1, kMaxTextTokens);
  options.strict = values["strict"].as<bool>();
  if (const auto list = read_text(values, "modalities")) options.modalities = parse_modalities(*list);
  return options;
}

namespace {

/// A DataKind is the content of a data set. Samples count as records.
enum class DataKind : std::uint8_t { records, conversations, token_ids };

DataKind kind_of_data(const std::string& name) {
  const std::optional<ShardKind> shards = kind_of_shards(name);
  if (!shards) return DataKind::records;
  return *shards == ShardKind::tar ? DataKind::conversations : DataKind::token_ids;
}

/// Returns whether one of a command's data sets is of a kind, so that options for this kind make sense.
bool has_data_of(const Values& values, DataKind kind) {
  for (const char* option : {"data", "eval-data"}) {
    if (values.count(option) > 0 && kind_of_data(values[option].as<std::string>()) == kind) return true;
  }
  return false;
}

/// Reads the options for shards that apply to this data set. @throws Error (usage) for options that apply to
/// none of the command's data sets
DatasetOptions read_dataset_options(const Values& values, const ModelSpec& model, const std::string& name) {
  constexpr std::int64_t kLongestSample = 1'000'000;
  std::vector<std::string> given = given_options_of_records(values);
  std::erase(given, "max-tokens");  // also truncates conversations and token ids
  if (values.count("modalities") > 0) given.emplace_back("modalities");
  const bool has_words = kind_of_data(name) == DataKind::conversations;
  if (!given.empty() && !has_data_of(values, DataKind::records)) {
    refuse_option(given.front(), "applies only to records, but " + name + " has " +
                                     (has_words ? "conversations" : "token ids"));
  }
  DatasetOptions options;
  if (const auto form = read_text(values, "chat")) {
    require_one_of("chat", chat_forms(), *form);
    if (!has_data_of(values, DataKind::conversations))
      refuse_option("chat", "applies only to conversations, but " + name + " has token ids");
    if (has_words) options.chat_form = *form;
  }
  const std::int64_t longest = model.max_tokens > 0 ? model.max_tokens : kLongestSample;
  if (const auto length = read_optional_integer(values, "sequence-length", 1, longest)) {
    if (!has_data_of(values, DataKind::token_ids))
      refuse_option("sequence-length", "applies only to token ids, but " + name + " has conversations");
    if (!has_words) options.sequence_length = *length;
  }
  return options;
}

}  // namespace

std::vector<Sample> read_samples(const Values& values, const ModelSpec& model, std::uint64_t seed,
                                 const std::string& option, DataOrigin* origin, bool notes) {
  const auto file = values[option].as<std::string>();
  if (values[option].defaulted() && !std::filesystem::exists(file)) {
    refuse_option(option, fmt::format("the default data set {} is not in this folder; name your own", file));
  }
  if (kind_of_shards(file)) return open_shards(values, model, option, origin, notes)->samples();
  const bool is_there = std::filesystem::exists(file);  // a missing file is reported when it is opened
  if (is_there && values.count("sequence-length") > 0 && !has_data_of(values, DataKind::token_ids))
    refuse_option("sequence-length", "applies only to token ids, but " + file + " has records or samples");
  if (is_there && values.count("chat") > 0 && !has_data_of(values, DataKind::conversations))
    refuse_option("chat", "applies only to conversations, but " + file + " has records or samples");
  std::vector<Sample> samples = load_samples(file, read_preprocess_options(values, model, seed), notes,
                                             origin, given_options_of_records(values));
  if (model.llm.logits_at_once > 0) {  // its runs compute the logits of trained tokens only
    for (Sample& sample : samples) {
      if (sample.untrained_tokens == 0) sample.untrained_tokens = sample.llm_tokens - loss_tokens(sample);
    }
  }
  return samples;
}

std::shared_ptr<const Dataset> open_shards(const Values& values, const ModelSpec& model,
                                           const std::string& option, DataOrigin* origin, bool notes) {
  const auto name = values[option].as<std::string>();
  ModelSpec cut = model;
  cut.max_tokens = read_longest(values, model);
  auto data = open_dataset(cut, model.name, name, read_dataset_options(values, cut, name));
  if (!data->note().empty()) say_once(fmt::format("dflop: note: {}\n", data->note()));
  if (const std::string text = describe(data->cut(), std::ssize(data->samples())); !text.empty() && notes)
    say("dflop: note: {}\n", text);
  if (const LeftOutSamples& left_out = data->left_out(); left_out.count > 0) {
    say("dflop: note: {} left out, because the model cannot be trained on {}; the first: {}\n",
        left_out.count == 1 ? "a sample is" : fmt::format("{} samples are", left_out.count),
        left_out.count == 1 ? "it" : "them", left_out.first);
  }
  if (data->samples().empty()) {
    throw Error(ErrorKind::input,
                data->left_out().count > 0
                    ? "no sample is left to train on"
                    : "expected samples, such as KEY.json next to KEY.jpg in a tar, found none",
                name);
  }
  if (origin != nullptr) {
    *origin = {{name, data->fingerprint()}, static_cast<std::int64_t>(data->samples().size()), {}};
    origin->cut = data->cut();
    if (const std::string text = describe(data->cut(), std::ssize(data->samples())); !text.empty())
      origin->assumptions.push_back(text);
  }
  return data;
}

std::vector<std::string> given_options_of_records(const Values& values) {
  std::vector<std::string> given;
  for (const char* option :
       {"assume-image", "assume-video", "assume-text", "preprocess", "max-tokens", "drop-long", "strict"}) {
    if (values.count(option) > 0 && !values[option].defaulted()) given.emplace_back(option);
  }
  return given;
}

SearchOptions open_choices(const Setting& setting) {
  SearchOptions open;
  if (!setting.is_fixed) return open;
  open.orders = {setting.options.order};
  open.recomputations = {setting.options.recomputation};
  open.placements = {setting.options.placement};
  open.gradient_buckets = {setting.options.gradient_bucket};
  return open;
}

bool is_fixed(const Values& values, const std::string& option) {
  return !values[option].defaulted() || find_setting(values["setting"].as<std::string>()).is_fixed;
}

namespace {

void read_order(const Values& values, PlanOptions& options, bool may_spread_encoder) {
  if (values["pipeline-schedule"].defaulted()) {
    options.chunks = read_chunks(values, options.order);
    return;
  }
  const auto name = values["pipeline-schedule"].as<std::string>();
  const auto kind = order_kind_from_string(name);
  if (!kind || (traits(*kind).spreads_encoder && !may_spread_encoder)) {
    std::vector<std::string_view> known = orders_of_all_planners();
    const std::vector<std::string_view> others = orders_of_uniform_planners();
    known.insert(known.end(), others.begin(), others.end());
    if (may_spread_encoder) {
      for (const OrderKind spread :
           orders_where([](const OrderTraits& order) { return order.spreads_encoder; }))
        known.push_back(to_string(spread));
    }
    refuse_name("pipeline-schedule", known, name);
  }
  options.order = *kind;
  options.chunks = read_chunks(values, *kind);
}

TrainedParts read_trained(const Values& values) {
  TrainedParts trained;
  if (const std::optional<std::string> list = read_text(values, "freeze")) {
    for (const std::string_view part : split(*list, ',')) {
      bool TrainedParts::*const flag = trained_flag(part);
      if (flag == nullptr) refuse_value("freeze", "a comma-separated list of encoder, connector, llm", *list);
      trained.*flag = false;
    }
  }
  if (const auto rank = read_optional_integer<int>(values, "lora", 1, kMaxLoraRank)) {
    trained.llm = false;
    trained.lora_rank = *rank;
  }
  if (!trained.encoder && !trained.connector && !trained.llm && trained.lora_rank == 0)
    refuse_value("freeze", "a list that leaves a part to train, or '--lora' as well",
                 values["freeze"].as<std::string>());
  return trained;
}

}  // namespace

PlanOptions read_plan_options(const Values& values, bool may_spread_encoder) {
  PlanOptions options = find_setting(values["setting"].as<std::string>()).options;
  read_order(values, options, may_spread_encoder);
  read_given(values, "recompute", options.recomputation);
  read_given(values, "placement", options.placement);
  if (!values["gradient-bucket"].defaulted())
    options.gradient_bucket = {read_integer(values, "gradient-bucket", 0, kMaxGradientBucket)};
  read_given(values, "optimizer-states", options.optimizer_states);
  read_given(values, "reshard", options.reshard);
  read_switch(values, "zero1", options.zero1);
  read_switch(values, "sequence-parallel", options.sequence_parallel);
  options.clip_gradients = is_set(values, "clip-gradients");
  options.trained = read_trained(values);
  return options;
}

std::optional<Objective> read_objective(const Values& values) {
  if (values.count("objective") == 0) return std::nullopt;
  return read_named<Objective>(values, "objective");
}

std::optional<BinOrder> read_bin_order(const Values& values) {
  if (values.count("bin-order") == 0) return std::nullopt;
  return read_named<BinOrder>(values, "bin-order");
}

std::optional<bool> read_respect_memory(const Values& values) {
  const bool on = is_set(values, "respect-memory");
  const bool off = is_set(values, "no-respect-memory");
  if (on && off) refuse_option("respect-memory", "cannot be combined with '--no-respect-memory'");
  return on || off ? std::optional(on) : std::nullopt;
}

SchedulerChoice read_scheduler(const Values& values) {
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 50;
  SchedulerChoice choice;
  if (const auto command = read_text(values, "scheduler-command")) {
    if (!values["scheduler"].defaulted())
      refuse_option("scheduler-command", "cannot be combined with '--scheduler'");
    refuse_given(values, {"steps", "node-budget", "time-limit"},
                 "applies only to dflop's own schedulers; '--scheduler-timeout' limits the command");
    use_scheduler_command(*command, Seconds(read_number(values, "scheduler-timeout", 1e-3, 86400)));
    choice.name = kCommandMethod;
  } else {
    choice.name = values["scheduler"].as<std::string>();
    require_one_of("scheduler", scheduler_names(), choice.name);
  }
  choice.limits.objective = read_objective(values);
  choice.limits.bin_order = read_bin_order(values);
  if (!choice.limits.bin_order && values.count("setting") > 0)
    choice.limits.bin_order = find_setting(values["setting"].as<std::string>()).bin_order;
  choice.limits.token_cap = read_optional_integer(values, "token-cap", 1, kMaxTokens);
  choice.respect_memory = read_respect_memory(values);
  choice.limits.steps = read_optional_integer(values, "steps", 1, INT64_MAX);
  choice.limits.node_budget = read_optional_integer(values, "node-budget", 0, INT32_MAX);
  if (values.count("time-limit") > 0) {
    if (choice.limits.node_budget || choice.limits.steps) {
      refuse_option("time-limit", "cannot be combined with '--node-budget' or '--steps'");
    }
    choice.limits.time_limit = Seconds(read_number(values, "time-limit", 1e-3, 86400));
  }
  return choice;
}

void choose_for_objective(SchedulerChoice& choice, const Values& values, const Plan& plan) {
  const auto is_given = [&](const char* option) { return values.count(option) > 0; };
  const bool is_open =
      values["scheduler"].defaulted() &&
      std::ranges::none_of(std::array{"scheduler-command", "bins", "node-budget", "bin-order"}, is_given);
  const std::optional<Objective> objective =
      choice.limits.objective ? choice.limits.objective : plan.objective;
  if (is_open && objective == Objective::makespan) choice.name = "auto";
}

int read_gbs(const Values& values) {
  return static_cast<int>(read_integer(values, "gbs", 1, kMaxGbs));
}

int read_iterations(const Values& values, int gbs) {
  const std::int64_t iterations = read_integer(values, "iterations", 1, kMaxIterations);
  if (iterations * gbs > kMaxSamplesInAll) {
    refuse_value("iterations",
                 fmt::format("at most {} iterations of --gbs {} ({} samples in all)", kMaxSamplesInAll / gbs,
                             gbs, kMaxSamplesInAll),
                 std::to_string(iterations));
  }
  return static_cast<int>(iterations);
}

std::uint64_t read_seed(const Values& values) {
  return static_cast<std::uint64_t>(read_integer(values, "seed", 0, INT64_MAX));
}

}  // namespace dflop
