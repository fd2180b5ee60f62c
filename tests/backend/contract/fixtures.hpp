// What every device and every communicator must do. The suites are value-parameterised: an implementation is
// put to them by INSTANTIATE_TEST_SUITE_P with its kind, in a file of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/device.hpp"
#include "backend/world.hpp"
#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop::testing {

struct DeviceKind {
  std::string name;  ///< for the names of tests: letters and digits
  /// A device of which one rank may use at most `limit`. Throws Error (no_device) where there is none.
  std::function<std::unique_ptr<Device>(std::optional<Bytes> limit)> make;
};

struct CommunicatorKind {
  std::string name;
  int most_ranks = 0;  ///< tests with more are skipped
  std::function<std::unique_ptr<World>(int ranks, Seconds timeout)> make;
};

/// A device of world_kinds() (backend/run/worlds.hpp) and its communicator, by the name of --device. Ranks
/// are threads of one process.
DeviceKind device_kind(const std::string& device);
CommunicatorKind communicator_kind(const std::string& device);

inline std::ostream& operator<<(std::ostream& out, const DeviceKind& kind) {
  return out << kind.name;
}
inline std::ostream& operator<<(std::ostream& out, const CommunicatorKind& kind) {
  return out << kind.name;
}

/// Names a case for INSTANTIATE_TEST_SUITE_P.
struct KindName {
  template <typename Kind>
  std::string operator()(const ::testing::TestParamInfo<Kind>& info) const {
    return info.param.name;
  }
};

class DeviceContract : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override;  ///< skips the test where there is no device

  std::unique_ptr<Device> device_;  ///< without a limit
};

using Data = std::vector<std::byte>;

Data random_data(std::size_t bytes, Random& random);
/// Memory of the device with these bytes.
std::unique_ptr<Buffer> upload(Device& device, DeviceStream& stream, const Data& data);
/// Waits for the stream.
Data download(DeviceStream& stream, const void* source, std::size_t bytes);

/// Values in the bytes of an element and back; what does not fit is rounded.
Data encode(DType element, const std::vector<double>& values);
std::vector<double> decode(DType element, const Data& data);

/// What a test does as one rank, in a thread of its own.
struct RankSide {
  int rank;
  Communicator& communicator;
  Device& device;
  DeviceStream& stream;

  void send(const Data& data, int peer, const std::string& what) const;
  Data receive(std::size_t bytes, int peer, const std::string& what) const;
  /// The bytes that the rank has after the collective, given what it contributes.
  Data all_reduce(const Data& data, DType element, const RankGroup& group, const std::string& what) const;
  Data all_gather(const Data& one, DType element, const RankGroup& group, const std::string& what) const;
  Data reduce_scatter(const Data& all, DType element, const RankGroup& group, const std::string& what) const;
};

enum class How : std::uint8_t { done, error, aborted };

/// How a rank's thread ended.
struct RankEnd {
  How how = How::done;
  std::string message;  ///< of the Error
};

constexpr Seconds kLong{60};  // no test waits that long unless something is lost

class CommunicatorContract : public ::testing::TestWithParam<CommunicatorKind> {
 protected:
  /// Runs body as each rank and waits for all.
  std::vector<RankEnd> run(int ranks, const std::function<void(const RankSide&)>& body,
                           Seconds timeout = kLong) const;
  /// Runs as run() does, and expects that all ranks come to their end.
  void run_to_end(int ranks, const std::function<void(const RankSide&)>& body) const;
  bool has_ranks(int ranks) const { return ranks <= GetParam().most_ranks; }
};

}  // namespace dflop::testing
