// Numbers go to device memory in the file's type, and are converted there.
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

/// A StoredUpload takes numbers to a device and finds those that are not finite. Short runs that lie beside
/// each other on the device go there together, with the zeros between them.
class StoredUpload {
 public:
  /// An Unpack makes values in the places from `first` on of numbers in device memory. `not_finite` is that
  /// of Kernels::unpack_values().
  using Unpack = std::function<void(std::int64_t first, const StoredNumbers& numbers, Sums not_finite)>;

  explicit StoredUpload(const RankContext& rank);

  /// Begins a parameter. When end() returns, `unpack` has been called for all its numbers.
  void begin(Unpack unpack) { unpack_ = std::move(unpack); }
  /// Adds `count` numbers of a run, from `from` on, whose values stand in the places from `place` on. Places
  /// rise.
  void add(const StoredRun& run, std::int64_t from, std::int64_t count, std::int64_t place);
  void end() { flush(); }
  /// Waits for the device. @throws Error (input) naming tensor and file of the first number that is not
  /// finite
  void require_finite();

 private:
  /// A Part is a tensor of a file.
  struct Part {
    std::string tensor;
    std::string file;
  };

  void enter_part(const StoredRun& run);
  void flush();
  void send(const void* numbers, std::int64_t place, std::int64_t count);

  const RankContext& rank_;
  std::unique_ptr<Buffer> on_device_;  ///< none where kernels read the host's memory
  std::vector<std::byte> gathered_;  ///< of the type, in the places from first_ on
  std::int64_t first_ = 0;
  NumberType type_ = NumberType::f32;
  Unpack unpack_;
  std::vector<Part> parts_;  ///< since the last check
  SumTensor not_finite_;     ///< of each part
};

}  // namespace dflop
