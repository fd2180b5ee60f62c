#include "experiments/fidelity/host_load.hpp"

#include <sys/times.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <string>

namespace dflop {

HostLoad::HostLoad() : begin_(read()) {}

/// In clock ticks, as both /proc/stat (proc(5)) and times(2) count.
std::optional<HostLoad::Ticks> HostLoad::read() {
  std::ifstream stat("/proc/stat");
  std::string label;
  std::array<double, 8> of{};  // user, nice, system, idle, iowait, irq, softirq, steal
  stat >> label;
  for (double& ticks : of) stat >> ticks;
  tms own{};
  if (!stat || label != "cpu" || ::times(&own) == static_cast<clock_t>(-1)) return std::nullopt;
  return Ticks{std::accumulate(of.begin(), of.end(), 0.0), of[3] + of[4],
               static_cast<double>(own.tms_utime + own.tms_stime)};
}

std::optional<double> HostLoad::others() const {
  const std::optional<Ticks> now = read();
  if (!begin_ || !now || now->all <= begin_->all) return std::nullopt;
  const double all = now->all - begin_->all;
  const double used = all - (now->idle - begin_->idle) - (now->own - begin_->own);
  return std::clamp(used / all, 0.0, 1.0);
}

}  // namespace dflop
