#include "experiments/options/plan_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "experiments/cli/option_values.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/setting.hpp"

namespace dflop {
namespace {

/// Returns whether the planner is the search: by its name, because an option fixes parts of the plan, or, if
/// it may be the search, because the command has no other.
bool asks_for_search(const Values& values, bool may_search) {
  if (values.count("planner") == 0) return may_search;
  if (!values["planner"].defaulted()) return values["planner"].as<std::string>() == "search";
  return !read_wish(values).is_empty() || values.count("layout") > 0;
}

int read_chunks(const Values& values, OrderKind order, bool may_search) {
  constexpr int kMaxChunks = 1000;
  constexpr int kSearchedChunks = 2;
  const bool given = values.count("chunks") > 0;
  const int chunks = traits(order).chunks;
  if (chunks == OrderTraits::kSeveralChunks) {
    if (!given) {
      if (asks_for_search(values, may_search)) return kSearchedChunks;
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

void read_order(const Values& values, PlanOptions& options, bool may_search) {
  if (values["pipeline-schedule"].defaulted()) {
    options.chunks = read_chunks(values, options.order, may_search);
    return;
  }
  const auto name = values["pipeline-schedule"].as<std::string>();
  const auto kind = order_kind_from_string(name);
  if (!kind || (traits(*kind).spreads_encoder && !may_search)) {
    std::vector<std::string_view> known = orders_of_all_planners();
    const std::vector<std::string_view> others = orders_of_uniform_planners();
    known.insert(known.end(), others.begin(), others.end());
    if (may_search) {
      for (const OrderKind spread :
           orders_where([](const OrderTraits& order) { return order.spreads_encoder; }))
        known.push_back(to_string(spread));
    }
    refuse_name("pipeline-schedule", known, name);
  }
  options.order = *kind;
  options.chunks = read_chunks(values, *kind, may_search);
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
           "defaults of the plan's options" + what},
          {"pipeline-schedule", text("NAME", "1f1b"),
           fmt::format("pipeline schedule: {}; with planners pytorch and megatron also {}",
                       listed(orders_of_all_planners()), listed(orders_of_uniform_planners())),
           "order"},
          {"chunks", whole("V"),
           "stages per pipeline rank, for interleaved (zb-v always has 2); default with planner search: 2"},
          {"recompute", text(joined<Recomputation>(), "full"),
           "activations to recompute in the backward pass"},
          {"encoder-recompute", text(joined<Recomputation>()),
           "activations of the encoder to recompute, if not as --recompute says; for encoders with stages of "
           "their own"},
          {"gradient-bucket", whole("BYTES", 0),
           "reduce gradients in buckets of this size, in bytes, during the last backward; 0: reduce all "
           "gradients after it"},
          {"placement", text(joined<RankOrder>(), "stage-major"),
           "which ranks are adjacent: the dp ranks of a stage (stage-major), or the stages of a dp rank "
           "(replica-major)"},
          {"optimizer-states", text(joined<OptimizerStates>(), "fp32"),
           "precision of gradients and Adam states; with bf16 a parameter takes 10 bytes in total, including "
           "gradient buckets"},
          {"reshard", text(joined<Reshard>(), "direct"),
           "how activations go from the encoder's ranks to separate LLM ranks: from each rank to each "
           "(direct), or through one encoder rank (hub)"},
          {"share-rule", text(joined<ShareRule>(), "cost"),
           "how encoder dp ranks, or the encoder's copies in a tp group, divide a microbatch: into parts of "
           "equal FLOP (cost) or of equally many samples (count)"},
          {"zero1", flag(), "split optimizer states over dp ranks"},
          {"no-zero1", flag(), "keep full optimizer states on every dp rank"},
          {"sequence-parallel", flag(), "outside tp regions, split activations over tp ranks"},
      });
  add_no_sequence_parallel_option(options);
  options.add(
      OptionGroup::plan,
      {
          {"clip-gradients", flag(),
           "compute the norm of all gradients before optimizer steps; all ranks wait for it"},
          {"freeze", text("LIST"),
           "parts not to train: one or more of encoder, connector, llm, separated by commas; they have no "
           "weight gradients, gradient reductions or optimizer states, and no backward pass if no trained "
           "part comes before them"},
          {"lora", whole("RANK"),
           "freeze the LLM and train a pair of matrices of this rank (LoRA) for each matrix of its layers"},
      });
}

bool is_fixed(const Values& values, const std::string& option) {
  return !values[option].defaulted() || find_setting(values["setting"].as<std::string>()).is_fixed;
}

PlanOptions read_plan_options(const Values& values, bool may_search) {
  PlanOptions options = find_setting(values["setting"].as<std::string>()).options;
  read_order(values, options, may_search);
  read_given(values, "recompute", options.recomputation);
  if (values.count("encoder-recompute") > 0)
    read_given(values, "encoder-recompute", options.encoder_recomputation.emplace());
  read_given(values, "share-rule", options.share_rule);
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

PlanWish read_wish(const Values& values) {
  constexpr int kMax = 1 << 20;
  PlanWish wish;
  for (const auto& [name, value] : parts_of(wish))
    *value = read_optional_integer<int>(values, std::string(name), 1, kMax);
  return wish;
}

bool asks_for_parts(const Values& values) {
  if (!values["pipeline-schedule"].defaulted()) return true;
  PlanWish wish;
  const auto parts = parts_of(wish);
  return std::ranges::any_of(parts,
                             [&](const auto& part) { return values.count(std::string(part.first)) > 0; });
}

}  // namespace dflop
