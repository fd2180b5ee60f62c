// Norms and activations are followed by a product, which reads their result at once. By chunks of rows that
// result is still in the second-level cache; it is kept for the backward nonetheless.
#include "kernels/host/fused.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/support/bytes.hpp"

namespace dflop::host {
namespace {

constexpr std::int64_t kFusedRows = 128;  ///< of a chunk: fewer would pack the weight too often

/// Steps are the variants of which a fused operation consists.
struct Steps {
  const Kernels& kernels;
  std::size_t linear = 0;
  std::size_t gelu = 0;
  std::size_t swiglu = 0;
  std::int64_t chunk = 0;  ///< rows; 0: all at once
};

/// Calls f(first, count) for all rows, in chunks.
template <typename F>
void for_each_rows(const Steps& steps, std::int64_t rows, F f) {
  const std::int64_t chunk = steps.chunk > 0 ? steps.chunk : std::max<std::int64_t>(rows, 1);
  for (std::int64_t first = 0; first < rows; first += chunk) f(first, std::min(chunk, rows - first));
}

/// Returns some rows of a matrix of values or sums, which are of one width in f32 and f64.
template <typename AnyMatrix>
AnyMatrix rows_of(const Steps& steps, const AnyMatrix& matrix, std::int64_t first, std::int64_t count) {
  const auto before = static_cast<std::size_t>(first * matrix.columns) * bytes_of(steps.kernels.dtype());
  return AnyMatrix(offset(matrix.data, before), count, matrix.columns);
}

void norm_linear(const Steps& steps, Matrix y, Matrix normed, Sums statistics, ConstMatrix x,
                 ConstMatrix gamma, ConstMatrix beta, double epsilon, ConstMatrix weight, ConstMatrix bias) {
  const Kernels& kernels = steps.kernels;
  for_each_rows(steps, x.rows, [&](std::int64_t first, std::int64_t count) {
    const auto part = [&](const auto& matrix) { return rows_of(steps, matrix, first, count); };
    if (beta.columns > 0) {
      kernels.layer_norm.run_variant(0, part(normed), part(statistics), part(x), gamma, beta, epsilon);
    } else {
      kernels.rms_norm.run_variant(0, part(normed), part(statistics), part(x), gamma, epsilon);
    }
    kernels.linear.run_variant(steps.linear, part(y), part(normed), weight, bias);
  });
}

void swiglu_linear(const Steps& steps, Matrix y, Matrix activated, ConstMatrix x, ConstMatrix weight,
                   ConstMatrix bias) {
  const Kernels& kernels = steps.kernels;
  for_each_rows(steps, x.rows, [&](std::int64_t first, std::int64_t count) {
    const auto part = [&](const auto& matrix) { return rows_of(steps, matrix, first, count); };
    if (x.columns == activated.columns) {
      kernels.gelu.run_variant(steps.gelu, part(activated), part(x));
    } else {
      kernels.swiglu.run_variant(steps.swiglu, part(activated), part(x));
    }
    kernels.linear.run_variant(steps.linear, part(y), part(activated), weight, bias);
  });
}

/// Returns the literal "fused <name>" of a variant of linear.
std::string_view fused_name(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kFusedNames = {
      "fused default", "fused avx2", "fused avx512", "fused oneDNN", "fused OpenBLAS"};
  constexpr std::string_view kFused = "fused ";
  const auto* const found = std::find_if(kFusedNames.begin(), kFusedNames.end(), [&](std::string_view fused) {
    return fused.substr(kFused.size()) == name;
  });
  return found == kFusedNames.end() ? "fused" : *found;
}

}  // namespace

void set_fused(Kernels& kernels, bool fused, KeptStates& states) {
  const Operation<void(Matrix, ConstMatrix, ConstMatrix, ConstMatrix)>& linear = kernels.linear;
  auto& first = states.keep(Steps{kernels});
  kernels.norm_linear.set<norm_linear>(first);
  kernels.swiglu_linear.set<swiglu_linear>(first);
  const auto add = [&](std::string_view name, const Steps& steps) {
    auto& kept = states.keep(steps);
    kernels.norm_linear.add<norm_linear>(name, kept);
    kernels.swiglu_linear.add<swiglu_linear>(name, kept);
  };
  // The last variants of activations are those of the widest vectors.
  const std::size_t gelu = kernels.gelu.variants() - 1;
  const std::size_t swiglu = kernels.swiglu.variants() - 1;
  for (std::size_t i = 1; i < linear.variants(); ++i)
    add(linear.variant_name(i), {kernels, i, gelu, swiglu, 0});
  for (std::size_t i = 0; fused && i < linear.variants(); ++i) {
    add(fused_name(linear.variant_name(i)), {kernels, i, gelu, swiglu, kFusedRows});
  }
}

}  // namespace dflop::host
