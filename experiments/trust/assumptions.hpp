// Assumptions are what a result rests on and what was chosen without being asked for. Every command that
// plans, compares or simulates says them in one block.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/study.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// An Assumption is one sentence, with the figures in it for machines.
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

  /// Returns the block for people, lines of at most `width` letters; nothing where there is none.
  std::string text(std::size_t width = 118) const;
  /// Returns it as a section of a page.
  std::string html() const;
  /// Returns an object: what it is about to an array of objects with "text" and the figures.
  nlohmann::ordered_json json() const;

 private:
  std::vector<Assumption> all_;
};

/// Says how many samples there are, how many of them are cut and by how much, and what was assumed for them.
/// `longest` is where samples are cut; 0: nowhere, or unknown.
void assume_data(AssumptionBlock& block, const DataOrigin& data, std::int64_t longest);

/// Says what the figures of a cluster, as it was named, were held against; of a profile that it was measured.
/// @throws Error (input) for a cluster that is not found
void assume_preset(AssumptionBlock& block, const std::string& cluster,
                   const std::optional<Origin>& profile = {});

/// Says where links are not those of the named cluster what they were taken for, and what is odd about them.
void assume_links(AssumptionBlock& block, const std::string& cluster, const ClusterSpec& taken);

/// Says what a plan pads; nothing where its tp divides all heads. `row` names it where there are several.
void assume_heads(AssumptionBlock& block, const Plan& plan, const ModelSpec& model,
                  const std::string& row = "");

/// Says what kUnconfirmed (experiments/studies/study.hpp) means, where one of the plans has it.
void assume_layouts(AssumptionBlock& block, const std::vector<const Plan*>& plans);

/// Returns that an order has too few microbatches for what its name promises, and as what it runs; nothing
/// where it runs as itself.
std::string as_another_order(OrderKind order, int ranks, int microbatches);

/// Says so of the plans' orders.
void assume_orders(AssumptionBlock& block, const std::vector<const Plan*>& plans);

/// Says what was asked of a plan, what the planner chose and what is as usual. `chooses_parts`: the planner
/// chooses order, recomputation, placement and gradient buckets where no option fixes them.
void assume_choices(AssumptionBlock& block, const Plan& plan, const SearchOptions& search,
                    bool chooses_parts);

/// Says how many batches of which seed a result is of, and which part of `all` samples they are; 0: unknown.
void assume_seed(AssumptionBlock& block, std::uint64_t seed, std::size_t iterations, int gbs, std::size_t all,
                 const std::string& more);

}  // namespace dflop
