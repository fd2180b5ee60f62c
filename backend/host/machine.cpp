#include "backend/host/machine.hpp"

#include <sched.h>

#include <fstream>
#include <limits>
#include <set>

#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "kernels/host/host_kernels.hpp"

namespace dflop {

std::string host_cpu() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string host_isa() {
  std::string isa;
  for (const HostTarget target : all_of<HostTarget>()) {
    if (has_host_target(target)) isa += (isa.empty() ? "" : ", ") + std::string(to_string(target));
  }
  return isa;
}

namespace {

/// A DnnlVersion is what dnnl_version() points to; more follows.
struct DnnlVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
};

/// Returns what a function of a library says of its version; empty where there is none of these.
template <typename Function, typename Text>
std::string version_of(const std::vector<std::string>& names, const std::string& function, const Text& text) {
  try {
    const SharedLibrary library(names, {}, "its version");
    return text(reinterpret_cast<Function*>(library.symbol(function))());
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::string host_libraries() {
  const std::string onednn = version_of<const DnnlVersion*()>(
      {"libdnnl.so.3", "libdnnl.so.2"}, "dnnl_version", [](const DnnlVersion* v) {
        return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
               std::to_string(v->patch);
      });
  // Its first two words are its name and version; what follows names the processor's type.
  const std::string openblas = version_of<const char*()>(
      {"libopenblas.so.0"}, "openblas_get_config",
      [](const std::string& config) { return config.substr(0, config.find(' ', config.find(' ') + 1)); });
  return onednn + (onednn.empty() || openblas.empty() ? "" : ", ") + openblas;
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

/// Returns the first processor of its core as the kernel lists them, "0,8" or "0-1"; itself where it does
/// not.
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
