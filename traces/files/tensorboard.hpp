// This file writes a run's scalars as TensorBoard event files: TFRecords (TensorFlow,
// core/lib/io/record_writer) of the protobuf message Event (core/util/event.proto,
// core/framework/summary.proto).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/units.hpp"
#include "traces/text/growing_file.hpp"

namespace dflop {

/// A Scalar is one value of a curve, such as "train/loss"; TensorBoard groups curves by the part before the
/// slash.
struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// Returns the CRC-32C of bytes (Castagnoli's polynomial, reflected; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes);

/// Returns a TFRecord: the length in 8 bytes, its masked CRC-32C, the bytes, their masked CRC-32C.
std::string tf_record(std::string_view bytes);

/// Returns the Event that starts a file. @param wall_time time since 1970
std::string version_event(Seconds wall_time);

/// Returns the Event with the scalars of one step, which TensorBoard stores as float. @pre step >= 0
std::string scalar_event(Seconds wall_time, std::int64_t step, std::span<const Scalar> scalars);

/// An EventFile is a new file in a folder that TensorBoard reads, named by time, host and process. A resumed
/// run makes another file in the same folder, and TensorBoard shows both as one run.
class EventFile {
 public:
  /// Makes the file, and the folder if it is missing. @throws Error (output)
  explicit EventFile(const std::string& folder);

  /// Writes the scalars of a step. They are in the file when this function returns. @throws Error (output)
  void add(std::int64_t step, std::span<const Scalar> scalars);

 private:
  GrowingFile file_;
};

}  // namespace dflop
