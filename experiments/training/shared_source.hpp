// One schedule serves all processes of a run: the leading one makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/world.hpp"
#include "core/program.hpp"
#include "core/scheduler.hpp"
#include "experiments/studies/batch_stream.hpp"

namespace dflop {

/// A SharedSource gives in all processes what `source` gives in the leading one: a scheduler with a time
/// limit does not find the same twice. Events, bounds and times stay with the leading process.
class SharedSource final : public AssignmentSource {
 public:
  /// Shares a source. `source` is null in all processes but the leading one. `batches` are the same in all,
  /// and begin with that of iteration 0.
  SharedSource(World& world, AssignmentSource* source, BatchStream batches)
      : world_(world), source_(source), batches_(std::move(batches)) {}

  std::optional<ScheduledBatch> next() override;

 private:
  World& world_;
  AssignmentSource* source_;
  BatchStream batches_;
};

/// Checks that processes have the same program. Each makes that of a schedule for itself, in floating point
/// and from data of their own; one that came to another would wait for messages that nobody sends. All
/// processes call it.
/// @throws Error (input) in a process whose program is not the leading one's.
void require_same_program(World& world, const Program& program);

}  // namespace dflop
