#include "backend/thread_communicator.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "core/error.hpp"

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
  check_peer("sends " + what + " to", peer);
  HostMessage message = pack(data, bytes, stream);
  message.what = what;
  run_->post(rank_, peer, std::move(message));
}

void ThreadCommunicator::receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                                 const std::string& what) {
  check_peer("receives " + what + " from", peer);
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
  const std::size_t place = place_in(group, call.what);
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

void ThreadCommunicator::fail(const std::string& does, const std::string& why) const {
  throw Error(ErrorKind::internal, "rank " + std::to_string(rank_) + " " + does + ": " + why);
}

void ThreadCommunicator::check_peer(const std::string& does, int peer) const {
  const std::string call = does + " rank " + std::to_string(peer);
  if (peer == rank_) fail(call, "a rank sends nothing to itself; copy on a stream");
  if (!is_rank(peer)) fail(call, "the run has ranks 0 to " + std::to_string(ranks() - 1));
}

std::size_t ThreadCommunicator::place_in(const RankGroup& group, const std::string& what) const {
  std::vector<std::int32_t> sorted = group.ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const auto own = std::find(group.ranks.begin(), group.ranks.end(), rank_);
  if (own == group.ranks.end() || !distinct || !is_rank(sorted.front()) || !is_rank(sorted.back())) {
    fail("enters a collective of " + what,
         "its group must have this rank, and each rank once, of 0 to " + std::to_string(ranks() - 1));
  }
  return static_cast<std::size_t>(own - group.ranks.begin());
}

}  // namespace dflop
