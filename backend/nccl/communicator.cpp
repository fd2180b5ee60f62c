#include "backend/nccl/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/communicator.hpp"
#include "backend/nccl/comms.hpp"
#include "backend/nccl/route.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

ncclDataType_t type_of(Element element) {
  switch (element) {
    case Element::f32:
      return ncclFloat32;
    case Element::f64:
      return ncclFloat64;
    case Element::bf16:
      return ncclBfloat16;
  }
  return ncclFloat32;
}

std::string joined(const RankGroup& group) {
  std::string ranks;
  for (const std::int32_t rank : group.ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return ranks;
}

using SharedEvent = std::shared_ptr<DeviceEvent>;

/// PendingWork has the receives and collectives that the device has not come past, for the thread that
/// watches over them.
class PendingWork {
 public:
  explicit PendingWork(const NcclSeam& seam) : seam_(seam) {}

  void add(std::string what, SharedEvent come, SharedEvent done) {
    const std::lock_guard lock(mutex_);
    while (!work_.empty() && seam_.reached(*work_.front().done)) work_.pop_front();
    work_.push_back({std::move(what), std::move(come), std::move(done), {}});
  }

  /// Returns the first work that the device is held up by; the time begins when that is first seen.
  std::optional<RankWait> waits_for() {
    const std::lock_guard lock(mutex_);
    for (Work& work : work_) {
      if (seam_.reached(*work.done)) continue;
      if (!seam_.reached(*work.come)) return std::nullopt;  // busy with what was entered before
      if (!work.since) work.since = host_time();
      return RankWait{work.what, *work.since};
    }
    return std::nullopt;
  }

  bool all_done() {
    const std::lock_guard lock(mutex_);
    return std::all_of(work_.begin(), work_.end(), [&](const Work& w) { return seam_.reached(*w.done); });
  }

 private:
  struct Work {
    std::string what;
    SharedEvent come;
    SharedEvent done;
    std::optional<Nanoseconds> since;
  };
  const NcclSeam& seam_;
  std::mutex mutex_;
  std::deque<Work> work_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclTable& table, Rendezvous& rendezvous, NcclSeam seam)
      : table_(table),
        rendezvous_(rendezvous),
        seam_(std::move(seam)),
        memory_(seam_),
        comms_(table, rendezvous),
        pending_(seam_) {
    rendezvous_.watch([this] { return RankState{pending_.waits_for(), comms_.failure()}; });
    rendezvous_.on_end([this] { comms_.abort_all(); });
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override;

  int rank() const override { return rendezvous_.rank(); }
  int ranks() const override { return rendezvous_.ranks(); }

  void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
            const std::string& what) override;
  void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
               const std::string& what) override;
  void connect(const std::vector<RankRoute>& routes) override;

  void all_reduce(void* data, std::size_t count, Element element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) override {
    collective("all-reduce of " + what, group, stream, [&](ncclComm_t comm, cudaStream_t native) {
      return table_.all_reduce(data, data, count, type_of(element), ncclSum, comm, native);
    });
  }
  void all_gather(void* all, const void* one, std::size_t count, Element element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) override {
    collective("all-gather of " + what, group, stream, [&](ncclComm_t comm, cudaStream_t native) {
      return table_.all_gather(one, all, count, type_of(element), comm, native);
    });
  }
  void reduce_scatter(void* one, const void* all, std::size_t count, Element element, const RankGroup& group,
                      DeviceStream& stream, const std::string& what) override {
    collective("reduce-scatter of " + what, group, stream, [&](ncclComm_t comm, cudaStream_t native) {
      return table_.reduce_scatter(all, one, count, type_of(element), ncclSum, comm, native);
    });
  }

  Nanoseconds last_arrival() const override { return arrival()(); }
  Arrival arrival() const override;
  void abort(const std::string& reason) override { rendezvous_.abort(reason); }

 private:
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  void collective(const std::string& what, const RankGroup& group, DeviceStream& stream, const Call& call);
  NcclRoute& route(const RankRoute& route);
  ncclComm_t comm_of(const RankGroup& group, std::size_t place);
  SharedEvent recorded(DeviceStream& stream);
  bool all_done();

  const NcclTable& table_;
  Rendezvous& rendezvous_;
  const NcclSeam seam_;
  NcclMemory memory_;
  NcclComms comms_;
  PendingWork pending_;
  std::map<RankRoute, NcclRoute> routes_;
  std::map<std::vector<std::int32_t>, ncclComm_t> groups_;
  SharedEvent last_;  ///< null before the first receive or collective
  std::string last_what_;
};

NcclCommunicator::~NcclCommunicator() {
  const Nanoseconds since = host_time();
  try {
    while (!all_done() && host_time() - since < to_nanoseconds(rendezvous_.timeout())) {
      rendezvous_.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception&) {  // the run has ended: nothing will be received any more
  }
  rendezvous_.leave();
  rendezvous_.watch(nullptr);
  rendezvous_.on_end(nullptr);
  comms_.abort_all();
}

bool NcclCommunicator::all_done() {
  return pending_.all_done() && std::all_of(routes_.begin(), routes_.end(),
                                            [](const auto& entry) { return entry.second.all_sent(); });
}

SharedEvent NcclCommunicator::recorded(DeviceStream& stream) {
  SharedEvent event = memory_.make_event();
  stream.record(*event);
  return event;
}

NcclRoute& NcclCommunicator::route(const RankRoute& route) {
  const auto found = routes_.find(route);
  if (found != routes_.end()) return found->second;
  return routes_.try_emplace(route, NcclParts{table_, comms_, memory_, seam_}, route, route.source == rank())
      .first->second;
}

void NcclCommunicator::send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
                            const std::string& what) {
  require_peer(*this, peer, "sends " + what + " to");
  rendezvous_.check();
  const std::string wait = "a route for " + what + " to rank " + std::to_string(peer);
  const Rendezvous::Waiting waiting(rendezvous_, wait);
  route({rank(), peer}).send(data, bytes, stream, "sending " + what + " to rank " + std::to_string(peer));
}

void NcclCommunicator::receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                               const std::string& what) {
  require_peer(*this, peer, "receives " + what + " from");
  rendezvous_.check();
  const std::string wait = what + " from rank " + std::to_string(peer);
  const Rendezvous::Waiting waiting(rendezvous_, wait);
  SharedEvent come = recorded(stream);
  last_ = route({peer, rank()}).receive(data, bytes, stream, *come, "receiving " + wait);
  last_what_ = wait;
  pending_.add(wait, std::move(come), last_);
}

/// NCCL connects two ranks when both first use a communicator, so each route is used here, by an empty
/// message. All ranks go through the new routes in one order; of those that are not connected yet the first
/// can be, as neither of its ends waits for another.
void NcclCommunicator::connect(const std::vector<RankRoute>& routes) {
  const std::unique_ptr<DeviceStream> stream = seam_.new_device()->make_stream();
  for (const RankRoute& r : routes) {
    if ((r.source != rank() && r.destination != rank()) || routes_.count(r) > 0) continue;
    if (r.source == rank()) {
      send(nullptr, 0, r.destination, *stream, "a first message");
    } else {
      receive(nullptr, 0, r.source, *stream, "a first message");
      last_arrival();
    }
  }
}

/// The ranks of a group come to its first collective together, and so to the making of its communicator.
ncclComm_t NcclCommunicator::comm_of(const RankGroup& group, std::size_t place) {
  ncclComm_t& comm = groups_[group.ranks];
  if (comm == nullptr) comm = comms_.make(group.ranks, place, "a group of ranks " + joined(group), 0);
  return comm;
}

void NcclCommunicator::collective(const std::string& what, const RankGroup& group, DeviceStream& stream,
                                  const Call& call) {
  const std::size_t place = place_in(group, *this, what);
  rendezvous_.check();
  const std::string wait = what + " with ranks " + joined(group);
  const Rendezvous::Waiting waiting(rendezvous_, wait);
  const ncclComm_t comm = comm_of(group, place);
  last_ = recorded(stream);
  last_what_ = wait;
  comms_.enter(comm, what, [&] { return call(comm, seam_.native_stream(stream)); });
  pending_.add(wait, last_, recorded(stream));
}

/// Returns the last arrival, to be asked for while the communicator is there.
Arrival NcclCommunicator::arrival() const {
  return [&rendezvous = rendezvous_, event = last_, what = last_what_] {
    rendezvous.check();
    if (event == nullptr) return Nanoseconds{0};
    const Rendezvous::Waiting waiting(rendezvous, what);
    const Nanoseconds time = event->time();
    rendezvous.check();  // which ends what the device waits for, too
    return time;
  };
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const NcclTable& table, Rendezvous& rendezvous,
                                                     NcclSeam seam) {
  return std::make_unique<NcclCommunicator>(table, rendezvous, std::move(seam));
}

}  // namespace dflop
