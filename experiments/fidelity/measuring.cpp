#include "experiments/fidelity/measuring.hpp"

#include <sys/times.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>

#include "core/support/median.hpp"

namespace dflop {
namespace {

/// Returns the median of what `value` takes from each.
template <typename Items, typename Value>
double median_of(const Items& items, const Value& value) {
  std::vector<double> values;
  for (const auto& item : items) values.push_back(value(item));
  return median(std::move(values));
}

/// Finds a point like this in each of the profiles; fewer where one has it not.
std::vector<ProfilePoint> same_points(const std::vector<const UnitPoints*>& units, const ProfilePoint& like) {
  std::vector<ProfilePoint> same;
  for (const UnitPoints* points : units) {
    const auto found = std::find_if(points->begin(), points->end(), [&](const ProfilePoint& p) {
      return p.tokens == like.tokens && p.length == like.length;
    });
    if (found != points->end()) same.push_back(*found);
  }
  return same;
}

UnitPoints median_points(const std::vector<const UnitPoints*>& units) {
  UnitPoints medians;
  for (const ProfilePoint& point : *units.front()) {
    const std::vector<ProfilePoint> same = same_points(units, point);
    if (same.size() < units.size()) continue;
    const auto middle = [&](double ProfilePoint::*member) {
      return median_of(same, [&](const ProfilePoint& p) { return p.*member; });
    };
    ProfilePoint median_point{point.tokens, point.length, middle(&ProfilePoint::forward_s),
                              middle(&ProfilePoint::backward_input_s),
                              middle(&ProfilePoint::backward_weight_s)};
    const auto has = [](const ProfilePoint& p) { return p.recompute_s.has_value(); };
    if (std::all_of(same.begin(), same.end(), has)) {
      median_point.recompute_s = median_of(same, [](const ProfilePoint& p) { return *p.recompute_s; });
    }
    medians.push_back(median_point);
  }
  return medians;
}

template <typename Line>
ProfileLine median_line(const std::vector<ProfileTables>& profiles, const Line& line) {
  return {median_of(profiles, [&](const ProfileTables& p) { return line(p).start_s; }),
          median_of(profiles, [&](const ProfileTables& p) { return line(p).s_per_unit; })};
}

}  // namespace

HostLoad::HostLoad() : begin_(read()) {}

/// Reads times in clock ticks, as both /proc/stat (proc(5)) and times(2) count.
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

ProfileTables median_profile(const std::vector<ProfileTables>& profiles) {
  ProfileTables result = profiles.front();
  for (std::size_t t = 0; t < result.tp.size(); ++t) {
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      std::vector<const UnitPoints*> units;
      for (const ProfileTables& profile : profiles) units.push_back(&profile.tp[t].units[u]);
      result.tp[t].units[u] = median_points(units);
    }
  }
  result.optimizer = median_line(profiles, [](const ProfileTables& p) { return p.optimizer; });
  result.message = median_line(profiles, [](const ProfileTables& p) { return p.message; });
  for (auto& entry : result.all_reduce) {
    entry.second =
        median_line(profiles, [&](const ProfileTables& p) { return p.all_reduce.at(entry.first); });
  }
  return result;
}

}  // namespace dflop
