#include "core/plan.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr std::array<std::string_view, 2> kLayouts = {"disaggregated", "uniform"};
constexpr std::array<std::string_view, 2> kSchedules = {"gpipe", "1f1b"};
constexpr std::array<std::string_view, 3> kRecomputations = {"none", "selective", "full"};

template <typename Enum, std::size_t N>
std::optional<Enum> find(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) return std::nullopt;
  return static_cast<Enum>(it - names.begin());
}

[[noreturn]] void refuse(const std::string& key, const std::string& message) {
  throw Error(ErrorKind::input, message, "plan: key '" + key + "'");
}

void require_positive(const std::string& key, int value) {
  if (value < 1) refuse(key, "expected at least 1, found " + std::to_string(value));
}

void validate_module(const std::string& name, const ModulePlan& module, int model_layers, const Plan& plan,
                     const ClusterSpec& cluster) {
  require_positive(name + ".tp", module.tp);
  require_positive(name + ".pp", module.pp);
  require_positive(name + ".dp", module.dp);
  if (module.tp > cluster.gpus_per_node) {
    refuse(name + ".tp", "tensor parallelism stays inside a node of " +
                             std::to_string(cluster.gpus_per_node) + " GPUs, found " +
                             std::to_string(module.tp));
  }
  // Also keeps products of a hostile file's sizes inside 64 bits.
  for (const auto& [key, value] : {std::pair{".pp", module.pp}, std::pair{".dp", module.dp}}) {
    if (value > cluster.gpus()) {
      refuse(name + key, "expected at most the " + std::to_string(cluster.gpus()) + " GPUs of cluster '" +
                             cluster.name + "', found " + std::to_string(value));
    }
  }
  if (module.layers.size() != static_cast<std::size_t>(module.pp)) {
    refuse(name + ".layers", "expected one entry for each of " + std::to_string(module.pp) +
                                 " stages, found " + std::to_string(module.layers.size()));
  }
  const int smallest = plan.layout == Layout::uniform ? 0 : 1;
  for (const int layers : module.layers) {
    if (layers < smallest) {
      refuse(name + ".layers", "expected at least " + std::to_string(smallest) + " in each stage, found " +
                                   std::to_string(layers));
    }
  }
  const std::int64_t sum = std::accumulate(module.layers.begin(), module.layers.end(), std::int64_t{0});
  if (sum != model_layers) {
    refuse(name + ".layers",
           "expected a sum of " + std::to_string(model_layers) + " layers, found " + std::to_string(sum));
  }
}

/// Tensor parallelism talks in every layer and is priced on the links inside a node.
void validate_placement(const std::string& name, const ModulePlan& module, int first_rank,
                        const ClusterSpec& cluster) {
  for (int group = 0; group < module.pp * module.dp; ++group) {
    const int first = first_rank + group * module.tp;
    if (cluster.node_of(first) != cluster.node_of(first + module.tp - 1)) {
      refuse(name + ".tp", "the tp group of ranks " + std::to_string(first) + " to " +
                               std::to_string(first + module.tp - 1) + " lies on two nodes of " +
                               std::to_string(cluster.gpus_per_node) + " GPUs");
    }
  }
}

void validate_uniform(const Plan& plan) {
  if (plan.encoder.tp != plan.llm.tp || plan.encoder.pp != plan.llm.pp || plan.encoder.dp != plan.llm.dp) {
    refuse("encoder", "a uniform plan has the same tp, pp and dp for encoder and llm");
  }
  bool llm_begun = false;
  for (int stage = 0; stage < plan.llm.pp; ++stage) {
    if (plan.encoder.layers[stage] + plan.llm.layers[stage] == 0) {
      refuse("llm.layers", "stage " + std::to_string(stage) + " has no layers");
    }
    if (llm_begun && plan.encoder.layers[stage] > 0) {
      refuse("encoder.layers",
             "encoder layers come before LLM layers, found some in stage " + std::to_string(stage));
    }
    llm_begun = llm_begun || plan.llm.layers[stage] > 0;
  }
}

}  // namespace

std::string_view to_string(Layout layout) {
  return kLayouts[static_cast<std::size_t>(layout)];
}
std::string_view to_string(PipelineSchedule schedule) {
  return kSchedules[static_cast<std::size_t>(schedule)];
}
std::string_view to_string(Recomputation recomputation) {
  return kRecomputations[static_cast<std::size_t>(recomputation)];
}
std::optional<Layout> layout_from_string(std::string_view name) {
  return find<Layout>(kLayouts, name);
}
std::optional<PipelineSchedule> pipeline_schedule_from_string(std::string_view name) {
  return find<PipelineSchedule>(kSchedules, name);
}
std::optional<Recomputation> recomputation_from_string(std::string_view name) {
  return find<Recomputation>(kRecomputations, name);
}

std::vector<int> split_layers(int layers, int stages) {
  std::vector<int> split(stages, layers / stages);
  for (int s = 0; s < layers % stages; ++s) ++split[s];
  return split;
}

void validate(const Plan& plan, const ModelSpec& model, const ClusterSpec& cluster) {
  validate_module("encoder", plan.encoder, model.encoder.layers, plan, cluster);
  validate_module("llm", plan.llm, model.llm.layers, plan, cluster);
  if (plan.layout == Layout::uniform) validate_uniform(plan);
  require_positive("microbatches", plan.microbatches);
  const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c) { return a * b * c; };
  const std::int64_t llm_ranks = product(plan.llm.tp, plan.llm.pp, plan.llm.dp);
  const std::int64_t encoder_ranks =
      plan.layout == Layout::uniform ? 0 : product(plan.encoder.tp, plan.encoder.pp, plan.encoder.dp);
  if (llm_ranks + encoder_ranks > cluster.gpus()) {
    refuse("llm", "the plan needs " + std::to_string(llm_ranks + encoder_ranks) + " GPUs, cluster '" +
                      cluster.name + "' has " + std::to_string(cluster.gpus()));
  }
  validate_placement("encoder", plan.encoder, 0, cluster);
  validate_placement("llm", plan.llm, plan.layout == Layout::uniform ? 0 : plan.encoder.ranks(), cluster);
  if (plan.gbs < std::int64_t{plan.microbatches} * plan.llm.dp) {
    refuse("gbs", "a global batch of " + std::to_string(plan.gbs) + " samples cannot fill dp " +
                      std::to_string(plan.llm.dp) + " x " + std::to_string(plan.microbatches) +
                      " microbatches");
  }
}

std::string describe(const Plan& plan) {
  const auto shape = [](const ModulePlan& m) {
    return "tp" + std::to_string(m.tp) + " pp" + std::to_string(m.pp) + " dp" + std::to_string(m.dp);
  };
  const std::string tail = " mb" + std::to_string(plan.microbatches);
  if (plan.layout == Layout::uniform) return shape(plan.llm) + tail;
  return "E " + shape(plan.encoder) + " | L " + shape(plan.llm) + tail;
}

void validate(const Assignment& assignment, const Plan& plan, std::size_t samples) {
  const auto refuse_assignment = [](const std::string& message) {
    throw Error(ErrorKind::input, message, "assignment");
  };
  if (assignment.microbatches != plan.microbatches || assignment.dp != plan.llm.dp) {
    refuse_assignment("expected " + std::to_string(plan.microbatches) + " microbatches x dp " +
                      std::to_string(plan.llm.dp) + ", found " + std::to_string(assignment.microbatches) +
                      " x " + std::to_string(assignment.dp));
  }
  if (assignment.bin.size() != samples) {
    refuse_assignment("expected a bin for each of " + std::to_string(samples) + " samples, found " +
                      std::to_string(assignment.bin.size()));
  }
  std::vector<bool> filled(plan.bins(), false);
  for (std::size_t i = 0; i < samples; ++i) {
    const std::int32_t bin = assignment.bin[i];
    if (bin < 0 || bin >= plan.bins()) {
      refuse_assignment("sample " + std::to_string(i) + ": expected a bin from 0 to " +
                        std::to_string(plan.bins() - 1) + ", found " + std::to_string(bin));
    }
    filled[bin] = true;
  }
  const auto empty = std::find(filled.begin(), filled.end(), false);
  if (empty != filled.end())
    refuse_assignment("bin " + std::to_string(empty - filled.begin()) + " has no sample");
}

}  // namespace dflop
