// This header reads the memory use of this process, as counted by the system.
#pragma once

#include <fstream>
#include <string>

namespace dflop {

/// Returns a figure of /proc/self/status in bytes, for example "VmRSS", or "VmHWM" for the peak; 0 if there
/// is no such figure.
inline double process_memory(const std::string& figure) {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kib = 0;
  while (status >> word) {
    if (word == figure + ":" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace dflop
