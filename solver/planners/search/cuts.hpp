// These functions cut a plan's layers into stages: in all ways, by moving one layer, or as evenly as memory
// permits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"

namespace dflop {

/// A LayerChain is a sequence of layers, encoder before LLM, that is cut into one piece of at least one layer
/// for each stage. A uniform plan has one chain over both modules, every other plan one chain per module.
struct LayerChain {
  int encoder_layers = 0;
  int llm_layers = 0;
  int pieces = 1;
  int first_stage = 0;  ///< the stage of the first piece

  int layers() const { return encoder_layers + llm_layers; }
  /// Returns whether there is only one way to cut the chain.
  bool has_one_cut() const { return pieces == 1 || pieces == layers(); }
};

/// Returns the chains of a plan in model order; the layers of its stages are ignored.
std::vector<LayerChain> layer_chains(const Plan& plan, const ModelSpec& model);

/// Returns whether a plan's layers can be cut in only one way.
bool has_one_cut(const Plan& plan, const ModelSpec& model);

/// Returns the stage that holds the layers [first, last) of a chain, with tp, dp and all other properties as
/// in plan_stages().
Stage piece_stage(const Plan& plan, const ModelSpec& model, const LayerChain& chain, int first, int last);

/// Returns the plan with its chains cut into pieces of these sizes. `sizes` has a list for each chain.
Plan with_cuts(Plan plan, const ModelSpec& model, const std::vector<std::vector<int>>& sizes);

/// Returns every plan that differs from this one in one layer moved to a neighboring stage.
std::vector<Plan> moved_by_one_layer(const Plan& plan, const ModelSpec& model);

/// Returns the number of ways to cut a plan's layers, or `most` if that is smaller.
std::int64_t count_cuts(const Plan& plan, const ModelSpec& model, std::int64_t most);

/// Returns one plan for each way to cut the plan's layers.
std::vector<Plan> all_cuts(const Plan& plan, const ModelSpec& model);

/// Returns whether a piece, counted from 0, can hold the items [first, last). A piece with fewer of these
/// items must also fit.
using PieceFits = std::function<bool(int piece, int first, int last)>;

/// Divides a sequence of items into `parts` pieces of at least one item, so that the largest sum of a piece
/// is as small as possible, and the last pieces are as large as that permits. Returns the number of items in
/// each piece; nullopt if no cut has only pieces that fit. If `fits` is empty, every piece fits.
/// @pre at least as many items as parts, no item negative
std::optional<std::vector<int>> cut_evenly(const std::vector<double>& items, int parts,
                                           const PieceFits& fits = {});

}  // namespace dflop
