#include "costmodel/profiled/chosen_kernels.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/padded_model.hpp"

namespace dflop {
namespace {

/// Returns the savings of the calls in each pass of a unit, in seconds.
std::array<double, kKernelPasses> savings(const KernelTable& table, const ProfileTables& profile,
                                          ProfileUnit unit, const TpMode& mode, const ProfilePoint& point) {
  const DType dtype = from_string<DType>(profile.dtype).value();
  std::array<double, kKernelPasses> saved{};
  const Workload work{1, point.tokens, point.tokens * point.length};
  const ModelSpec model = with_padded_rows(profile.model, mode.tp, profile.row_alignment);
  for (const UnitCall& made : unit_kernel_calls(model, unit, mode, work)) {
    KernelCall call = made.call;
    call.dtype = dtype;
    constexpr double kSecondsPerNs = 1e-9;
    saved[static_cast<std::size_t>(made.pass)] += kSecondsPerNs * chosen_saving_ns(table, call);
  }
  return saved;
}

void subtract(double& seconds, double saved) {
  seconds = std::max(0.0, seconds - saved);
}

}  // namespace

double chosen_saving_ns(const KernelTable& table, const KernelCall& call) {
  const auto* basis = table.basis(KernelKey(call));
  if (basis == nullptr) return 0;
  const auto& [key, entry] = *basis;
  return (entry.front().mean - entry[KernelTable::best_of(entry)].mean) * work_of(call) / work_of(key);
}

ProfileTables with_chosen_kernels(ProfileTables profile, const KernelTable& table) {
  if (!profile.second_tp.empty()) profile.second_tp = with_chosen_kernels(second_tables(profile), table).tp;
  for (TpProfile& tp : profile.tp) {
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      for (ProfilePoint& point : tp.units[u]) {
        const auto saved = savings(table, profile, static_cast<ProfileUnit>(u), tp.mode, point);
        subtract(point.forward_s, saved[static_cast<std::size_t>(KernelPass::forward)]);
        subtract(point.backward_input_s, saved[static_cast<std::size_t>(KernelPass::backward_input)]);
        subtract(point.backward_weight_s, saved[static_cast<std::size_t>(KernelPass::backward_weight)]);
        if (point.recompute_s) {
          subtract(*point.recompute_s, saved[static_cast<std::size_t>(KernelPass::recompute)]);
        }
      }
    }
  }
  return profile;
}

}  // namespace dflop
