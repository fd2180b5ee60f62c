#include "experiments/trust/assumptions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/program/lowering.hpp"
#include "experiments/charts/charts.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/data.hpp"

namespace dflop {
namespace {

constexpr std::size_t kAboutWidth = 9;

/// Returns a figure as JSON. A "yes" or "no" in a Cell becomes a boolean.
nlohmann::ordered_json json_of(const Cell& cell) {
  if (cell == Cell(true) || cell == Cell(false)) return cell == Cell(true);
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return *whole;
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  return nullptr;
}

/// Returns text such as "46 GB/s".
std::string rate_text(double bytes_per_s) {
  return fmt::format("{:.4g} GB/s", bytes_per_s / 1e9);
}

struct Padding {
  std::string_view module;
  std::string_view what;
  int heads;
  std::int64_t computed;
};

/// Adds the number of heads of a module over all ranks of a tp group, if that exceeds the number in the
/// model.
void add_padding(std::vector<Padding>& all, std::string_view name, const TransformerSpec& module, int tp) {
  if (module.layers == 0) return;
  const std::int64_t heads = tp * module.heads_per_rank(tp);
  if (heads > module.heads) all.push_back({name, "heads", module.heads, heads});
  const std::int64_t keys = tp * module.kv_heads_per_rank(tp);
  const bool are_copied = module.kv_heads < tp && tp % module.kv_heads == 0;
  if (keys > module.kv_heads && !are_copied) {
    all.push_back({name, "KV heads", module.kv_heads, keys});
  }
}

/// A Part is a part of a plan with its value.
struct Part {
  std::string text;
  bool is_asked = false;
  bool is_chosen = false;  ///< by the planner; otherwise it is the default
};

std::string layers_list(const std::vector<int>& layers) {
  return fmt::format("{}", fmt::join(layers, " "));
}

void add_module_parts(std::vector<Part>& parts, const std::string& name, const ModuleWish& wish,
                      const ModulePlan& module) {
  parts.push_back({fmt::format("{}tp {}", name, module.tp), wish.tp.has_value(), true});
  parts.push_back({fmt::format("{}pp {}", name, module.pp), wish.pp.has_value(), true});
  parts.push_back({fmt::format("{}dp {}", name, module.dp), wish.dp.has_value(), true});
}

std::vector<Part> parts_of_plan(const Plan& plan, const SearchOptions& search, bool chooses_parts) {
  std::vector<Part> parts;
  parts.push_back({fmt::format("layout {}", to_string(plan.layout)), !search.layouts.empty(), true});
  if (plan.layout != Layout::uniform) add_module_parts(parts, "encoder ", search.wish.encoder, plan.encoder);
  add_module_parts(parts, "", search.wish.llm, plan.llm);
  parts.push_back(
      {fmt::format("microbatches {}", plan.microbatches), search.wish.microbatches.has_value(), true});
  const std::string chunks = plan.chunks > 1 ? fmt::format(" x{}", plan.chunks) : "";
  parts.push_back(
      {fmt::format("order {}{}", to_string(plan.order), chunks), !search.orders.empty(), chooses_parts});
  parts.push_back({fmt::format("recomputation {}", to_string(plan.recomputation)),
                   !search.recomputations.empty(), chooses_parts});
  if (plan.encoder_recomputation) {
    parts.push_back({fmt::format("encoder recomputation {}", to_string(*plan.encoder_recomputation)), false,
                     chooses_parts && search.recomputations.empty()});
  }
  if (plan.share_rule != ShareRule::cost)
    parts.push_back({fmt::format("share rule {}", to_string(plan.share_rule)), false, false});
  parts.push_back(
      {fmt::format("placement {}", to_string(plan.placement)), !search.placements.empty(), chooses_parts});
  parts.push_back({plan.gradient_bucket.count > 0
                       ? fmt::format("gradient buckets of {} MiB", plan.gradient_bucket.count >> 20)
                       : "no gradient buckets",
                   !search.gradient_buckets.empty(), chooses_parts});
  if (plan.llm.pp > 1 || plan.encoder.pp > 1) {
    parts.push_back(
        {fmt::format("layers E {} | L {}", layers_list(plan.encoder.layers), layers_list(plan.llm.layers)),
         false, true});
  }
  return parts;
}

std::string joined_parts(const std::vector<Part>& parts, bool asked, bool chosen) {
  std::vector<std::string> texts;
  for (const Part& part : parts) {
    if (part.is_asked == asked && (asked || part.is_chosen == chosen)) texts.push_back(part.text);
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

void AssumptionBlock::add(std::string about, std::string text,
                          std::vector<std::pair<std::string, Cell>> figures) {
  all_.push_back({std::move(about), std::move(text), std::move(figures)});
}

std::string AssumptionBlock::text(std::size_t width) const {
  if (all_.empty()) return "";
  std::string text = "\nassumed and chosen:\n";
  std::string last;
  for (const Assumption& one : all_) {
    std::string about = one.about == last ? "" : one.about;
    last = one.about;
    for (const std::string& line : lines_of(one.text, width - kAboutWidth - 2)) {
      text += fmt::format("  {:<{}}{}\n", about, kAboutWidth, line);
      about.clear();
    }
  }
  return text;
}

std::string AssumptionBlock::terminal_text() const {
  constexpr std::size_t kMinWidth = 40;
  const auto terminal = static_cast<std::size_t>(terminal_width());
  return terminal == 0 ? text() : text(std::clamp(terminal, kMinWidth, kWidth));
}

std::string AssumptionBlock::html() const {
  if (all_.empty()) return "";
  return fmt::format("<h2>Assumed and chosen</h2>\n<div class='scroll'><pre>{}</pre></div>\n",
                     html_escaped(text().substr(1)));
}

nlohmann::ordered_json AssumptionBlock::json() const {
  auto json = nlohmann::ordered_json::object();
  for (const Assumption& one : all_) {
    nlohmann::ordered_json entry{{"text", one.text}};
    for (const auto& [key, value] : one.figures) entry[key] = json_of(value);
    json[one.about].push_back(std::move(entry));
  }
  return json;
}

void assume_data(AssumptionBlock& block, const DataOrigin& data, std::int64_t longest) {
  const SampleCut& cut = data.cut;
  std::string text = fmt::format("{} samples of {}", data.samples, data.name);
  if (cut.samples == 0 && longest > 0 && cut.longest > 0)
    text += fmt::format("; none is longer than the max length of {} tokens", longest);
  block.add("data", text, {{"samples", data.samples}});
  for (const std::string& line : data.assumptions) {
    if (line != describe(cut, data.samples)) {
      block.add("data", line);
      continue;
    }
    block.add(
        "data",
        line + (cut.drops
                    ? ""
                    : ": the encoder still processes them whole (--drop-long drops them); a run that trains "
                      "on whole samples takes longer and needs more memory"),
        {{"samples_left_out", cut.drops},
         {"cut_samples", cut.samples},
         {"cut_at_tokens", cut.longest},
         {"cut_tokens", cut.lost},
         {"cut_token_share", cut.share()}});
  }
  if (!data.delay.empty()) block.add("data", data.delay);
}

void assume_preset(AssumptionBlock& block, const std::string& cluster, const std::optional<Origin>& profile) {
  if (profile) {
    block.add("preset", fmt::format("measured: costs come from the profile {}", profile->name),
              {{"grade", to_string(Grade::measured)}});
    return;
  }
  for (const auto& [name, notes] : find_cluster_notes(cluster)) {
    std::string text = fmt::format("{}: {}", name, describe(notes));
    if (notes.grade == Grade::unknown)
      text +=
          ": its file does not say what its figures were compared "
          "with";
    if (notes.grade == Grade::nominal)
      text +=
          "; do not trust hours or small differences between plans: if there is a fitted preset of these "
          "GPUs, it gives a second opinion (docs/calibration.md)";
    block.add(
        "preset", text,
        {{"name", name}, {"grade", to_string(notes.grade)}, {"error", Cell(notes.error)}, {"of", notes.of}});
  }
}

void assume_links(AssumptionBlock& block, const std::string& cluster, const ClusterSpec& taken) {
  if (cluster_hash(cluster).empty()) return;  // a pipe cannot be read again
  const ClusterSpec named = find_cluster(cluster);
  const ClusterNotes notes = find_cluster_notes(cluster).front().notes;
  const auto compare = [&](std::string_view which, const Link& as_named, const Link& link,
                           const std::optional<double>& line_rate) {
    const double rate = link.bandwidth_bytes_per_s;
    if (rate == as_named.bandwidth_bytes_per_s) return;
    std::string text = fmt::format(
        "{}: {} are taken as achieved bandwidth; the cluster's own figure is "
        "{}",
        which, rate_text(rate), rate_text(as_named.bandwidth_bytes_per_s));
    if (line_rate) text += fmt::format(", of a line rate of {}", rate_text(*line_rate));
    if (line_rate && rate >= *line_rate)
      text += fmt::format(
          "; {} its line rate, which no message achieves: is this a faster link, or the "
          "printed rate?",
          rate > *line_rate ? "this is above" : "this is");
    if (&link == &taken.inter_node && rate > taken.intra_node.bandwidth_bytes_per_s) {
      text += fmt::format(
          "; note: links between nodes are faster than links inside a node ({}): bits or "
          "bytes?",
          rate_text(taken.intra_node.bandwidth_bytes_per_s));
    }
    block.add("links", text,
              {{"link", which},
               {"bandwidth_bytes_per_s", rate},
               {"preset_bytes_per_s", as_named.bandwidth_bytes_per_s},
               {"line_rate_bytes_per_s", Cell(line_rate)}});
  };
  compare("between nodes", named.inter_node, taken.inter_node, notes.inter_node_line_rate_bytes_per_s);
  compare("inside a node", named.intra_node, taken.intra_node, notes.intra_node_line_rate_bytes_per_s);
}

void assume_heads(AssumptionBlock& block, const Plan& plan, const ModelSpec& model, const std::string& row) {
  std::vector<Padding> all;
  add_padding(all, "encoder", model.encoder, plan.encoder.tp);
  if (model.second) add_padding(all, "second encoder", model.second->encoder, plan.encoder.tp);
  add_padding(all, "LLM", model.llm, plan.llm.tp);
  for (const Padding& padding : all) {
    const int tp = padding.module == "LLM" ? plan.llm.tp : plan.encoder.tp;
    block.add("heads",
              fmt::format("{}{}: tp {} pads {} {} to {}, at full cost; Megatron-LM rejects this tp "
                          "(--no-padded-heads)",
                          row.empty() ? "" : row + ", ", padding.module, tp, padding.heads, padding.what,
                          padding.computed),
              {{"row", row},
               {"module", padding.module},
               {"tp", tp},
               {"heads", padding.heads},
               {"computed", padding.computed}});
  }
}

void assume_layouts(AssumptionBlock& block, const std::vector<const Plan*>& plans) {
  if (std::ranges::none_of(plans, [](const Plan* plan) { return is_unconfirmed(plan->layout); })) return;
  block.add("layout",
            "plans with * have modules that share GPUs, which is predicted but not confirmed on any GPU "
            "(docs/shares.md; --no-shared excludes them)",
            {{"unconfirmed", std::string(to_string(Layout::shared))}});
}

std::string as_another_order(OrderKind order, int ranks, int microbatches) {
  const auto acts_as = traits(order).acts_as;
  const OrderKind other = acts_as == nullptr ? order : acts_as(ranks, microbatches);
  if (other == order) return "";
  return fmt::format("{} runs as {} here: {} microbatches are too few for it on {} pipeline ranks",
                     to_string(order), to_string(other), microbatches, ranks);
}

void assume_orders(AssumptionBlock& block, const std::vector<const Plan*>& plans) {
  std::set<std::string> said;
  for (const Plan* plan : plans) {
    std::string text = as_another_order(plan->order, plan_shape(*plan).ranks, plan->microbatches);
    if (!text.empty() && said.insert(text).second) block.add("order", std::move(text));
  }
}

void assume_choices(AssumptionBlock& block, const Plan& plan, const SearchOptions& search,
                    bool chooses_parts) {
  const std::vector<Part> parts = parts_of_plan(plan, search, chooses_parts);
  const auto add = [&](std::string_view what, const std::string& listed) {
    if (!listed.empty()) block.add("choices", fmt::format("{}: {}", what, listed));
  };
  add("asked for", joined_parts(parts, true, false));
  add(fmt::format("chosen by {}", plan.planner), joined_parts(parts, false, true));
  std::string usual = joined_parts(parts, false, false);
  usual += fmt::format("{}optimizer states {}, {}, {}{}", usual.empty() ? "" : ", ",
                       to_string(plan.optimizer_states), plan.zero1 ? "ZeRO-1" : "no ZeRO",
                       plan.sequence_parallel ? "sequence parallel" : "no sequence parallelism",
                       plan.clip_gradients ? ", gradients clipped" : ", gradients not clipped");
  add("given or default", usual);
  if (plan.planner == "search" && !search.shared && search.layouts.empty()) {
    block.add("choices",
              "layouts whose modules share GPUs were excluded, by --no-shared or because an order or "
              "parallelism is given (--layout shared searches them)");
  }
}

void assume_seed(AssumptionBlock& block, std::uint64_t seed, std::size_t iterations, int gbs, std::size_t all,
                 const std::string& more) {
  const std::size_t drawn = iterations * static_cast<std::size_t>(gbs);
  const std::string part = drawn < all ? fmt::format(", {} of {} samples", drawn, all) : "";
  block.add("seeds", fmt::format("{} global batches of seed {}{}; {}", iterations, seed, part, more),
            {{"seed", static_cast<std::int64_t>(seed)}, {"iterations", iterations}});
}

}  // namespace dflop
