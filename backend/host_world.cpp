#include "backend/host_world.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "backend/host_run.hpp"
#include "backend/host_sums.hpp"
#include "core/error.hpp"

namespace dflop {
namespace {

const std::byte* offset(const void* data, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
std::byte* offset(void* data, std::size_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}

/// One rank's share of a collective's work, all of whose ranks have come. `place` is its own.
void reduce_slice(const HostCollective& collective, std::size_t place) {
  HostSum sum{collective.call.element, {}, {}};
  for (const auto& part : collective.parts) {
    sum.inputs.push_back(part->input);
    sum.outputs.push_back(part->output);
  }
  const std::size_t count = collective.call.count;
  const std::size_t ranks = collective.parts.size();
  add_up(sum, count * place / ranks, count * (place + 1) / ranks);
}

void gather_parts(const HostCollective& collective, std::size_t place) {
  const std::size_t bytes = collective.call.count * bytes_of(collective.call.element);
  if (bytes == 0) return;
  for (std::size_t r = 0; r < collective.parts.size(); ++r) {
    std::byte* to = offset(collective.parts[place]->output, r * bytes);
    const void* from = collective.parts[r]->input;
    if (to != from) std::memcpy(to, from, bytes);
  }
}

void reduce_part(const HostCollective& collective, std::size_t place) {
  const std::size_t bytes = collective.call.count * bytes_of(collective.call.element);
  HostSum sum{collective.call.element, {}, {collective.parts[place]->output}};
  for (const auto& part : collective.parts) sum.inputs.push_back(offset(part->input, place * bytes));
  add_up(sum, 0, collective.call.count);
}

/// Not to be left early: the other ranks wait for this one's share.
void do_share(const HostCollective& collective, std::size_t place) noexcept {
  switch (collective.call.kind) {
    case CollectiveKind::all_reduce:
      return reduce_slice(collective, place);
    case CollectiveKind::all_gather:
      return gather_parts(collective, place);
    case CollectiveKind::reduce_scatter:
      return reduce_part(collective, place);
  }
}

/// Streams are passed over: those of the host have come to their end whenever a call is made.
class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::shared_ptr<HostRun> run, int rank) : run_(std::move(run)), rank_(rank) {
    run_->begin(rank);
  }
  HostCommunicator(const HostCommunicator&) = delete;
  HostCommunicator& operator=(const HostCommunicator&) = delete;
  ~HostCommunicator() override { run_->end(rank_); }

  int rank() const override { return rank_; }
  int ranks() const override { return run_->ranks(); }

  void send(const void* data, std::size_t bytes, int peer, DeviceStream&, const std::string& what) override {
    check_peer("sends " + what + " to", peer);
    const auto* begin = static_cast<const std::byte*>(data);
    run_->post(rank_, peer, {std::vector<std::byte>(begin, begin + bytes), what, {}});
  }

  void receive(void* data, std::size_t bytes, int peer, DeviceStream&, const std::string& what) override {
    check_peer("receives " + what + " from", peer);
    const HostMessage message = run_->take(peer, rank_, bytes, what);
    if (bytes > 0) std::memcpy(data, message.data.data(), bytes);
    last_arrival_ = message.sent;
  }

  void all_reduce(void* data, std::size_t count, Element element, const RankGroup& group, DeviceStream&,
                  const std::string& what) override {
    collective({CollectiveKind::all_reduce, count, element, what}, group, {data, data});
  }
  void all_gather(void* all, const void* one, std::size_t count, Element element, const RankGroup& group,
                  DeviceStream&, const std::string& what) override {
    collective({CollectiveKind::all_gather, count, element, what}, group, {one, all});
  }
  void reduce_scatter(void* one, const void* all, std::size_t count, Element element, const RankGroup& group,
                      DeviceStream&, const std::string& what) override {
    collective({CollectiveKind::reduce_scatter, count, element, what}, group, {all, one});
  }

  Nanoseconds last_arrival() const override { return last_arrival_; }

  void abort(const std::string& reason) override { run_->abort(rank_, reason); }

 private:
  void collective(const HostCollectiveCall& call, const RankGroup& group, HostPart part) {
    const std::size_t place = place_in(group, call.what);
    const bool paused = run_->pause_turn(rank_);
    const std::shared_ptr<HostCollective> collective = run_->enter(group, place, call, part);
    do_share(*collective, place);
    last_arrival_ = collective->all_there;
    run_->leave(rank_, *collective);
    if (paused) run_->resume_turn(rank_);
  }

  bool is_rank(int rank) const { return rank >= 0 && rank < ranks(); }

  [[noreturn]] void fail(const std::string& does, const std::string& why) const {
    throw Error(ErrorKind::internal, "rank " + std::to_string(rank_) + " " + does + ": " + why);
  }

  void check_peer(const std::string& does, int peer) const {
    const std::string call = does + " rank " + std::to_string(peer);
    if (peer == rank_) fail(call, "a rank sends nothing to itself; copy on a stream");
    if (!is_rank(peer)) fail(call, "the run has ranks 0 to " + std::to_string(ranks() - 1));
  }

  std::size_t place_in(const RankGroup& group, const std::string& what) const {
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

  std::shared_ptr<HostRun> run_;
  int rank_;
  Nanoseconds last_arrival_{};
};

class HostTurn final : public ComputeTurn {
 public:
  HostTurn(std::shared_ptr<HostRun> run, int rank) : run_(std::move(run)), rank_(rank) {}
  Nanoseconds begin() override { return run_->begin_turn(rank_); }
  void end() override { run_->end_turn(rank_); }

 private:
  std::shared_ptr<HostRun> run_;
  int rank_;
};

Nanoseconds checked(Seconds timeout) {
  constexpr Seconds year{365.0 * 24 * 3600};
  if (timeout > Seconds{0} && timeout <= year) return to_nanoseconds(timeout);
  throw Error(ErrorKind::internal, "a run's timeout is positive and at most a year, not " +
                                       std::to_string(timeout.count()) + " s");
}

}  // namespace

HostWorld::HostWorld(int ranks, Seconds timeout, int cores) {
  if (ranks < 1) throw Error(ErrorKind::internal, "a run has ranks, not " + std::to_string(ranks));
  if (cores < 0) throw Error(ErrorKind::internal, "ranks compute on cores, not on " + std::to_string(cores));
  run_ = std::make_shared<HostRun>(ranks, checked(timeout), cores);
}

std::unique_ptr<Communicator> HostWorld::communicator(int rank) {
  if (rank < 0 || rank >= run_->ranks()) {
    throw Error(ErrorKind::internal,
                "rank " + std::to_string(rank) + " is not of 0 to " + std::to_string(run_->ranks() - 1));
  }
  return std::make_unique<HostCommunicator>(run_, rank);
}

std::unique_ptr<ComputeTurn> HostWorld::turn(int rank, const RankGroup& tp) {
  if (!run_->join_turns(rank, tp)) return nullptr;
  return std::make_unique<HostTurn>(run_, rank);
}

}  // namespace dflop
