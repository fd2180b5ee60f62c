// The memory of this process is read here, as the system counts it.
#pragma once

#include <fstream>
#include <string>

namespace dflop {

/// Returns a figure of /proc/self/status in bytes, as "VmRSS", or "VmHWM" for the most memory that there was;
/// 0 where there is no such figure.
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
