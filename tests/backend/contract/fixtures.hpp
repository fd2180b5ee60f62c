// Requirements for every device and every communicator. The suites are value-parameterized: each
// implementation runs them by INSTANTIATE_TEST_SUITE_P with its kind, in its own file.
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
  std::string name;  ///< for test names: letters and digits
  /// Makes a device of which one rank may use at most `limit`. Throws Error (no_device) if there is none.
  std::function<std::unique_ptr<Device>(std::optional<Bytes> limit)> make;
};

struct CommunicatorKind {
  std::string name;
  int most_ranks = 0;  ///< tests with more ranks are skipped
  std::function<std::unique_ptr<World>(int ranks, Seconds timeout)> make;
};

/// Return a device of world_kinds() (backend/run/worlds.hpp) and its communicator, by the name of --device.
/// Ranks are threads of one process.
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
  void SetUp() override;  ///< skips the test without a device

  std::unique_ptr<Device> device_;  ///< without a limit
};

using Data = std::vector<std::byte>;

Data random_data(std::size_t bytes, Random& random);
/// Returns device memory with these bytes.
std::unique_ptr<Buffer> upload(Device& device, DeviceStream& stream, const Data& data);
/// Copies bytes back and waits for the stream.
Data download(DeviceStream& stream, const void* source, std::size_t bytes);

/// Convert values to the bytes of an element type and back, with rounding.
Data encode(DType element, const std::vector<double>& values);
std::vector<double> decode(DType element, const Data& data);

/// One rank of a test, with its own thread.
struct RankSide {
  int rank;
  Communicator& communicator;
  Device& device;
  DeviceStream& stream;

  void send(const Data& data, int peer, const std::string& what) const;
  Data receive(std::size_t bytes, int peer, const std::string& what) const;
  /// Run a collective with this rank's input and return its result.
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

constexpr Seconds kLong{60};  // tests wait this long only if something is lost

class CommunicatorContract : public ::testing::TestWithParam<CommunicatorKind> {
 protected:
  /// Runs body as each rank and waits for all ranks.
  std::vector<RankEnd> run(int ranks, const std::function<void(const RankSide&)>& body,
                           Seconds timeout = kLong) const;
  /// Runs body like run(), and expects that all ranks finish without an error.
  void run_to_end(int ranks, const std::function<void(const RankSide&)>& body) const;
  bool has_ranks(int ranks) const { return ranks <= GetParam().most_ranks; }
};

}  // namespace dflop::testing
