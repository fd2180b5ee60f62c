// The published Profiling Engine keeps a model's throughput and memory in small tables, and of the data means
// and maxima. The published optimizers see nothing else.
//
// Sources: the DFLOP paper (arXiv 2603.25120), section 3, and its released code
// (github.com/BDAI-Research/DFLOP, 60e86d8): prof_engine.py for what is measured, data_aware_optimizer.py for
// what is made of it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// A Curve is a table of points that is interpolated linearly.
class Curve {
 public:
  /// @pre as many x as y, two at least; x rise
  Curve(std::vector<double> x, std::vector<double> y) : x_(std::move(x)), y_(std::move(y)) {}

  /// Beyond the ends the line of the last two points goes on, as in the released code.
  double extended(double x) const;
  /// Beyond the ends the last point's value stays.
  double held(double x) const { return extended(std::clamp(x, x_.front(), x_.back())); }

 private:
  std::vector<double> x_;
  std::vector<double> y_;
};

/// A ModuleProfile has what was measured of one module under one tp. Units of the encoder are tiles,
/// those of the LLM tokens.
struct ModuleProfile {
  int tp = 1;
  Curve throughput;  ///< forward FLOP by the time of forward and backward, of one GPU for the whole module,
                     ///< by the units of a microbatch
  /// These lines give bytes of a rank's model state by layers: what none and what each of them takes.
  double state_base = 0;
  double state_of_layer = 0;
  /// These are the same for the activations of a microbatch, for each of its units.
  double activation_base = 0;
  double activation_of_layer = 0;

  double state(int layers) const { return state_base + state_of_layer * layers; }
  double activation(int layers) const { return activation_base + activation_of_layer * layers; }
};

/// A ModuleTables has a module's profiles by rising tp, and what an item of the data is to it.
struct ModuleTables {
  int layers = 0;
  std::vector<ModuleProfile> profiles;
  double mean_flop = 0;   ///< forward, of an item
  double mean_units = 0;  ///< of an item
  double most_units = 0;  ///< of any item
};

struct PublishedProfile {
  ModuleTables encoder;
  ModuleTables llm;
};

/// Profiles the request's model by its cost model, at the shapes at which the released engine measures, with
/// the recomputation and sequence parallelism that the request asks for:
///   throughput  encoder: 1 to 64 tiles, 16 layers; LLM: sequences of 1,024 to 8,192 tokens, 4 layers, with
///               and without attention; forward FLOP over the time of forward and backward. The LLM's is that
///               of its linear layers and that of its attention, weighted by their parts in the FLOP of the
///               data, the latter as the mean over the data.
///   memory      of two numbers of layers (4 and 8; 3 and 4), as a line. Model state is 10 bytes a parameter:
///               bf16 parameter, gradient, two moments, and DDP's bucket.
/// tp is 1, 2, 4 and 8 where it divides the module's heads and the GPUs of a node. A tile has the mean length
/// of the data's encoder sequences.
/// @pre the request has a profiled sample with work for each module
PublishedProfile published_profile(const PlanRequest& request);

}  // namespace dflop
