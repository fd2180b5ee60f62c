#include "core/plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// A PlanCheck checks one plan.
class PlanCheck {
 public:
  PlanCheck(const Plan& plan, const ModelSpec& model, const ClusterSpec& cluster, const std::string& where)
      : plan_(plan), model_(model), cluster_(cluster), where_(where) {}

  void run() const {
    require_positive("microbatches", plan_.microbatches);
    check_schedule();
    check_module("encoder", plan_.encoder, model_.encoder.layers, plan_.layout == Layout::uniform);
    check_module("llm", plan_.llm, model_.llm.layers, true);
    if (plan_.layout == Layout::uniform) check_uniform();
    if (plan_.layout == Layout::uniform && plan_.encoder_recomputation) {
      refuse("encoder_recomputation",
             "expected a plan in which the encoder has stages of its own, found a uniform plan");
    }
    check_ranks();
    if (plan_.layout == Layout::colocated) check_colocated();
    check_share();
    check_placement();
    validate(plan_.trained, model_, where_);
    if (plan_.gbs < std::int64_t{plan_.microbatches} * plan_.llm.dp) {
      refuse("gbs", "a global batch of {} samples cannot fill dp {} x {} microbatches", plan_.gbs,
             plan_.llm.dp, plan_.microbatches);
    }
  }

 private:
  template <typename... Values>
  [[noreturn]] void refuse(const std::string& key, fmt::format_string<Values...> message,
                           Values&&... values) const {
    refuse_key(where_, key, message, std::forward<Values>(values)...);
  }

  void require_positive(const std::string& key, int value) const {
    if (value < 1) refuse(key, "expected at least 1, found {}", value);
  }

  /// Checks that the order fits the layout and chunks.
  void check_schedule() const {
    const OrderTraits& order = traits(plan_.order);
    if (!fits(order, plan_.layout)) {
      const auto colocated = orders_where([](const OrderTraits& o) { return fits(o, Layout::colocated); });
      refuse("schedule", "expected {} in colocated plans and only there, found {} in a {} plan",
             listed(names_of(colocated)), order.name, to_string(plan_.layout));
    }
    require_positive("chunks", plan_.chunks);
    if (!order.takes_chunks(plan_.chunks)) {
      refuse("chunks", "expected {}, found {}", order.chunks_taken(), plan_.chunks);
    }
  }

  void check_module(const std::string& name, const ModulePlan& module, int model_layers, bool chunked) const {
    require_positive(name + ".tp", module.tp);
    require_positive(name + ".pp", module.pp);
    require_positive(name + ".dp", module.dp);
    if (module.tp > cluster_.gpus_per_node) {
      refuse(name + ".tp", "tensor parallelism must stay inside a node of {} GPUs, found {}",
             cluster_.gpus_per_node, module.tp);
    }
    // This also keeps the product of sizes in a hostile file within 64 bits.
    for (const auto& [key, value] : {std::pair{".pp", module.pp}, std::pair{".dp", module.dp}}) {
      if (value > cluster_.gpus()) refuse(name + key, "expected at most {}, found {}", cluster_size(), value);
    }
    check_layers(name + ".layers", module, model_layers, chunked ? plan_.chunks : 1);
  }

  void check_layers(const std::string& key, const ModulePlan& module, int model_layers, int chunks) const {
    const std::int64_t stages = std::int64_t{module.pp} * chunks;
    if (static_cast<std::int64_t>(module.layers.size()) != stages) {
      refuse(key, "expected one entry for each of {} stages, found {}", stages, module.layers.size());
    }
    const int smallest = plan_.layout == Layout::uniform ? 0 : 1;
    for (const int layers : module.layers) {
      if (layers < smallest) refuse(key, "expected at least {} in each stage, found {}", smallest, layers);
    }
    const std::int64_t sum = std::accumulate(module.layers.begin(), module.layers.end(), std::int64_t{0});
    if (sum != model_layers) refuse(key, "expected a sum of {} layers, found {}", model_layers, sum);
  }

  void check_uniform() const {
    if (plan_.encoder.tp != plan_.llm.tp || plan_.encoder.pp != plan_.llm.pp ||
        plan_.encoder.dp != plan_.llm.dp) {
      refuse("encoder", "a uniform plan has the same tp, pp and dp for encoder and llm");
    }
    bool llm_begun = false;
    for (int stage = 0; stage < plan_.llm.pp * plan_.chunks; ++stage) {
      if (plan_.encoder.layers[stage] + plan_.llm.layers[stage] == 0) {
        refuse("llm.layers", "stage {} has no layers", stage);
      }
      if (llm_begun && plan_.encoder.layers[stage] > 0) {
        refuse("encoder.layers",
               "expected encoder layers before LLM layers, found encoder layers after LLM layers, in stage "
               "{}",
               stage);
      }
      llm_begun = llm_begun || plan_.llm.layers[stage] > 0;
    }
  }

  void check_colocated() const {
    const auto require = [&](const std::string& key, std::string_view what, int expected, int found) {
      if (found == expected) return;
      refuse(key, "expected {}, which is {}, in a colocated plan, found {}", what, expected, found);
    };
    if (plan_.llm.tp % plan_.encoder.tp != 0) {
      refuse("encoder.tp", "expected a divisor of the tp of llm, {}, in a colocated plan, found {}",
             plan_.llm.tp, plan_.encoder.tp);
    }
    require("encoder.pp", "one stage", 1, plan_.encoder.pp);
    require("encoder.dp", "the ranks of llm over encoder.tp", plan_.llm.ranks() / plan_.encoder.tp,
            plan_.encoder.dp);
  }

  /// Checks the number of ranks. The error names a module that is too large by itself; otherwise it says that
  /// the two do not fit together.
  void check_ranks() const {
    const auto ranks = [](const ModulePlan& m) { return std::int64_t{m.tp} * m.pp * m.dp; };
    const auto check = [&](const std::string& key, std::string_view who, std::int64_t needed) {
      if (needed <= cluster_.gpus()) return;
      refuse(key, "{}{} GPUs, expected at most {}", who, needed, cluster_size());
    };
    check("llm", "needs ", ranks(plan_.llm));
    if (!has_encoder_ranks(plan_.layout)) return;
    check("encoder", "needs ", ranks(plan_.encoder));
    if (plan_.layout == Layout::disaggregated)
      check("llm", "encoder and llm together need ", ranks(plan_.encoder) + ranks(plan_.llm));
  }

  /// Checks that a shared plan has two ranks on each GPU, and that each of them gets multiprocessors.
  void check_share() const {
    if (plan_.layout != Layout::shared) {
      if (plan_.encoder_share == 0) return;
      refuse("encoder_share", "expected a share only in shared plans, found {} in a {} plan",
             plan_.encoder_share, to_string(plan_.layout));
    }
    if (plan_.encoder.ranks() != plan_.llm.ranks()) {
      refuse("encoder", "in a shared plan, expected the same number of ranks as llm, {}, found {}",
             plan_.llm.ranks(), plan_.encoder.ranks());
    }
    if (!(plan_.encoder_share > 0 && plan_.encoder_share < 1)) {
      refuse("encoder_share", "expected a fraction of each GPU, above 0 and below 1, found {}",
             plan_.encoder_share);
    }
    if (cluster_.is_mixed())
      refuse("layout", "expected GPUs of one type for shares, found a cluster of several types");
    check_quanta(cluster_.gpu);
  }

  void check_quanta(const GpuSpec& gpu) const {
    const GrantedShares granted = granted_shares(gpu, plan_.encoder_share);
    if (granted.encoder > 0 && granted.llm > 0) return;
    refuse(
        "encoder_share",
        "expected a share that leaves both modules at least {} of the {} multiprocessors of {}, which come in "
        "multiples of {}, found {}",
        gpu.share_quantum, gpu.multiprocessors, gpu.name, gpu.share_quantum, plan_.encoder_share);
  }

  /// Checks that tp groups are inside nodes: tensor parallelism communicates in every layer and is priced on
  /// the links inside a node.
  void check_placement() const {
    const std::vector<std::int32_t> ranks = first_ranks(plan_);
    const int encoders = has_encoder_ranks(plan_.layout) ? plan_.encoder.pp * plan_.encoder.dp : 0;
    const int shared_gpus = plan_.layout == Layout::shared ? plan_.gpus() : 0;
    for (std::size_t group = 0; group < ranks.size(); ++group) {
      const bool is_encoder = static_cast<int>(group) < encoders;
      const int last = ranks[group] + (is_encoder ? plan_.encoder : plan_.llm).tp - 1;
      const auto node_of = [&](int rank) { return cluster_.node_of(device_of(rank, shared_gpus)); };
      if (node_of(ranks[group]) == node_of(last)) continue;
      refuse(is_encoder ? "encoder.tp" : "llm.tp",
             "the tp group of ranks {} to {} spans two nodes of {} GPUs", ranks[group], last,
             cluster_.gpus_per_node);
    }
  }

  std::string cluster_size() const {
    return fmt::format("the {} GPUs of cluster '{}'", cluster_.gpus(), cluster_.name);
  }

  const Plan& plan_;
  const ModelSpec& model_;
  const ClusterSpec& cluster_;
  const std::string& where_;
};

/// Returns the number of pieces of RankOrder::replica_major.
int replica_pieces(const ModulePlan& encoder, const ModulePlan& llm) {
  const int common = std::gcd(encoder.dp, llm.dp);
  for (int pieces = common; pieces > 1; --pieces) {
    if (common % pieces != 0) continue;
    if (encoder.ranks() / pieces % llm.tp == 0 && llm.ranks() / pieces % encoder.tp == 0) return pieces;
  }
  return 1;
}

}  // namespace

std::vector<int> split_layers(int layers, int stages) {
  std::vector<int> split(stages, layers / stages);
  for (int s = 0; s < layers % stages; ++s) ++split[s];
  return split;
}

std::vector<std::int32_t> first_ranks(const Plan& plan) {
  const bool stage_major = plan.placement == RankOrder::stage_major;
  std::vector<const ModulePlan*> modules = {&plan.llm};
  int pieces = 1;
  if (has_encoder_ranks(plan.layout)) {
    modules = {&plan.encoder, &plan.llm};
    if (!stage_major && plan.layout == Layout::disaggregated) pieces = replica_pieces(plan.encoder, plan.llm);
  }
  std::vector<std::int32_t> ranks;
  for (const ModulePlan* module : modules)
    ranks.resize(ranks.size() + static_cast<std::size_t>(module->pp) * module->dp);
  std::int32_t next = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    int first_group = 0;
    for (const ModulePlan* module : modules) {
      const int replicas = module->dp / pieces;
      for (int k = 0; k < replicas * module->pp; ++k, next += module->tp) {
        const int stage = stage_major ? k / replicas : k % module->pp;
        const int replica = stage_major ? k % replicas : k / module->pp;
        ranks[first_group + stage * module->dp + piece * replicas + replica] = next;
      }
      first_group += module->pp * module->dp;
    }
  }
  return ranks;
}

void validate(const Plan& plan, const ModelSpec& model, const ClusterSpec& cluster,
              const std::string& where) {
  PlanCheck(plan, model, cluster, where).run();
}

void validate(const TrainedParts& trained, const ModelSpec& model, const std::string& where) {
  const bool has_encoder = model.encoder.layers > 0;
  const bool has_connector = has_encoder && model.connector.widths.size() > 1;
  const auto require_there = [&](bool is_trained, bool is_there, const char* part) {
    if (is_trained || is_there) return;
    refuse_key(where, "frozen", "expected parts that '{}' has, found {}", model.name, part);
  };
  require_there(trained.encoder, has_encoder, "encoder");
  require_there(trained.connector, has_connector, "connector");
  if (trained.lora_rank > 0 && trained.llm) {
    refuse_key(where, "lora_rank", "expected 'llm' to be frozen with LoRA, found it trained");
  }
  const bool any =
      (has_encoder && trained.encoder) || (has_connector && trained.connector) || trained.in_llm();
  if (!any)
    refuse_key(where, "frozen", "expected a part that is trained, found all of '{}' frozen", model.name);
}

std::string describe(const TrainedParts& trained) {
  std::vector<std::string> parts;
  if (trained.encoder) parts.emplace_back("encoder");
  if (trained.connector) parts.emplace_back("connector");
  if (trained.llm) parts.emplace_back("LLM");
  if (trained.lora_rank > 0) parts.push_back(fmt::format("LoRA of rank {} on the LLM", trained.lora_rank));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string describe(const Plan& plan) {
  const auto shape = [](const ModulePlan& m) { return fmt::format("tp{} pp{} dp{}", m.tp, m.pp, m.dp); };
  std::string tail = fmt::format(" mb{}", plan.microbatches);
  if (!traits(plan.order).is_usual) tail += fmt::format(" {}", to_string(plan.order));
  if (plan.chunks > 1) tail += fmt::format(" x{}", plan.chunks);
  if (encoder_copies(plan) > 1) tail += fmt::format(" encoder tp{}", plan.encoder.tp);
  if (plan.placement != RankOrder::stage_major) tail += fmt::format(" {}", to_string(plan.placement));
  if (plan.layout == Layout::shared) tail += fmt::format(" shared {}", plan.encoder_share);
  if (!has_encoder_ranks(plan.layout)) return shape(plan.llm) + tail;
  return "E " + shape(plan.encoder) + " | L " + shape(plan.llm) + tail;
}

void validate(const Assignment& assignment, const Plan& plan, std::size_t samples, const std::string& where) {
  if (assignment.microbatches != plan.microbatches || assignment.dp != plan.llm.dp) {
    refuse_input(where, "expected {} microbatches x dp {}, found {} x {}", plan.microbatches, plan.llm.dp,
                 assignment.microbatches, assignment.dp);
  }
  if (assignment.bin.size() != samples) {
    refuse_input(where, "expected a bin for each of {} samples, found {}", samples, assignment.bin.size());
  }
  std::vector<bool> filled(plan.bins(), false);
  for (std::size_t i = 0; i < samples; ++i) {
    const std::int32_t bin = assignment.bin[i];
    if (bin < 0 || bin >= plan.bins()) {
      refuse_input(where, "sample {}: expected a bin from 0 to {}, found {}", i, plan.bins() - 1, bin);
    }
    filled[bin] = true;
  }
  const auto empty = std::find(filled.begin(), filled.end(), false);
  if (empty != filled.end()) refuse_input(where, "bin {} has no sample", empty - filled.begin());
}

}  // namespace dflop
