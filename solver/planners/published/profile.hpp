// A PublishedProfile is what the published optimizers read from the PublishedTables: throughput and memory of
// each module, and means and maxima of the data.
//
// Sources: the DFLOP paper (arXiv 2603.25120), section 3, and its released code
// (github.com/BDAI-Research/DFLOP, 60e86d8): data_aware_optimizer.py and dflop/prof_utils.py.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/model.hpp"
#include "solver/planners/published/tables.hpp"

namespace dflop {

/// A Curve is a table of points that is interpolated linearly.
class Curve {
 public:
  /// @pre as many x as y, at least two; x is increasing
  Curve(std::vector<double> x, std::vector<double> y) : x_(std::move(x)), y_(std::move(y)) {}

  /// Interpolates at x. Beyond the ends, continues the line of the last two points, as in the released code.
  double extended(double x) const;
  /// Interpolates at x. Beyond the ends, returns the last point's value.
  double held(double x) const { return extended(std::clamp(x, x_.front(), x_.back())); }

 private:
  std::vector<double> x_;
  std::vector<double> y_;
};

/// A ModuleProfile has the measurements of one module at one tp. A unit is a tile for the encoder and a token
/// for the LLM.
struct ModuleProfile {
  int tp = 1;
  /// This is the throughput of the whole module on one GPU, in TFLOP/s, as a function of a microbatch's
  /// units: the TFLOP of a pass, divided by the seconds of forward and backward.
  Curve throughput;
  /// The bytes of a rank's model state are a line over its layers: a base plus an amount per layer.
  double state_base = 0;
  double state_of_layer = 0;
  /// The bytes of a rank's activations, per unit of a microbatch, are also a line over its layers.
  double activation_base = 0;
  double activation_of_layer = 0;

  double state(int layers) const { return state_base + state_of_layer * layers; }
  double activation(int layers) const { return activation_base + activation_of_layer * layers; }
};

/// A ModuleTables has a module's profiles in increasing order of tp, and means and maxima over the data's
/// items.
struct ModuleTables {
  int layers = 0;
  std::vector<ModuleProfile> profiles;
  double mean_tflop = 0;  ///< of an item's pass: forward, recomputation and backward
  double mean_units = 0;  ///< of an item
  double most_units = 0;  ///< of any item
};

struct PublishedProfile {
  ModuleTables encoder;
  ModuleTables llm;
};

/// Returns the side of a tile in pixels for the models that the released code plans: LLaVA-OneVision (384)
/// and InternVL (448). Nullopt for others.
std::optional<int> tile_side(const ModelSpec& model);

/// Returns the TFLOP of a pass (forward, recomputation, backward) of the encoder's first `layers` layers and
/// its ends over some tiles, as vision_module_flops() of the released code counts them: 4 x the forward. It
/// counts the connector's FLOP 4/3 times too often, and for InternVL as if no tokens were joined before it.
/// For models that the released code does not plan, connector_flop() and front_flop() replace its formulas.
double encoder_tflop(const ModelSpec& model, std::int64_t tile_tokens, double tiles, int layers);

/// Returns the TFLOP of a pass of `layers` LLM layers and the vocabulary head over one sequence, as
/// llm_module_flops() counts them: 4 x the forward, but with heads / kv_heads instead of kv_heads in the FLOP
/// of K and V.
double llm_tflop(const TransformerSpec& llm, double tokens, int layers);

/// Returns the part of llm_tflop() in the attention core.
double attention_tflop(const TransformerSpec& llm, double tokens, int layers);

/// Reads tables as the released optimizer does, with its rounding: times of the LLM to 0.01 ms, throughput to
/// 0.01 TFLOP/s, but times below 0.05 ms and throughput below 1 TFLOP/s not at all. For the LLM, it combines
/// the throughput of its linear layers and of its attention (the mean over the data), weighted by their
/// fractions of the data's FLOP. Memory is a line through two numbers of layers.
PublishedProfile published_profile(const PublishedTables& tables, const ModelSpec& model);

}  // namespace dflop
