// Plan: how a model is cut over the ranks of a cluster, and Assignment: which sample goes where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/model.hpp"

namespace dflop {

enum class Layout : std::uint8_t {
  disaggregated,  ///< encoder and LLM on ranks of their own, each with its own tp, pp, dp
  uniform,        ///< one pipeline over encoder and LLM layers, one tp, pp, dp for all
};

enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b };

/// How much of a layer's activations is computed again in the backward pass.
enum class Recomputation : std::uint8_t { none, selective, full };

std::string_view to_string(Layout layout);
std::string_view to_string(PipelineSchedule schedule);  ///< "gpipe", "1f1b"
std::string_view to_string(Recomputation recomputation);
std::optional<PipelineSchedule> pipeline_schedule_from_string(std::string_view name);
std::optional<Recomputation> recomputation_from_string(std::string_view name);

/// Parallelism of one module.
struct ModulePlan {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  std::vector<int> layers;  ///< per pipeline stage, size pp

  int ranks() const { return tp * pp * dp; }
  bool operator==(const ModulePlan&) const = default;
};

/// A complete training configuration. With Layout::uniform both modules have the same tp, pp and dp, and
/// stage s runs encoder.layers[s] encoder layers, then llm.layers[s] LLM layers.
struct Plan {
  std::string planner;  ///< who made it
  std::string model;
  std::string cluster;
  int gbs = 0;  ///< global batch size, samples an iteration
  Layout layout = Layout::disaggregated;
  ModulePlan encoder;
  ModulePlan llm;
  int microbatches = 1;  ///< an iteration, per LLM dp rank
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  Recomputation recomputation = Recomputation::full;
  bool zero1 = true;              ///< optimizer states split over dp
  bool sequence_parallel = true;  ///< activations between tp regions split over tp

  int ranks() const { return layout == Layout::uniform ? llm.ranks() : encoder.ranks() + llm.ranks(); }
  int stages() const { return layout == Layout::uniform ? llm.pp : encoder.pp + llm.pp; }
  int bins() const { return microbatches * llm.dp; }
  bool operator==(const Plan&) const = default;
};

/// Splits `layers` over `stages` as evenly as whole layers allow, the larger parts first:
/// 27 over 2 is {14, 13}.
std::vector<int> split_layers(int layers, int stages);

/// Checks a plan against itself, its model and its cluster. `where` is the plan's place for errors, as the
/// name of its file.
/// @throws Error (input) naming the key, what was expected and what was found.
void validate(const Plan& plan, const ModelSpec& model, const ClusterSpec& cluster,
              const std::string& where = "plan");

/// "E tp2 pp1 dp4 | L tp4 pp2 dp3 | mb 16", or "tp4 pp2 dp4 (E 27+0 | L 12+20) | mb 16".
std::string describe(const Plan& plan);

/// Samples of one global batch to bins. bin = microbatch * dp + dp rank, dp being that of the LLM.
struct Assignment {
  int microbatches = 0;
  int dp = 0;
  std::vector<std::int32_t> bin;  ///< per sample, in batch order

  bool operator==(const Assignment&) const = default;
};

/// `where` is the assignment's place for errors.
/// @throws Error (input) unless every sample has a bin of the plan and no bin is empty.
void validate(const Assignment& assignment, const Plan& plan, std::size_t samples,
              const std::string& where = "assignment");

}  // namespace dflop
