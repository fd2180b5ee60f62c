// TensorBoard's event files have a run's scalars: TFRecords (TensorFlow, core/lib/io/record_writer) of the
// protobuf message Event (core/util/event.proto, core/framework/summary.proto).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/units.hpp"
#include "traces/text/growing_file.hpp"

namespace dflop {

/// A Scalar is the value of one curve, as "train/loss"; curves stand in groups by what is before the slash.
struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// Returns the CRC-32C of bytes (Castagnoli's polynomial, reflected; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes);

/// Returns a TFRecord: the length in 8 bytes, its masked CRC-32C, the bytes, their masked CRC-32C.
std::string tf_record(std::string_view bytes);

/// Returns the Event with which a file begins. @param wall_time  since 1970
std::string version_event(Seconds wall_time);

/// Returns the Event of the scalars of one step, which TensorBoard keeps as float. @pre step >= 0
std::string scalar_event(Seconds wall_time, std::int64_t step, std::span<const Scalar> scalars);

/// An EventFile is a new file in a folder that TensorBoard reads, named by time, host and process; a run that
/// goes on makes another one beside it, and TensorBoard shows both as one.
class EventFile {
 public:
  /// Makes the folder, where it is not there, and the file. @throws Error (output)
  explicit EventFile(const std::string& folder);

  /// Writes the scalars of a step, which are in the file when this returns. @throws Error (output)
  void add(std::int64_t step, std::span<const Scalar> scalars);

 private:
  GrowingFile file_;
};

}  // namespace dflop
