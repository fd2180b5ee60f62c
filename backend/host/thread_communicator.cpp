#include "backend/host/thread_communicator.hpp"

#include <algorithm>
#include <exception>
#include <optional>
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

/// Returns the end of a rank's slice of the values that all ranks add up. All slices except the last consist
/// of whole 16-byte vectors, as GPUs read them.
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

/// A Started ends its rank's share if the rank fails before finish(), because the others wait for all shares.
class ThreadCommunicator::Started final : public StartedCollective {
 public:
  Started(std::shared_ptr<HostRun> run, std::shared_ptr<HostCollective> collective, std::size_t place)
      : run_(std::move(run)), collective_(std::move(collective)), place_(place) {}
  ~Started() override {
    if (owes_share) run_->end_share(*collective_);
  }
  Started(const Started&) = delete;

  HostCollective& collective() { return *collective_; }
  std::size_t place() const { return place_; }

  bool owes_share = false;

 private:
  std::shared_ptr<HostRun> run_;
  std::shared_ptr<HostCollective> collective_;
  std::size_t place_;
};

std::unique_ptr<StartedCollective> ThreadCommunicator::start(const CollectiveCall& call, const void* input,
                                                             void* output, const RankGroup& group,
                                                             DeviceStream& stream) {
  const std::size_t place = place_in(group, *this, call.what);
  HostPart part{input, output, {}, {}};
  come(part, stream);
  auto started = std::make_unique<Started>(run_, run_->come(group, place, call, part), place);
  started->owes_share = call.kind != CollectiveKind::all_reduce || !takes_any_share();
  return started;
}

/// Runs this rank's share, or all shares that no rank has taken.
void ThreadCommunicator::do_shares(Started& started, DeviceStream& stream) {
  HostCollective& collective = started.collective();
  std::exception_ptr failure;  // the others wait for this rank even if its share fails
  const auto do_one = [&](std::size_t share) {
    try {
      do_share(collective, share, stream);
    } catch (...) {
      failure = std::current_exception();
    }
    started.owes_share = false;
    run_->end_share(collective);
  };
  if (started.owes_share) {
    do_one(started.place());
  } else {
    while (const std::optional<std::size_t> share = run_->take_share(collective)) do_one(*share);
  }
  if (failure) {
    run_->leave(rank_, collective);
    std::rethrow_exception(failure);
  }
}

void ThreadCommunicator::finish(StartedCollective& started, DeviceStream& stream) {
  auto& own = static_cast<Started&>(started);
  const bool paused = run_->pause_turn(rank_);
  run_->wait_for_all(rank_, own.collective());
  do_shares(own, stream);
  run_->leave(rank_, own.collective());
  if (paused) run_->resume_turn(rank_);
  arrival_ = arrival_of(own.collective());
  go_on(own.collective(), stream);
}

void ThreadCommunicator::collective(const CollectiveCall& call, const void* input, void* output,
                                    const RankGroup& group, DeviceStream& stream) {
  finish(*start(call, input, output, group, stream), stream);
}

}  // namespace dflop
