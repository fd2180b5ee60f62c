// MakespanBounds are proven lower bounds on the makespan of a pipeline over all assignments of a batch.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/solution.hpp"
#include "solver/makespan/paths.hpp"

namespace dflop {

/// A MakespanBound is a makespan that no assignment goes below.
struct MakespanBound {
  double seconds = 0;
  BoundKind kind = BoundKind::none;
};

/// ProgramLimits say how large a linear program is solved, and for how long.
struct ProgramLimits {
  std::size_t shapes = 3;    ///< that items are mixtures of, at least 2
  int iterations = 50'000;   ///< of the simplex method, 10 to 60 us each
  std::size_t steps = 4096;  ///< of a larger pipeline nothing is solved, as that takes many seconds
};

/// MakespanBounds are bounds for one pipeline and the items of any batch: they need no items of the same
/// number or size, as a path through the steps is one for every batch. Features must not be negative, nor
/// durations fall with loads. They are safe to use from several threads at once.
class MakespanBounds {
 public:
  /// `best` is linear_program, or simple for a pipeline whose order is but one of those that durations may
  /// lead to: then only what holds in every order is used; or none.
  explicit MakespanBounds(LoadPipeline pipeline, BoundKind best = BoundKind::linear_program);

  /// Solves the linear program over fractional items for this batch, and keeps its dual solution for bound():
  /// a few milliseconds for tens of microbatches. Does nothing where `best` is not linear_program.
  void prepare(const Features& features, const ProgramLimits& limits = {});

  /// Returns the largest bound that is known for these items: work, fill and drain of each rank, the way of
  /// the largest items, and the dual solutions of all prepared batches. It depends on what was prepared and
  /// on nothing else.
  MakespanBound bound(const Features& features) const;

  /// Returns the dual solutions of all prepared batches, as paths.
  std::vector<PathFlow> flows() const;

  /// Adds paths to bound(): those of another pipeline with as many ranks and steps are as valid, though not
  /// as good if its durations are others. Does nothing where there are more or fewer, or where `best` is not
  /// linear_program.
  void use(const PathFlow& flow);

  const LoadPipeline& pipeline() const { return pipeline_; }

 private:
  /// Returns what an item's own microbatch takes from its first step to its last, at least.
  double way_of(const Features& features, std::size_t item) const;
  double largest_way(const Features& features) const;

  LoadPipeline pipeline_;
  BoundKind best_;
  MeanPipeline mean_;
  std::vector<PathBound> ranks_;           ///< of each rank and of their mean
  std::vector<std::int32_t> same_before_;  ///< per step, the one before of its rank and microbatch; -1: none
  mutable std::mutex mutex_;
  std::vector<PathFlow> flows_;
  std::vector<std::shared_ptr<const PathBound>> duals_;  ///< of the flows
};

}  // namespace dflop
