#include "backend/host/thread_communicator.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/support/bytes.hpp"

namespace dflop {
namespace {

Arrival at(Nanoseconds time) {
  return [time] { return time; };
}

Arrival arrival_of(const HostMessage& message) {
  if (message.ready == nullptr) return at(message.posted);
  return [ready = message.ready] { return ready->time(); };
}

Arrival arrival_of(const HostCollective& collective) {
  std::vector<std::shared_ptr<DeviceEvent>> come;
  for (const auto& part : collective.parts) {
    if (part->come == nullptr) return at(collective.all_there);
    come.push_back(part->come);
  }
  return [come] {
    Nanoseconds last{0};
    for (const auto& event : come) last = std::max(last, event->time());
    return last;
  };
}

/// Returns the end of a rank's slice of values that all ranks add up: all slices but the last have whole
/// vectors of 16 bytes, as GPUs read them.
std::size_t slice_end(std::size_t count, std::size_t place, std::size_t ranks) {
  constexpr std::size_t kWhole = 8;  // values of bf16 in 16 bytes
  return place + 1 == ranks ? count : count / ranks * (place + 1) / kWhole * kWhole;
}

}  // namespace

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<HostRun> run, int rank)
    : run_(std::move(run)), rank_(rank), arrival_(at(Nanoseconds{0})) {
  run_->begin(rank);
}

ThreadCommunicator::~ThreadCommunicator() {
  run_->end(rank_);
}

void ThreadCommunicator::send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
                              const std::string& what) {
  require_peer(*this, peer, "sends " + what + " to");
  HostMessage message = pack(data, bytes, stream);
  message.what = what;
  run_->post(rank_, peer, std::move(message));
}

void ThreadCommunicator::receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                                 const std::string& what) {
  require_peer(*this, peer, "receives " + what + " from");
  HostMessage message = run_->take(peer, rank_, bytes, what);
  arrival_ = arrival_of(message);
  unpack(data, std::move(message), stream);
}

void ThreadCommunicator::do_share(const HostCollective& collective, std::size_t place, DeviceStream& stream) {
  const std::size_t count = collective.call.count;
  const std::size_t ranks = collective.parts.size();
  const std::size_t bytes = count * bytes_of(collective.call.element);
  const HostPart& own = *collective.parts[place];
  HostSum sum{collective.call.element, {}, {}};
  switch (collective.call.kind) {
    case CollectiveKind::all_reduce:
      for (const auto& part : collective.parts) {
        sum.inputs.push_back(part->input);
        sum.outputs.push_back(part->output);
      }
      return add_up(sum, place == 0 ? 0 : slice_end(count, place - 1, ranks), slice_end(count, place, ranks),
                    stream);
    case CollectiveKind::all_gather:
      for (std::size_t r = 0; bytes > 0 && r < ranks; ++r) {
        std::byte* to = offset(own.output, r * bytes);
        if (to != collective.parts[r]->input) copy(to, collective.parts[r]->input, bytes, stream);
      }
      return;
    case CollectiveKind::reduce_scatter:
      for (const auto& part : collective.parts) sum.inputs.push_back(offset(part->input, place * bytes));
      sum.outputs = {own.output};
      return add_up(sum, 0, count, stream);
  }
}

void ThreadCommunicator::collective(const CollectiveCall& call, const void* input, void* output,
                                    const RankGroup& group, DeviceStream& stream) {
  const std::size_t place = place_in(group, *this, call.what);
  const bool paused = run_->pause_turn(rank_);
  HostPart part{input, output, {}, {}};
  come(part, stream);
  const std::shared_ptr<HostCollective> collective = run_->enter(group, place, call, part);
  std::exception_ptr failure;  // the others wait for this rank whatever becomes of its share
  try {
    do_share(*collective, place, stream);
  } catch (...) {
    failure = std::current_exception();
  }
  run_->leave(rank_, *collective);
  if (paused) run_->resume_turn(rank_);
  if (failure) std::rethrow_exception(failure);
  arrival_ = arrival_of(*collective);
  finish(*collective, stream);
}

}  // namespace dflop
