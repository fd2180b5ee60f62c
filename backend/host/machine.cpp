#include "backend/host/machine.hpp"

#include <sched.h>

#include <fstream>
#include <limits>
#include <set>

#include "kernels/host/host_kernels.hpp"

namespace dflop {

std::string host_isa() {
  std::string isa;
  for (const HostTarget target : all_of<HostTarget>()) {
    if (has_host_target(target)) isa += (isa.empty() ? "" : ", ") + std::string(to_string(target));
  }
  return isa;
}

std::vector<int> cores_first(const std::vector<int>& processors, const std::function<int(int)>& core_of) {
  std::vector<int> firsts;
  std::vector<int> others;
  std::set<int> cores;
  for (const int p : processors) (cores.insert(core_of(p)).second ? firsts : others).push_back(p);
  firsts.insert(firsts.end(), others.begin(), others.end());
  return firsts;
}

namespace {

/// Returns the first processor on the same core from the kernel's list, "0,8" or "0-1"; the processor itself
/// if there is no list.
int first_on_its_core(int processor) {
  std::ifstream list("/sys/devices/system/cpu/cpu" + std::to_string(processor) +
                     "/topology/thread_siblings_list");
  int first = processor;
  list >> first;
  return list ? first : processor;
}

}  // namespace

std::vector<int> usable_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return processors;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &allowed) != 0) processors.push_back(p);
  }
  return cores_first(processors, first_on_its_core);
}

void stay_on_processor(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  static_cast<void>(::sched_setaffinity(0, sizeof(one), &one));
}

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
  constexpr std::int64_t kReserve = 16;  // the reserve is one part in kReserve
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  for (std::string unit; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return Bytes{(kib << 10) / kReserve * (kReserve - 1)};
  }
  return std::nullopt;
}

}  // namespace dflop
