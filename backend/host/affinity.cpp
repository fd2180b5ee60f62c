#include "backend/host/affinity.hpp"

#include <sched.h>

#include <fstream>
#include <set>
#include <string>

namespace dflop {

std::vector<int> cores_first(const std::vector<int>& processors, const std::function<int(int)>& core_of) {
  std::vector<int> firsts;
  std::vector<int> others;
  std::set<int> cores;
  for (const int p : processors) (cores.insert(core_of(p)).second ? firsts : others).push_back(p);
  firsts.insert(firsts.end(), others.begin(), others.end());
  return firsts;
}

#ifdef __linux__

namespace {

/// As the kernel lists those of its core: "0,8" or "0-1". Itself where it does not.
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

#else

std::vector<int> usable_processors() {
  return {};
}

void stay_on_processor(int) {}

#endif

}  // namespace dflop
