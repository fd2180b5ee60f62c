// This file stores schedules of several iterations, together with their samples.
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

/// A ScheduledIteration is a batch and the microbatches of its samples. Files do not store Solution::reason.
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

/// Returns a file of schema "dflop.schedule", version 2. It holds all data that a simulation needs: every
/// distinct sample once, and iterations that refer to samples by index.
std::string to_json(const ScheduleFile& schedule);

/// Reads a schedule. The scheduler, the seed and the proven values of an iteration (status, c_max_s, bound_s,
/// objective, bound_kind) may be missing, for example in handwritten files. The value is then 0, and there is
/// no bound. A file of version 1, which has neither objective nor bound_kind, is read with the published
/// objective and a simple bound.
/// @throws Error (input) naming the key; also if the file contradicts itself: an iteration whose size is not
/// gbs, an index or a bin out of range, an empty bin, a bound above c_max, more attention pairs than tokens
/// allow, encoder outputs without encoder work or beyond the LLM's tokens.
ScheduleFile parse_schedule(std::string_view json, const std::string& file);

/// BinsOfIteration holds the bin of each sample of one batch, in the order of the batch.
struct BinsOfIteration {
  std::vector<std::int32_t> bin;
  std::vector<std::string> samples;  ///< sample ids from the file, for comparison; empty if the file has none
};

/// Reads bins of iterations 0, 1, ... from JSON or CSV. JSON is an array of arrays, one for each iteration,
/// or one array of numbers for a single iteration. CSV has a header with the required column 'bin', and the
/// optional columns 'iteration' (rising from 0; without it all rows belong to one iteration) and 'sample'
/// (the id). Other columns are ignored.
/// @throws Error (input) naming row and column, or the place in the JSON
std::vector<BinsOfIteration> parse_bins(std::string_view text, const std::string& file);

}  // namespace dflop
