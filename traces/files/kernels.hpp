// This file stores measured times of kernel variants on one machine (schema "dflop.kernels").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/kernel_choice/kernel_table.hpp"

namespace dflop {

/// A KernelMachine identifies everything, except the call, on which a kernel's duration depends. Durations
/// are valid only on an equal machine.
struct KernelMachine {
  std::string device;           ///< from World::device_name()
  std::int64_t processors = 0;  ///< multiprocessors of a GPU, or host cores available to the process
  std::string software;         ///< driver and libraries; empty if there are none
  std::string cpu;              ///< model of the host's processor
  std::string isa;              ///< instruction set that the kernels use
  std::int64_t threads = 1;     ///< per rank on a host device; 1 on other devices

  bool operator==(const KernelMachine&) const = default;
};

struct KernelFile {
  std::string dflop_version;
  KernelMachine machine;
  KernelTable table;

  bool operator==(const KernelFile&) const = default;
};

/// Returns a file, version 1. It has a row for each key of the table: a call in the middle of the key's
/// buckets, then the count, the mean (ns) and the variance (ns^2) of the durations of each variant.
std::string to_json(const KernelFile& file);

/// Reads a file. All values are bit-identical to the written ones. `file` names the text in errors.
/// @throws Error (input) naming the key, for a text that is not such a file or is truncated
KernelFile parse_kernel_file(std::string_view json, const std::string& file);

/// Returns the hash by which other files refer to this one as the source of their kernels.
std::string kernels_hash(const KernelFile& file);

/// Checks that a file's durations are valid on this machine.
/// @throws Error (input) naming the key, the expected and the found value, if the machine, driver, libraries
/// or set of variants differ
void require_valid(const KernelFile& found, const std::string& file, const KernelMachine& machine,
                   const VariantNames& names);

}  // namespace dflop
