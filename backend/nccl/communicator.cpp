#include "backend/nccl/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/support/clock.hpp"

namespace dflop {
namespace {

ncclDataType_t type_of(DType element) {
  switch (element) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
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

constexpr int kSource = 0;
constexpr int kDestination = 1;

/// Returns the number of bytes to send for a message: 1 for an empty one, because NCCL sends nothing for 0
/// bytes.
std::size_t on_the_way(std::size_t bytes) {
  return std::max<std::size_t>(bytes, 1);
}

/// NcclMemory allocates and frees memory in its own stream, which does nothing else, so it never waits.
class NcclMemory {
 public:
  explicit NcclMemory(const NcclSeam& seam) : device_(seam.new_device()), stream_(device_->make_stream()) {}

  /// Returns memory that is valid once `user` has passed this call. Free it only when no work uses it any
  /// more.
  std::unique_ptr<Buffer> take(std::size_t bytes, DeviceStream& user) {
    std::unique_ptr<Buffer> buffer = device_->allocate(bytes);
    const std::unique_ptr<DeviceEvent> taken = device_->make_event();
    stream_->record(*taken);
    user.wait(*taken);
    return buffer;
  }
  std::unique_ptr<DeviceEvent> make_event() { return device_->make_event(); }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
};

/// NcclParts are the objects that a route uses. All must outlive it.
struct NcclParts {
  const NcclTable& table;
  NcclComms& comms;
  NcclMemory& memory;
  const NcclSeam& seam;
};

/// An NcclRoute is this rank's end of a route, one direction between two ranks. It holds an NCCL
/// communicator, a stream, and copies of the messages in flight. For NCCL the source is rank 0 and the
/// destination rank 1.
class NcclRoute {
 public:
  /// Waits until the other end exists.
  NcclRoute(const NcclParts& parts, const RankRoute& route, bool is_source)
      : parts_(parts),
        comm_(parts.comms.make({route.source, route.destination}, is_source ? kSource : kDestination,
                               "the route from rank " + std::to_string(route.source) + " to rank " +
                                   std::to_string(route.destination),
                               kRouteCtas)),
        stream_(parts.seam.new_device()->make_stream()),
        nothing_(parts.memory.take(1, *stream_)) {}

  /// Sends. Returns when the copy and the send are in their streams; for the route's first operation, also
  /// only when the other end has entered its first one.
  void send(const void* data, std::size_t bytes, DeviceStream& stream, const std::string& what) {
    Copy& copy = copy_of(on_the_way(bytes), stream);
    if (bytes > 0) stream.copy(copy.buffer->data(), data, bytes);
    stream.record(*copy.copied);
    stream_->wait(*copy.copied);
    parts_.comms.enter(comm_, what, [&] {
      return parts_.table.send(copy.buffer->data(), on_the_way(bytes), ncclUint8, kDestination, comm_,
                               parts_.seam.native_stream(*stream_));
    });
    stream_->record(*copy.sent);
  }

  /// Posts a receive; the memory may be in use until `come`.
  void post(void* data, std::size_t bytes, DeviceEvent& come, const std::string& what) {
    stream_->wait(come);
    void* into = bytes > 0 ? data : nothing_->data();
    parts_.comms.enter(comm_, what, [&] {
      return parts_.table.recv(into, on_the_way(bytes), ncclUint8, kSource, comm_,
                               parts_.seam.native_stream(*stream_));
    });
    posted_.push_back({data, bytes, parts_.memory.make_event()});
    stream_->record(*posted_.back().there);
  }
  bool has_posted() const { return !posted_.empty(); }

  /// Makes `stream` wait for the first posted receive. The returned event marks its arrival.
  /// @throws Error (internal) if it was posted for other memory.
  SharedEvent take(const void* data, std::size_t bytes, DeviceStream& stream, const std::string& what) {
    const Posted posted = std::move(posted_.front());
    posted_.pop_front();
    if (posted.data != data || posted.bytes != bytes) {
      throw Error(ErrorKind::internal, what + ": the receive was posted for " + std::to_string(posted.bytes) +
                                           " bytes of other memory, expected those of the call, " +
                                           std::to_string(bytes));
    }
    stream.wait(*posted.there);
    return posted.there;
  }

  /// Returns whether all messages so far are sent.
  bool all_sent() const {
    return std::ranges::all_of(copies_, [&](const Copy& copy) { return is_sent(copy); });
  }

 private:
  /// A Copy holds a message until it is sent, and is then reused for later messages.
  struct Copy {
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<DeviceEvent> copied;
    std::unique_ptr<DeviceEvent> sent;
  };

  /// A Posted is a receive that is entered but not taken yet.
  struct Posted {
    const void* data;
    std::size_t bytes;
    SharedEvent there;
  };

  /// Returns a free copy or a new one. It does not wait for a copy to become free, because that would mean
  /// waiting for the receiver.
  Copy& copy_of(std::size_t bytes, DeviceStream& stream) {
    for (std::size_t i = 0; i < copies_.size() && is_sent(copies_[i]); ++i) {
      if (copies_[i].buffer->bytes() < bytes) continue;
      copies_.push_back(std::move(copies_[i]));
      copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
      return copies_.back();
    }
    while (!copies_.empty() && is_sent(copies_.front())) copies_.pop_front();  // all of these are too small
    copies_.push_back(
        {parts_.memory.take(bytes, stream), parts_.memory.make_event(), parts_.memory.make_event()});
    return copies_.back();
  }

  bool is_sent(const Copy& copy) const { return parts_.seam.reached(*copy.sent); }

  NcclParts parts_;
  ncclComm_t comm_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<Buffer> nothing_;  // receives empty messages, which are sent as one byte
  std::deque<Copy> copies_;
  std::deque<Posted> posted_;
};

/// PendingWork lists the receives and collectives that the device has not passed, for the thread that watches
/// them. It holds no lock while it queries the device, because a query may block until the device is idle.
class PendingWork {
 public:
  explicit PendingWork(const NcclSeam& seam) : seam_(seam) {}

  /// `beside` says that the rank's other work does not wait for this work.
  void add(std::string what, SharedEvent come, SharedEvent done, bool beside = false) {
    while (!work_.empty() && seam_.reached(*work_.front()->done)) {  // no other thread changes work_'s front
      const std::lock_guard lock(mutex_);
      work_.pop_front();
    }
    const std::lock_guard lock(mutex_);
    work_.push_back(
        std::make_shared<Work>(Work{std::move(what), std::move(come), std::move(done), beside, {}}));
  }

  /// Returns the first work for which the device waits. Work with `beside` is returned only if there is no
  /// other. The time counts from when this was first seen. Only one thread may call it.
  std::optional<RankWait> waits_for() {
    std::optional<RankWait> beside;
    for (const SharedWork& one : work()) {
      if (seam_.reached(*one->done)) continue;
      if (!seam_.reached(*one->come)) return beside;  // the device is busy with earlier work
      if (!one->since) one->since = host_time();
      const RankWait wait{one->what, *one->since};
      if (!one->beside) return wait;
      if (!beside) beside = wait;
    }
    return beside;
  }

  bool all_done() {
    return std::ranges::all_of(work(), [&](const SharedWork& one) { return seam_.reached(*one->done); });
  }

 private:
  struct Work {
    std::string what;
    SharedEvent come;
    SharedEvent done;
    bool beside = false;
    std::optional<Nanoseconds> since;  ///< used by the thread that calls waits_for()
  };
  using SharedWork = std::shared_ptr<Work>;

  std::deque<SharedWork> work() {
    const std::lock_guard lock(mutex_);
    return work_;
  }

  const NcclSeam& seam_;
  std::mutex mutex_;
  std::deque<SharedWork> work_;
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
  ~NcclCommunicator() override {
    const Nanoseconds since = host_time();
    const auto all_sent = [&] {
      return std::ranges::all_of(routes_, [](const auto& entry) { return entry.second.all_sent(); });
    };
    try {
      while (!(pending_.all_done() && all_sent()) &&
             host_time() - since < to_nanoseconds(rendezvous_.timeout())) {
        rendezvous_.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (const std::exception&) {  // the run has ended, so nothing will be received any more
    }
    rendezvous_.leave();
    rendezvous_.watch(nullptr);
    rendezvous_.on_end(nullptr);
    comms_.abort_all();
  }

  int rank() const override { return rendezvous_.rank(); }
  int ranks() const override { return rendezvous_.ranks(); }

  void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
            const std::string& what) override {
    require_peer(*this, peer, "sends " + what + " to");
    rendezvous_.check();
    const std::string wait = "a route for " + what + " to rank " + std::to_string(peer);
    const Rendezvous::Waiting waiting(rendezvous_, wait);
    route({rank(), peer}).send(data, bytes, stream, "sending " + what + " to rank " + std::to_string(peer));
  }

  void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
               const std::string& what) override {
    require_peer(*this, peer, "receives " + what + " from");
    rendezvous_.check();
    const std::string wait = what + " from rank " + std::to_string(peer);
    const Rendezvous::Waiting waiting(rendezvous_, wait);
    SharedEvent come = recorded(stream);
    NcclRoute& from = route({peer, rank()});
    if (!from.has_posted()) from.post(data, bytes, *come, "receiving " + wait);
    last_ = from.take(data, bytes, stream, wait);
    last_what_ = wait;
    pending_.add(wait, std::move(come), last_);
  }

  bool posts_receives() const override { return true; }
  void post_receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                    const std::string& what) override {
    require_peer(*this, peer, "receives " + what + " from");
    rendezvous_.check();
    const std::string wait = what + " from rank " + std::to_string(peer);
    const Rendezvous::Waiting waiting(rendezvous_, "a route for " + wait);
    route({peer, rank()}).post(data, bytes, *recorded(stream), "receiving " + wait);
  }

  /// NCCL connects two ranks when both first use a communicator, so each route is used here with an empty
  /// message. All ranks go through the new routes in the same order. There is no deadlock: neither end of the
  /// first unconnected route waits for another route.
  void connect(const std::vector<RankRoute>& routes) override {
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

  void collective(const CollectiveCall& call, const void* input, void* output, const RankGroup& group,
                  DeviceStream& stream) override {
    const std::string what = std::string(to_string(call.kind)) + " of " + call.what;
    const std::size_t place = place_in(group, *this, what);
    rendezvous_.check();
    const std::string wait = what + " with ranks " + joined(group);
    const Rendezvous::Waiting waiting(rendezvous_, wait);
    const ncclComm_t comm = comm_of(group, place);
    last_ = recorded(stream);
    last_what_ = wait;
    comms_.enter(comm, what, [&] { return enter(call, input, output, comm, seam_.native_stream(stream)); });
    pending_.add(wait, last_, recorded(stream), &stream == beside_.get());
  }

  /// The collective runs in a separate stream, which waits for the work that is in the caller's stream now.
  std::unique_ptr<StartedCollective> start(const CollectiveCall& call, const void* input, void* output,
                                           const RankGroup& group, DeviceStream& stream) override {
    if (beside_ == nullptr) beside_ = seam_.new_device()->make_stream();
    const SharedEvent come = recorded(stream);
    beside_->wait(*come);
    collective(call, input, output, group, *beside_);
    return std::make_unique<Started>(recorded(*beside_), come, last_what_);
  }

  void finish(StartedCollective& started, DeviceStream& stream) override {
    const auto& own = static_cast<Started&>(started);
    stream.wait(*own.done);
    last_ = own.come;
    last_what_ = own.what;
  }

  /// Returns the last arrival. Call the result only while the communicator exists.
  Arrival arrival() const override {
    return [&rendezvous = rendezvous_, event = last_, what = last_what_] {
      rendezvous.check();
      if (event == nullptr) return Nanoseconds{0};
      const Rendezvous::Waiting waiting(rendezvous, what);
      const Nanoseconds time = event->time();
      rendezvous.check();  // ends the work for which the device waits, too
      return time;
    };
  }

  void abort(const std::string& reason) override { rendezvous_.abort(reason); }

 private:
  struct Started final : StartedCollective {
    Started(SharedEvent ends, SharedEvent begins, std::string name)
        : done(std::move(ends)), come(std::move(begins)), what(std::move(name)) {}

    SharedEvent done;
    SharedEvent come;
    std::string what;
  };

  SharedEvent recorded(DeviceStream& stream) {
    SharedEvent event = memory_.make_event();
    stream.record(*event);
    return event;
  }

  NcclRoute& route(const RankRoute& route) {
    const auto found = routes_.find(route);
    if (found != routes_.end()) return found->second;
    return routes_
        .try_emplace(route, NcclParts{table_, comms_, memory_, seam_}, route, route.source == rank())
        .first->second;
  }

  /// The ranks of a group create its communicator together at its first collective. The communicator of a sum
  /// that overlaps with compute is created before the first step.
  ncclComm_t comm_of(const RankGroup& group, std::size_t place) {
    ncclComm_t& comm = groups_[group.ranks];
    if (comm == nullptr) comm = comms_.make(group.ranks, place, "a group of ranks " + joined(group), 0);
    return comm;
  }

  ncclResult_t enter(const CollectiveCall& call, const void* input, void* output, ncclComm_t comm,
                     cudaStream_t stream) const {
    const ncclDataType_t type = type_of(call.element);
    switch (call.kind) {
      case CollectiveKind::all_reduce:
        return table_.all_reduce(input, output, call.count, type, ncclSum, comm, stream);
      case CollectiveKind::all_gather:
        return table_.all_gather(input, output, call.count, type, comm, stream);
      case CollectiveKind::reduce_scatter:
        return table_.reduce_scatter(input, output, call.count, type, ncclSum, comm, stream);
    }
    return ncclInvalidArgument;
  }

  const NcclTable& table_;
  Rendezvous& rendezvous_;
  const NcclSeam seam_;
  NcclMemory memory_;
  NcclComms comms_;
  PendingWork pending_;
  std::map<RankRoute, NcclRoute> routes_;
  std::unique_ptr<DeviceStream> beside_;  ///< of started collectives; null before the first
  std::map<std::vector<std::int32_t>, ncclComm_t> groups_;
  SharedEvent last_;  ///< null before the first receive or collective
  std::string last_what_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const NcclTable& table, Rendezvous& rendezvous,
                                                     NcclSeam seam) {
  return std::make_unique<NcclCommunicator>(table, rendezvous, std::move(seam));
}

}  // namespace dflop
