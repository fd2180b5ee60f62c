#include "backend/host_affinity.hpp"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

namespace dflop {

std::vector<int> cores_first(std::vector<int> processors, const std::function<int(int)>& first_of) {
  std::stable_partition(processors.begin(), processors.end(), [&](int p) { return first_of(p) == p; });
  return processors;
}

#ifdef __linux__

namespace {

/// As the kernel lists them: "0,8" or "0-1". Itself where it does not.
int first_on_its_core(int processor) {
  std::ifstream list("/sys/devices/system/cpu/cpu" + std::to_string(processor) +
                     "/topology/thread_siblings_list");
  int first = processor;
  list >> first;
  return list ? first : processor;
}

std::vector<int> usable_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return processors;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &allowed) != 0) processors.push_back(p);
  }
  return processors;
}

}  // namespace

void stay_on_processor(int place) {
  const std::vector<int> processors = cores_first(usable_processors(), first_on_its_core);
  if (place < 0 || place >= static_cast<int>(processors.size())) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processors[static_cast<std::size_t>(place)], &one);
  static_cast<void>(::sched_setaffinity(0, sizeof(one), &one));
}

#else

void stay_on_processor(int) {}

#endif

}  // namespace dflop
