// Files keep schedules of several iterations, with the samples that they place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/scheduler.hpp"
#include "traces/files/provenance.hpp"
#include "traces/files/samples.hpp"

namespace dflop {

/// A ScheduledIteration is a batch with the microbatches that its samples are in. Files have no reason.
struct ScheduledIteration : ScheduleResult {
  std::vector<Sample> samples = {};  ///< in batch order
};

struct ScheduleFile {
  std::string scheduler = "unknown";
  std::string model;
  int gbs = 0;
  std::uint64_t seed = 0;
  std::vector<ScheduledIteration> iterations;
  std::optional<Provenance> made_by = {};
};

/// Returns a file of schema "dflop.schedule", version 2, which is all of the data that a simulation needs:
/// every distinct sample once, and iterations that refer to them by index.
std::string to_json(const ScheduleFile& schedule);

/// Reads a schedule. Who made it, its seed and what is proven of an iteration (status, c_max_s, bound_s,
/// objective, bound_kind) may be missing, as of bins that people have written: the value is then 0, and there
/// is no bound. One of version 1, which had neither objective nor kind of bound, is read as the
/// published form with a simple bound.
/// @throws Error (input) naming the key, also where the file contradicts itself: an iteration of another size
/// than gbs, an index or a bin out of range, an empty bin, a bound above c_max, more attention pairs than
/// tokens allow, encoder outputs without encoder work or beyond the LLM's tokens.
ScheduleFile parse_schedule(std::string_view json, const std::string& file);

/// BinsOfIteration are the bins of one batch, a number for each sample in the order of the batch.
struct BinsOfIteration {
  std::vector<std::int32_t> bin;
  std::vector<std::string> samples;  ///< ids as the file has them, for comparison; empty where it has none
};

/// Reads bins of iterations 0, 1, ... Either JSON, an array of arrays, one for each iteration, or one array
/// of numbers for a single one; or CSV with a header, of which column 'bin' is required, 'iteration' (rising,
/// from 0 on; without it all rows are of one) and 'sample' (the id) are not, and others are passed over.
/// @throws Error (input) naming row and column, or the place in the JSON
std::vector<BinsOfIteration> parse_bins(std::string_view text, const std::string& file);

}  // namespace dflop
