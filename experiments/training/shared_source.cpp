#include "experiments/training/shared_source.hpp"

#include <type_traits>

#include "core/error.hpp"
#include "core/support/bytes.hpp"
#include "core/support/hash.hpp"

namespace dflop {
namespace {

std::string to_bytes(const std::optional<ScheduledBatch>& batch) {
  ByteWriter writer;
  if (!batch) return writer.take();
  writer.add(batch->iteration);
  writer.add(batch->result.status);
  writer.add(batch->result.reason);
  writer.add(batch->result.assignment.microbatches);
  writer.add(batch->result.assignment.dp);
  writer.add(batch->result.assignment.bin);
  return writer.take();
}

/// Returns a fingerprint of what each group does, with whom and with how much.
std::uint64_t hash_of(const Program& program) {
  static_assert(std::has_unique_object_representations_v<Work>);  // no bytes but those of its values
  ByteWriter writer;
  for (const Instruction& i : program.instructions) {
    writer.add(i.op);
    writer.add(i.stage);
    writer.add(i.microbatch);
    writer.add(i.index);
  }
  for (const Work& work : program.works) writer.add(work);
  for (const Message& message : program.messages) {
    writer.add(message.source);
    writer.add(message.destination);
    writer.add(message.bytes.count);
  }
  for (const Collective& collective : program.collectives) writer.add(collective.groups);
  return stable_hash(writer.take());
}

}  // namespace

std::optional<ScheduledBatch> SharedSource::next() {
  if (source_ != nullptr) {
    std::optional<ScheduledBatch> batch = source_->next();
    world_.broadcast(to_bytes(batch));
    return batch;
  }
  const std::string bytes = world_.broadcast("");
  if (bytes.empty()) return std::nullopt;
  ByteReader reader(bytes);
  ScheduledBatch batch;
  batch.iteration = reader.get<std::uint64_t>();
  batch.samples = std::make_shared<const Batch>(batches_.next());
  batch.result.status = reader.get<ScheduleStatus>();
  batch.result.reason = reader.get_text();
  batch.result.assignment.microbatches = reader.get<int>();
  batch.result.assignment.dp = reader.get<int>();
  batch.result.assignment.bin = reader.get_all<std::int32_t>();
  return batch;
}

void require_same_program(World& world, const Program& program) {
  if (world.local_ranks().size() == static_cast<std::size_t>(world.ranks())) return;
  const std::string own = std::to_string(hash_of(program));
  if (world.broadcast(own) == own) return;
  throw Error(ErrorKind::input, "rank " + std::to_string(world.local_ranks().front()) +
                                    " has made another program of the step's schedule than rank 0; the ranks "
                                    "of a run need the same options, data and processors");
}

}  // namespace dflop
