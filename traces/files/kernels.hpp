// What the variants of operations took on one machine is in a file of schema "dflop.kernels", and what
// learning has come to is part of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel_choice/kernel_planner.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// A KernelMachine is all that durations depend on beside the calls: on another one they say nothing.
struct KernelMachine {
  std::string device;           ///< as World::device_name()
  std::int64_t processors = 0;  ///< multiprocessors of a GPU; of the host, those that the process may use
  std::string software;         ///< driver and libraries; empty for none
  std::string cpu;              ///< model of the host's processor
  std::string isa;              ///< what of it kernels use
  std::int64_t threads = 1;     ///< of a rank that has a device of the host; 1 on other devices

  bool operator==(const KernelMachine&) const = default;
};

struct KernelFile {
  std::string dflop_version;
  KernelMachine machine;
  KernelTable table;

  bool operator==(const KernelFile&) const = default;
};

/// Returns a file, version 1. Each key is a row: what the call is, in the middle of its buckets, then counts,
/// means and variances (ns, ns^2) by variant.
std::string to_json(const KernelFile& file);

/// Reads a file back to the last bit. `file` is the text's place for errors.
/// @throws Error (input) naming the key, for a text that is no such file, as one that is cut off anywhere
KernelFile parse_kernel_file(std::string_view json, const std::string& file);

/// Returns the hash by which other files say that their kernels were chosen by this one.
std::string kernels_hash(const KernelFile& file);

/// Checks that durations of a file hold here, in one line that says what does not.
/// @throws Error (input) naming the key, what was expected and what was found, for a file of another machine,
/// driver, library or set of variants
void require_valid(const KernelFile& found, const std::string& file, const KernelMachine& machine,
                   const VariantNames& names);

/// A LearnedKernels is what a run has come to learn, on which machine.
struct LearnedKernels {
  KernelMachine machine;
  PlannerState state;

  bool operator==(const LearnedKernels&) const = default;
};

/// Returns it as JSON text of schema "dflop.kernel_state".
std::string to_json(const LearnedKernels& learned);
/// Reads it back to the last bit. @throws Error (input) naming the key
LearnedKernels parse_learned_kernels(std::string_view json, const std::string& file);

/// RecordedKernels say which variants the steps of a recording took.
struct RecordedKernels {
  KernelMode mode = KernelMode::fixed;
  std::string file_hash;  ///< of the file that the run began with; empty for none
  VariantNames names;
  std::vector<KernelChoices> steps;  ///< without timed_one_of, and keys without mean_ns

  bool operator==(const RecordedKernels&) const = default;
};

/// Returns a file's JSON text, an object, with the key "kernels" at its end.
std::string with_kernels(std::string json, const RecordedKernels& kernels);
/// Reads that key. @throws Error (input) naming what is wrong in it
RecordedKernels read_recorded_kernels(const JsonValue& json);

}  // namespace dflop
