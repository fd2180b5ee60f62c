#include "backend/host/budget.hpp"

#include <fstream>
#include <limits>
#include <string>

namespace dflop {

bool HostBudget::take(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())) return false;
  const auto asked = static_cast<std::int64_t>(bytes);
  std::int64_t left = left_;
  while (left >= asked) {
    if (left_.compare_exchange_weak(left, left - asked)) return true;
  }
  return false;
}

std::optional<Bytes> available_host_memory() {
  constexpr std::int64_t kReserve = 16;  // one part in so many
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  for (std::string unit; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return Bytes{(kib << 10) / kReserve * (kReserve - 1)};
  }
  return std::nullopt;
}

}  // namespace dflop
