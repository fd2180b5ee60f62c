// A PublishedProfile has what the published Profiling Engine keeps: small tables of a model's throughput and
// memory, and means and maxima of the data. The published optimizers see nothing else.
//
// Sources: the DFLOP paper (arXiv 2603.25120), section 3, and its released code
// (github.com/BDAI-Research/DFLOP, 60e86d8): prof_engine.py for the measurements, data_aware_optimizer.py for
// their use.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/iteration/planner.hpp"

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
  /// This is the throughput of the whole module on one GPU, as a function of a microbatch's units: the FLOP
  /// of the forward, divided by the seconds of forward and backward.
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
  double mean_flop = 0;   ///< of an item's forward
  double mean_units = 0;  ///< of an item
  double most_units = 0;  ///< of any item
};

struct PublishedProfile {
  ModuleTables encoder;
  ModuleTables llm;
};

/// Profiles the request's model with the request's cost model, recomputation and sequence parallelism. It
/// uses the shapes that the released engine measures:
///   throughput  encoder: 1 to 64 tiles, 16 layers; LLM: sequences of 1,024 to 8,192 tokens, 4 layers, with
///               and without attention; forward FLOP over the time of forward and backward. For the LLM, it
///               combines the throughput of its linear layers and of its attention (the mean over the data),
///               weighted by their fractions of the data's FLOP.
///   memory      a line through two numbers of layers (4 and 8; 3 and 4). Model state is 10 bytes per
///               parameter: bf16 parameter, gradient, two moments, and DDP's bucket.
/// tp is 1, 2, 4 and 8 if it divides the module's heads and the GPUs of a node. A tile has the mean length of
/// the data's encoder sequences.
/// @pre the request has a profiled sample with work for each module
PublishedProfile published_profile(const PlanRequest& request);

}  // namespace dflop
