// Assumptions are the premises of a result, and the choices that dflop made because the user did not. Every
// command that plans, compares or simulates lists them in one block.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/planning.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// An Assumption is one sentence for people, with its figures for programs.
struct Assumption {
  std::string about;  ///< "data", "preset", "links", "choices", "layout", "heads", "schedule", "memory",
                      ///< "seeds", "time"
  std::string text;
  std::vector<std::pair<std::string, Cell>> figures = {};
};

class AssumptionBlock {
 public:
  void add(std::string about, std::string text, std::vector<std::pair<std::string, Cell>> figures = {});
  bool empty() const { return all_.empty(); }

  /// Returns the block as text, in lines of at most `width` characters; empty if there are no assumptions.
  std::string text(std::size_t width = kWidth) const;
  /// Returns the block as text, limited to the terminal's width if standard output is a terminal.
  std::string terminal_text() const;
  /// Returns the block as a section of an HTML page.
  std::string html() const;
  /// Returns a JSON object that maps each topic to an array of objects with "text" and the figures.
  nlohmann::ordered_json json() const;

 private:
  static constexpr std::size_t kWidth = 118;

  std::vector<Assumption> all_;
};

/// Adds the number of samples, how many are truncated and by how much, and the assumptions about their data.
/// `longest` is the length at which samples are truncated; 0: not truncated, or unknown.
void assume_data(AssumptionBlock& block, const DataOrigin& data, std::int64_t longest);

/// Adds how the figures of the named cluster were obtained, or that a profile was measured.
/// @throws Error (input) for a cluster that is not found
void assume_preset(AssumptionBlock& block, const std::string& cluster,
                   const std::optional<Origin>& profile = {});

/// Adds how the links in use (`taken`) differ from the links of the named cluster, and what is unusual about
/// them.
void assume_links(AssumptionBlock& block, const std::string& cluster, const ClusterSpec& taken);

/// Adds the heads that a plan pads. Adds nothing if the plan's tp divides all heads. `row` names the plan if
/// there are several plans.
void assume_heads(AssumptionBlock& block, const Plan& plan, const ModelSpec& model,
                  const std::string& row = "");

/// Adds the meaning of the mark kUnconfirmed (experiments/studies/planning.hpp), if one of the plans has the
/// mark.
void assume_layouts(AssumptionBlock& block, const std::vector<const Plan*>& plans);

/// If a pipeline order has so few microbatches that it equals a different order, returns a text that says so;
/// else nullopt.
std::string as_another_order(OrderKind order, int ranks, int microbatches);

/// Adds as_another_order() for each plan.
void assume_orders(AssumptionBlock& block, const std::vector<const Plan*>& plans);

/// Adds which settings of a plan the user fixed, which the planner chose, and which are defaults.
/// `chooses_parts` says whether the planner chooses order, recomputation, placement and gradient buckets if
/// no option fixes them.
void assume_choices(AssumptionBlock& block, const Plan& plan, const SearchOptions& search,
                    bool chooses_parts);

/// Adds the number of batches and the seed of a result, and the fraction of the data set in these batches.
/// `all` is the number of samples in the data set; 0: unknown.
void assume_seed(AssumptionBlock& block, std::uint64_t seed, std::size_t iterations, int gbs, std::size_t all,
                 const std::string& more);

}  // namespace dflop
