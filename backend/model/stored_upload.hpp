// A StoredUpload copies weights to device memory in the file's number type, converts them there and checks
// that they are finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/model/tensor.hpp"
#include "backend/model/weight_source.hpp"

namespace dflop {

/// A StoredUpload copies numbers to a device and detects numbers that are not finite. Short runs of numbers
/// that are close together on the device are copied in one piece, with zeros in the gaps between them.
class StoredUpload {
 public:
  /// An Unpack converts numbers in device memory to a parameter's values, from place `first` on.
  /// `not_finite` is passed to Kernels::unpack_values().
  using Unpack = std::function<void(std::int64_t first, const StoredNumbers& numbers, Sums not_finite)>;

  explicit StoredUpload(const RankContext& rank);

  /// Begins the upload of a parameter. It calls `unpack` for all numbers before end() returns.
  void begin(Unpack unpack) { unpack_ = std::move(unpack); }
  /// Adds `count` numbers of a run, starting at number `from`. Their values go to the parameter's places
  /// from `place` on. Places must increase from call to call.
  void add(const StoredRun& run, std::int64_t from, std::int64_t count, std::int64_t place);
  void end() { flush(); }
  /// Checks all numbers so far, for which it waits for the device. @throws Error (input) that names the
  /// tensor and file of the first number that is not finite
  void require_finite();

 private:
  /// A Part names a tensor and its file, for messages.
  struct Part {
    std::string tensor;
    std::string file;
  };

  void enter_part(const StoredRun& run);
  void flush();
  void send(const void* numbers, std::int64_t place, std::int64_t count);

  const RankContext& rank_;
  std::unique_ptr<Buffer> on_device_;  ///< null if kernels can read host memory
  std::vector<std::byte> gathered_;    ///< numbers of type type_ for the places from first_ on
  std::int64_t first_ = 0;
  NumberType type_ = NumberType::f32;
  Unpack unpack_;
  std::vector<Part> parts_;  ///< parts added since the last require_finite()
  SumTensor not_finite_;     ///< per part
};

}  // namespace dflop
