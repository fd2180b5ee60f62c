#include "tests/backend/contract/fixtures.hpp"

#include <cstring>
#include <thread>

#include "backend/run/worlds.hpp"
#include "core/dtype.hpp"

namespace dflop::testing {
namespace {

template <typename Value>
Data bytes_of_values(const std::vector<Value>& values) {
  Data data(values.size() * sizeof(Value));
  if (!data.empty()) std::memcpy(data.data(), values.data(), data.size());
  return data;
}

template <typename Value>
std::vector<Value> values_of_bytes(const Data& data) {
  std::vector<Value> values(data.size() / sizeof(Value));
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  return values;
}

RankEnd run_rank(World& world, int rank, const std::function<void(const RankSide&)>& body) {
  try {
    const std::unique_ptr<Device> device = world.make_device(rank);
    device->enter_thread();
    const std::unique_ptr<Communicator> communicator = world.make_communicator(rank);
    const std::unique_ptr<DeviceStream> stream = device->make_stream();
    body({rank, *communicator, *device, *stream});
    stream->synchronize();
    return {};
  } catch (const Aborted& aborted) {
    return {How::aborted, aborted.message()};
  } catch (const Error& error) {
    return {How::error, error.message()};
  }
}

}  // namespace

DeviceKind device_kind(const std::string& device) {
  return {device, [device](std::optional<Bytes> limit) {
            WorldOptions options;
            options.memory = limit;
            return make_world(device, 1, options)->make_device(0);
          }};
}

CommunicatorKind communicator_kind(const std::string& device) {
  return {device, 64, [device](int ranks, Seconds timeout) {
            WorldOptions options;
            options.timeout = timeout;
            return make_world(device, ranks, options);
          }};
}

void DeviceContract::SetUp() {
  try {
    device_ = GetParam().make(std::nullopt);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_device) throw;
    GTEST_SKIP() << error.what();
  }
}

Data random_data(std::size_t bytes, Random& random) {
  Data data(bytes);
  for (std::byte& b : data) b = static_cast<std::byte>(random.below(256));
  return data;
}

std::unique_ptr<Buffer> upload(Device& device, DeviceStream& stream, const Data& data) {
  std::unique_ptr<Buffer> buffer = device.allocate(data.size());
  stream.copy_to_device(buffer->data(), data.data(), data.size());
  stream.synchronize();  // `data` may be freed before the stream reads it
  return buffer;
}

Data download(DeviceStream& stream, const void* source, std::size_t bytes) {
  Data data(bytes);
  stream.copy_to_host(data.data(), source, bytes);
  stream.synchronize();
  return data;
}

Data encode(DType element, const std::vector<double>& values) {
  if (element == DType::f64) return bytes_of_values(values);
  if (element == DType::f32) return bytes_of_values(std::vector<float>(values.begin(), values.end()));
  std::vector<BFloat16> rounded;
  for (const double value : values) rounded.push_back(to_bfloat16(static_cast<float>(value)));
  return bytes_of_values(rounded);
}

std::vector<double> decode(DType element, const Data& data) {
  if (element == DType::f64) return values_of_bytes<double>(data);
  std::vector<double> values;
  if (element == DType::f32) {
    for (const float value : values_of_bytes<float>(data)) values.push_back(value);
  } else {
    for (const BFloat16 value : values_of_bytes<BFloat16>(data)) values.push_back(to_float(value));
  }
  return values;
}

void RankSide::send(const Data& data, int peer, const std::string& what) const {
  const std::unique_ptr<Buffer> buffer = upload(device, stream, data);
  communicator.send(buffer->data(), data.size(), peer, stream, what);
  stream.synchronize();
}

Data RankSide::receive(std::size_t bytes, int peer, const std::string& what) const {
  const std::unique_ptr<Buffer> buffer = device.allocate(bytes);
  communicator.receive(buffer->data(), bytes, peer, stream, what);
  return download(stream, buffer->data(), bytes);
}

Data RankSide::all_reduce(const Data& data, DType element, const RankGroup& group,
                          const std::string& what) const {
  const std::unique_ptr<Buffer> buffer = upload(device, stream, data);
  communicator.all_reduce(buffer->data(), data.size() / bytes_of(element), element, group, stream, what);
  return download(stream, buffer->data(), data.size());
}

Data RankSide::all_gather(const Data& one, DType element, const RankGroup& group,
                          const std::string& what) const {
  const std::unique_ptr<Buffer> part = upload(device, stream, one);
  const std::unique_ptr<Buffer> all = device.allocate(one.size() * group.ranks.size());
  communicator.all_gather(all->data(), part->data(), one.size() / bytes_of(element), element, group, stream,
                          what);
  return download(stream, all->data(), all->bytes());
}

Data RankSide::reduce_scatter(const Data& all, DType element, const RankGroup& group,
                              const std::string& what) const {
  const std::unique_ptr<Buffer> whole = upload(device, stream, all);
  const std::unique_ptr<Buffer> one = device.allocate(all.size() / group.ranks.size());
  communicator.reduce_scatter(one->data(), whole->data(), one->bytes() / bytes_of(element), element, group,
                              stream, what);
  return download(stream, one->data(), one->bytes());
}

std::vector<RankEnd> CommunicatorContract::run(int ranks, const std::function<void(const RankSide&)>& body,
                                               Seconds timeout) const {
  const std::unique_ptr<World> world = GetParam().make(ranks, timeout);
  std::vector<RankEnd> ends(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&ends, &world, &body, rank] {
        ends[static_cast<std::size_t>(rank)] = run_rank(*world, rank, body);
      });
    }
  }
  return ends;
}

void CommunicatorContract::run_to_end(int ranks, const std::function<void(const RankSide&)>& body) const {
  const std::vector<RankEnd> ends = run(ranks, body);
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank].how, How::done) << "rank " << rank << ": " << ends[rank].message;
  }
}

}  // namespace dflop::testing
