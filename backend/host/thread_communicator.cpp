#include "backend/host/thread_communicator.hpp"

#include <exception>
#include <utility>

#include "backend/call_checks.hpp"

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

void ThreadCommunicator::all_reduce(void* data, std::size_t count, Element element, const RankGroup& group,
                                    DeviceStream& stream, const std::string& what) {
  collective({CollectiveKind::all_reduce, count, element, what}, group, {data, data, {}, {}}, stream);
}

void ThreadCommunicator::all_gather(void* all, const void* one, std::size_t count, Element element,
                                    const RankGroup& group, DeviceStream& stream, const std::string& what) {
  collective({CollectiveKind::all_gather, count, element, what}, group, {one, all, {}, {}}, stream);
}

void ThreadCommunicator::reduce_scatter(void* one, const void* all, std::size_t count, Element element,
                                        const RankGroup& group, DeviceStream& stream,
                                        const std::string& what) {
  collective({CollectiveKind::reduce_scatter, count, element, what}, group, {all, one, {}, {}}, stream);
}

Nanoseconds ThreadCommunicator::last_arrival() const {
  return arrival_();
}

void ThreadCommunicator::collective(const HostCollectiveCall& call, const RankGroup& group, HostPart part,
                                    DeviceStream& stream) {
  const std::size_t place = place_in(group, *this, call.what);
  const bool paused = run_->pause_turn(rank_);
  come(part, stream);
  const std::shared_ptr<HostCollective> collective = run_->enter(group, place, call, std::move(part));
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
