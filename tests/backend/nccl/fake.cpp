#include "tests/backend/nccl/fake.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "tests/backend/async_device.hpp"
#include "tests/backend/contract/fixtures.hpp"

namespace dflop::testing {
namespace {

/// One collective of the ranks of a clique.
struct Meeting {
  std::string call;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::size_t come = 0;
  bool done = false;
};

struct Letter {
  const void* data;
  std::size_t bytes;
  bool taken = false;
};

/// The ranks that share a unique id.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t ranks = 0;
  std::size_t joined = 0;
  std::size_t used = 0;                         ///< ranks that have entered a first operation
  std::deque<std::shared_ptr<Letter>> letters;  ///< from rank 0 to rank 1
  std::map<int, Meeting> meetings;
};

}  // namespace
}  // namespace dflop::testing

/// The fake's definition of NCCL's handle.
struct ncclComm {
  std::shared_ptr<dflop::testing::Clique> clique;
  ncclComm_t* handle = nullptr;  ///< the caller's copy; NCCL may write it until the abort
  std::size_t place = 0;
  bool aborted = false;
  bool used = false;
  int collectives = 0;
  int queued = 0;               ///< operations in streams that have not ended
  std::function<void()> first;  ///< the first operation, enqueued when all ranks have arrived
};

namespace dflop::testing {
namespace {

struct Fake {
  std::mutex mutex;
  std::uint64_t ids = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::vector<std::unique_ptr<ncclComm>> comms;  // also aborted ones, to detect calls with them
  std::vector<std::string> calls;
  std::vector<std::string> faults;
  ncclResult_t broken = ncclSuccess;
};

Fake& fake() {
  static Fake it;
  return it;
}

void note(const std::string& call) {
  const std::lock_guard lock(fake().mutex);
  fake().calls.push_back(call);
}

ncclResult_t fault(const std::string& what) {
  const std::lock_guard lock(fake().mutex);
  fake().faults.push_back(what);
  return ncclInvalidUsage;
}

std::string seat(ncclComm_t comm) {
  return " as " + std::to_string(comm->place) + " of " + std::to_string(comm->clique->ranks);
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::lock_guard lock(fake().mutex);
  const std::uint64_t number = ++fake().ids;
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t init(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return fault("a blocking communicator");
  const std::lock_guard lock(fake().mutex);
  auto& clique = fake().cliques[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  const std::lock_guard own(clique->mutex);
  clique->ranks = static_cast<std::size_t>(ranks);
  ++clique->joined;
  fake().comms.push_back(std::make_unique<ncclComm>());
  *comm = fake().comms.back().get();
  (*comm)->handle = comm;
  (*comm)->clique = clique;
  (*comm)->place = static_cast<std::size_t>(rank);
  return ncclInProgress;
}

/// The calls between a thread's group_start() and group_end().
struct Group {
  int depth = 0;
  std::vector<ncclComm_t> aborted;
};
thread_local Group group;

/// Frees a communicator's resources once its work, and the work before it in streams, has ended.
ncclResult_t reclaim(ncclComm_t comm) {
  constexpr std::chrono::seconds kForEver{10};
  std::unique_lock lock(comm->clique->mutex);
  const bool ended = comm->clique->changed.wait_for(lock, kForEver, [&] { return comm->queued == 0; });
  return ended ? ncclSuccess : fault("an abort waits for work that nobody ends");
}

ncclResult_t abort(ncclComm_t comm) {
  if (comm->aborted) return fault("abort of an aborted communicator");
  if (*comm->handle != comm) return fault("the place of a communicator's handle is gone before its abort");
  {
    const std::lock_guard lock(comm->clique->mutex);
    comm->aborted = true;  // for this rank only; other ranks wait until they abort theirs
    comm->clique->changed.notify_all();
  }
  if (group.depth == 0) return reclaim(comm);
  group.aborted.push_back(comm);
  return ncclSuccess;
}

ncclResult_t group_start() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (group.depth == 0) return fault("the end of a group that has not begun");
  if (--group.depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (const ncclComm_t comm : std::exchange(group.aborted, {})) {
    const ncclResult_t one = reclaim(comm);
    if (result == ncclSuccess) result = one;
  }
  return result;
}

ncclResult_t async_error(ncclComm_t comm, ncclResult_t* state) {
  if (comm->aborted) return fault("a question about an aborted communicator");
  {
    const std::lock_guard lock(fake().mutex);
    *state = fake().broken;
  }
  if (*state != ncclSuccess) return ncclSuccess;
  const std::lock_guard lock(comm->clique->mutex);
  *state = ncclInProgress;
  if (comm->clique->joined < comm->clique->ranks) return ncclSuccess;
  if (comm->first && comm->clique->used < comm->clique->ranks) return ncclSuccess;
  if (comm->first) std::exchange(comm->first, nullptr)();
  *state = ncclSuccess;
  return ncclSuccess;
}

/// The caller must hold the clique's mutex.
void queue(ncclComm_t comm, AsyncStream& stream, std::function<void()> work) {
  ++comm->queued;
  stream.enter([comm, work = std::move(work)] {
    work();
    const std::lock_guard lock(comm->clique->mutex);
    --comm->queued;
    comm->clique->changed.notify_all();
  });
}

/// Enqueues work in a stream: at once or, for the communicator's first operation, when all ranks have arrived
/// at theirs.
ncclResult_t enter(ncclComm_t comm, cudaStream_t stream, const std::string& call,
                   std::function<void()> work) {
  if (comm->aborted) return fault(call + " with an aborted communicator");
  if (comm->first) return fault(call + " while the one before is in progress");
  note(call);
  auto* own = reinterpret_cast<AsyncStream*>(stream);
  const std::lock_guard lock(comm->clique->mutex);
  if (comm->used) {
    queue(comm, *own, std::move(work));
    return ncclSuccess;
  }
  if (comm->clique->joined < comm->clique->ranks) return fault(call + " before the communicator is made");
  comm->used = true;
  ++comm->clique->used;
  comm->first = [comm, own, work = std::move(work)] { queue(comm, *own, work); };
  return ncclInProgress;
}

ncclResult_t send(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  if (type != ncclUint8 || peer != 1 || comm->place != 0 || count == 0) return fault("a send that is none");
  return enter(comm, stream, "send " + std::to_string(count) + seat(comm),
               [comm, clique = comm->clique, data, count] {
                 std::unique_lock lock(clique->mutex);
                 const auto letter = std::make_shared<Letter>(Letter{data, count});
                 clique->letters.push_back(letter);
                 clique->changed.notify_all();
                 clique->changed.wait(lock, [&] { return letter->taken || comm->aborted; });
               });
}

ncclResult_t recv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  if (type != ncclUint8 || peer != 0 || comm->place != 1 || count == 0)
    return fault("a receive that is none");
  return enter(comm, stream, "recv " + std::to_string(count) + seat(comm),
               [comm, clique = comm->clique, data, count] {
                 std::unique_lock lock(clique->mutex);
                 clique->changed.wait(lock, [&] { return !clique->letters.empty() || comm->aborted; });
                 if (comm->aborted) return;
                 const auto letter = clique->letters.front();
                 clique->letters.pop_front();
                 if (letter->bytes != count) fault("a receive of other bytes than were sent");
                 std::memcpy(data, letter->data, std::min(count, letter->bytes));
                 letter->taken = true;
                 clique->changed.notify_all();
               });
}

DType element_of(ncclDataType_t type) {
  if (type == ncclFloat64) return DType::f64;
  return type == ncclBfloat16 ? DType::bf16 : DType::f32;
}

std::size_t width(ncclDataType_t type) {
  return bytes_of(element_of(type));
}

Data data_at(const void* begin, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(begin);
  return {from, from + bytes};
}

/// Returns the sum in f64 of values [first, first + count) over all inputs.
Data sum(const Meeting& meeting, ncclDataType_t type, std::size_t first, std::size_t count) {
  std::vector<double> total(count, 0.0);
  for (const void* input : meeting.inputs) {
    const auto* from = static_cast<const std::byte*>(input) + first * width(type);
    const std::vector<double> values = decode(element_of(type), data_at(from, count * width(type)));
    for (std::size_t i = 0; i < count; ++i) total[i] += values[i];
  }
  return encode(element_of(type), total);
}

using Work = std::function<std::vector<Data>(const Meeting&)>;  // returns the result of each rank

ncclResult_t collective(const std::string& name, const void* in, void* out, std::size_t count,
                        ncclDataType_t type, ncclComm_t comm, cudaStream_t stream, const Work& work) {
  const std::string call = name + " " + std::to_string(count) + " of type " + std::to_string(type);
  const int number = comm->collectives++;
  return enter(comm, stream, call + seat(comm),
               [comm, clique = comm->clique, place = comm->place, call, number, in, out, work] {
                 std::unique_lock lock(clique->mutex);
                 Meeting& meeting = clique->meetings[number];
                 if (meeting.come == 0) {
                   meeting.call = call;
                   meeting.inputs.resize(clique->ranks);
                   meeting.outputs.resize(clique->ranks);
                 }
                 if (meeting.call != call) fault("ranks come with '" + call + "' and '" + meeting.call + "'");
                 meeting.inputs[place] = in;
                 meeting.outputs[place] = out;
                 if (++meeting.come == clique->ranks) {
                   const std::vector<Data> results = work(meeting);
                   for (std::size_t r = 0; r < results.size(); ++r) {
                     if (!results[r].empty())
                       std::memcpy(meeting.outputs[r], results[r].data(), results[r].size());
                   }
                   meeting.done = true;
                   clique->changed.notify_all();
                 }
                 clique->changed.wait(lock, [&] { return meeting.done || comm->aborted; });
               });
}

ncclResult_t all_reduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return fault("an all-reduce that is no sum");
  return collective("all_reduce", in, out, count, type, comm, stream, [=](const Meeting& meeting) {
    return std::vector<Data>(meeting.inputs.size(), sum(meeting, type, 0, count));
  });
}

ncclResult_t all_gather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream) {
  return collective("all_gather", in, out, count, type, comm, stream, [=](const Meeting& meeting) {
    Data all;
    for (const void* input : meeting.inputs) {
      const Data one = data_at(input, count * width(type));
      all.insert(all.end(), one.begin(), one.end());
    }
    return std::vector<Data>(meeting.inputs.size(), all);
  });
}

ncclResult_t reduce_scatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return fault("a reduce-scatter that is no sum");
  return collective("reduce_scatter", in, out, count, type, comm, stream, [=](const Meeting& meeting) {
    std::vector<Data> parts;
    for (std::size_t r = 0; r < meeting.inputs.size(); ++r)
      parts.push_back(sum(meeting, type, r * count, count));
    return parts;
  });
}

}  // namespace

const NcclTable& fake_nccl() {
  static const NcclTable table = [] {
    NcclTable fake;
    fake.get_unique_id = get_unique_id;
    fake.comm_init_rank_config = init;
    fake.comm_abort = abort;
    fake.group_start = group_start;
    fake.group_end = group_end;
    fake.comm_get_async_error = async_error;
    fake.get_error_string = [](ncclResult_t result) -> const char* {
      return result == ncclRemoteError ? "a remote error" : "invalid usage";
    };
    fake.get_last_error = [](ncclComm_t) -> const char* { return "the fake's last words"; };
    fake.send = send;
    fake.recv = recv;
    fake.all_reduce = all_reduce;
    fake.all_gather = all_gather;
    fake.reduce_scatter = reduce_scatter;
    return fake;
  }();
  return table;
}

NcclSeam fake_seam(int rank, std::shared_ptr<AsyncGpu> gpu) {
  return {
      [rank, gpu]() -> std::unique_ptr<Device> { return std::make_unique<AsyncDevice>(rank, false, gpu); },
      [](DeviceStream& stream) {
        return reinterpret_cast<cudaStream_t>(dynamic_cast<AsyncStream*>(&stream));
      },
      [](DeviceEvent& event) { return dynamic_cast<AsyncEvent&>(event).reached(); }};
}

std::vector<std::string> fake_nccl_calls() {
  const std::lock_guard lock(fake().mutex);
  return fake().calls;
}

std::vector<std::string> fake_nccl_faults() {
  const std::lock_guard lock(fake().mutex);
  return fake().faults;
}

void forget_fake_nccl_calls() {
  const std::lock_guard lock(fake().mutex);
  fake().calls.clear();
  fake().faults.clear();
}

void break_fake_nccl(ncclResult_t error) {
  const std::lock_guard lock(fake().mutex);
  fake().broken = error;
}

}  // namespace dflop::testing
