// Tests memory, streams and events of every device. Sizes are multiples of 512 bytes if bytes in use are
// compared, as devices may round up.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "tests/backend/contract/fixtures.hpp"

namespace dflop::testing {
namespace contract_device_test {

ErrorKind kind_of_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::usage;
}

TEST_P(DeviceContract, HasAName) {
  EXPECT_FALSE(device_->name().empty());
}

TEST_P(DeviceContract, BuffersHaveTheirSizeAndAre256ByteAligned) {
  std::vector<std::unique_ptr<Buffer>> buffers;  // kept alive, so that they have different addresses
  for (const std::size_t bytes : {1, 2, 255, 256, 257, 1000, 1 << 20}) {
    buffers.push_back(device_->allocate(bytes));
    EXPECT_EQ(buffers.back()->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back()->data()) % 256, 0U) << bytes << " bytes";
    EXPECT_EQ(std::as_const(*buffers.back()).data(), buffers.back()->data());
  }
  EXPECT_EQ(device_->allocate(0)->bytes(), 0U);
}

TEST_P(DeviceContract, CountsMemoryInUseAndItsPeak) {
  EXPECT_EQ(device_->in_use(), Bytes{0});
  std::unique_ptr<Buffer> first = device_->allocate(1024);
  std::unique_ptr<Buffer> second = device_->allocate(512);
  EXPECT_EQ(device_->in_use(), Bytes{1536});
  first.reset();
  EXPECT_EQ(device_->in_use(), Bytes{512});
  EXPECT_EQ(device_->most_in_use(), Bytes{1536});
  device_->reset_most_in_use();
  EXPECT_EQ(device_->most_in_use(), Bytes{512});
  device_->allocate(2048).reset();
  EXPECT_EQ(device_->most_in_use(), Bytes{2560});
  EXPECT_EQ(device_->in_use(), Bytes{512});
}

TEST_P(DeviceContract, RejectsBuffersAboveTheLimitAndKeepsOthers) {
  const std::unique_ptr<Device> device = GetParam().make(Bytes{4096});
  std::unique_ptr<Buffer> held = device->allocate(3072);
  try {
    device->allocate(2048);
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.needed(), Bytes{2048});
    EXPECT_EQ(error.available(), Bytes{1024});
  }
  EXPECT_EQ(device->in_use(), Bytes{3072});
  EXPECT_EQ(device->most_in_use(), Bytes{3072});
  EXPECT_NO_THROW(device->allocate(1024));  // exactly the remaining memory
  EXPECT_THROW(device->allocate(std::numeric_limits<std::size_t>::max()), OutOfMemory);
  held.reset();
  EXPECT_NO_THROW(device->allocate(4096));
}

TEST_P(DeviceContract, KeepsCountOfRandomBuffers) {
  Random random(1);
  std::vector<std::unique_ptr<Buffer>> buffers;
  Bytes in_use;
  Bytes most;
  for (int step = 0; step < 500; ++step) {
    if (!buffers.empty() && random.below(2) == 0) {
      const std::size_t at = random.below(buffers.size());
      in_use -= Bytes{static_cast<std::int64_t>(buffers[at]->bytes())};
      buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      buffers.push_back(device_->allocate(512 * random.below(20)));
      in_use += Bytes{static_cast<std::int64_t>(buffers.back()->bytes())};
    }
    most = std::max(most, in_use);
    ASSERT_EQ(device_->in_use(), in_use);
    ASSERT_EQ(device_->most_in_use(), most);
  }
  buffers.clear();
  EXPECT_EQ(device_->in_use(), Bytes{0});
}

TEST_P(DeviceContract, CopiesAnyPartOfABuffer) {
  Random random(2);
  const std::unique_ptr<DeviceStream> stream = device_->make_stream();
  for (int trial = 0; trial < 50; ++trial) {
    // Copies `part` over `whole` at offset `at`, through a second buffer.
    Data whole = random_data(1 + random.below(5000), random);
    const std::size_t at = random.below(whole.size());
    const Data part = random_data(random.below(whole.size() - at + 1), random);
    const std::unique_ptr<Buffer> target = upload(*device_, *stream, whole);
    const std::unique_ptr<Buffer> source = upload(*device_, *stream, part);
    stream->copy(static_cast<std::byte*>(target->data()) + at, source->data(), part.size());
    std::copy(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(at));
    ASSERT_EQ(download(*stream, target->data(), whole.size()), whole);
    ASSERT_EQ(download(*stream, source->data(), part.size()), part);
  }
}

TEST_P(DeviceContract, AStreamKeepsItsOrder) {
  Random random(3);
  const std::unique_ptr<DeviceStream> stream = device_->make_stream();
  const Data first = random_data(100000, random);
  const Data second = random_data(100000, random);
  const std::unique_ptr<Buffer> a = device_->allocate(first.size());
  const std::unique_ptr<Buffer> b = device_->allocate(first.size());
  stream->copy_to_device(a->data(), first.data(), first.size());
  stream->copy(b->data(), a->data(), first.size());
  stream->copy_to_device(a->data(), second.data(), second.size());  // after b has read the first
  EXPECT_EQ(download(*stream, b->data(), first.size()), first);
  EXPECT_EQ(download(*stream, a->data(), second.size()), second);
}

TEST_P(DeviceContract, AStreamWaitsForAnEventOfAnother) {
  Random random(4);
  const std::unique_ptr<DeviceStream> a = device_->make_stream();
  const std::unique_ptr<DeviceStream> b = device_->make_stream();
  const std::unique_ptr<DeviceEvent> written = device_->make_event();
  const std::unique_ptr<DeviceEvent> read = device_->make_event();
  const std::unique_ptr<Buffer> shared = device_->allocate(50000);
  const std::unique_ptr<Buffer> taken = device_->allocate(50000);
  for (int turn = 0; turn < 20; ++turn) {  // events are recorded again in each turn
    const Data data = random_data(50000, random);
    a->copy_to_device(shared->data(), data.data(), data.size());
    a->record(*written);
    b->wait(*written);
    b->copy(taken->data(), shared->data(), data.size());
    b->record(*read);
    a->wait(*read);  // before it is written again
    ASSERT_EQ(download(*b, taken->data(), data.size()), data);
    a->synchronize();
  }
}

TEST_P(DeviceContract, AnEventThatWasNeverRecordedIsAnError) {
  const std::unique_ptr<DeviceStream> stream = device_->make_stream();
  const std::unique_ptr<DeviceEvent> event = device_->make_event();
  EXPECT_EQ(kind_of_error([&] { event->time(); }), ErrorKind::internal);
  EXPECT_EQ(kind_of_error([&] { stream->wait(*event); }), ErrorKind::internal);
  stream->record(*event);
  EXPECT_NO_THROW(stream->wait(*event));
  EXPECT_NO_THROW(event->time());
}

TEST_P(DeviceContract, TimesDoNotGoBack) {
  const std::unique_ptr<DeviceStream> a = device_->make_stream();
  const std::unique_ptr<DeviceStream> b = device_->make_stream();
  const std::unique_ptr<DeviceEvent> event = device_->make_event();
  const std::unique_ptr<DeviceEvent> after = device_->make_event();
  Nanoseconds latest{0};
  for (int turn = 0; turn < 1000; ++turn) {
    DeviceStream& one = turn % 2 == 0 ? *a : *b;
    DeviceStream& other = turn % 2 == 0 ? *b : *a;
    one.record(*event);
    other.wait(*event);
    other.record(*after);
    ASSERT_GE(event->time(), latest);
    ASSERT_GE(after->time(), event->time());
    ASSERT_EQ(event->time(), event->time());
    latest = after->time();
  }
}

}  // namespace contract_device_test
}  // namespace dflop::testing
