#include "experiments/shared_source.hpp"

#include "backend/byte_text.hpp"

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
  batch.samples = {batches_, &batches_->at(first_ + batch.iteration)};
  batch.result.status = reader.get<ScheduleStatus>();
  batch.result.reason = reader.get_text();
  batch.result.assignment.microbatches = reader.get<int>();
  batch.result.assignment.dp = reader.get<int>();
  batch.result.assignment.bin = reader.get_all<std::int32_t>();
  return batch;
}

}  // namespace dflop
