#include "traces/profiler/context.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace dflop {
namespace {

/// ElementNames holds all names of elements of one size.
struct ElementNames {
  std::int64_t bytes;
  std::array<std::string_view, 14> names;
};

constexpr ElementNames kElementNames[] = {
    {1,
     {"Char", "char", "signed char", "Byte", "unsigned char", "Bool", "bool", "Float8_e4m3fn", "Float8_e5m2",
      "Float8_e4m3fnuz", "Float8_e5m2fnuz", "c10::Float8_e4m3fn", "c10::Float8_e5m2", "Float8_e8m0fnu"}},
    {2, {"Half", "c10::Half", "BFloat16", "c10::BFloat16", "Short", "short", "short int", "UInt16"}},
    {4, {"Float", "float", "Int", "int", "UInt32"}},
    {8, {"Double", "double", "Long", "long", "long int", "ComplexFloat", "c10::complex<float>", "UInt64"}},
    {16, {"ComplexDouble", "c10::complex<double>"}}};

std::string until(std::string_view text, std::string_view stops) {
  return std::string(text.substr(0, std::min(text.find_first_of(stops), text.size())));
}

/// Finds the kind from words in the name, in any case; or from the endings (F), (B) and, for weight
/// gradients, (W).
std::optional<KinetoMarkKind> annotation_kind(const std::string& name) {
  if (name.starts_with("nccl:")) return KinetoMarkKind::collective;
  if (name.starts_with("ProfilerStep#")) return std::nullopt;
  std::string lower = name;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool forward = lower.find("forward") != std::string::npos || name.ends_with("(F)");
  const bool backward =
      lower.find("backward") != std::string::npos || name.ends_with("(B)") || name.ends_with("(W)");
  if (forward != backward) return forward ? KinetoMarkKind::forward : KinetoMarkKind::backward;
  if (!forward && lower.find("optimizer") != std::string::npos) return KinetoMarkKind::optimizer;
  return std::nullopt;
}

/// A Nested combines the marks of a range and of those around it.
struct Nested {
  std::optional<KinetoPhase> phase;
  std::int32_t collective = -1;
};

Nested enter(Nested around, const KinetoMark& mark) {
  switch (mark.kind) {
    case KinetoMarkKind::forward:
      if (around.phase != KinetoPhase::backward) around.phase = KinetoPhase::forward;
      break;
    case KinetoMarkKind::backward:
      around.phase = KinetoPhase::backward;
      break;
    case KinetoMarkKind::optimizer:
      around.phase = KinetoPhase::optimizer;
      break;
    case KinetoMarkKind::recorded_op:
      if (!around.phase) around.phase = KinetoPhase::forward;
      break;
    case KinetoMarkKind::collective:
      around.collective = mark.annotation;
  }
  return around;
}

/// Returns the threads that have only backward ranges: the threads of the autograd engine.
std::unordered_map<std::int64_t, bool> backward_threads(const std::vector<KinetoMark>& marks) {
  std::unordered_map<std::int64_t, bool> only_backward;
  for (const KinetoMark& mark : marks) {
    if (mark.kind == KinetoMarkKind::collective) continue;
    bool& only = only_backward.try_emplace(mark.thread, true).first->second;
    only = only && mark.kind == KinetoMarkKind::backward;
  }
  return only_backward;
}

}  // namespace

std::optional<std::string> communication_name(std::string_view kernel) {
  for (const std::string_view prefix : {"ncclDevKernel_", "ncclKernel_"}) {
    if (kernel.starts_with(prefix)) return until(kernel.substr(prefix.size()), "_(");
  }
  if (kernel.starts_with("nccl")) return until(kernel, "<(");
  for (const std::string_view space : {"ep::internode::", "ep::intranode::", "ep::internode_ll::"}) {
    const std::size_t at = kernel.find(space);
    if (at != std::string_view::npos) return until(kernel.substr(at + space.size()), "<(");
  }
  return std::nullopt;
}

std::optional<Bytes> kineto_element_size(std::string_view dtype) {
  if (dtype.empty()) return std::nullopt;  // rows end in empty names
  for (const auto& [bytes, names] : kElementNames) {
    if (std::find(names.begin(), names.end(), dtype) != names.end()) return Bytes{bytes};
  }
  return std::nullopt;
}

std::optional<Bytes> kineto_input_bytes(const KinetoEvent& event) {
  if (event.input_types.empty()) return std::nullopt;
  constexpr std::int64_t most = std::int64_t{1} << 56;  // far beyond any memory; sums of it fit in 64 bits
  Bytes sum;
  for (std::size_t i = 0; i < event.input_types.size(); ++i) {
    const std::optional<Bytes> size = kineto_element_size(event.input_types[i]);
    if (!size) return std::nullopt;
    sum.count = std::min(most, sum.count + event.input_elements[i] * size->count);
  }
  return sum;
}

std::optional<KinetoMarkKind> kineto_mark(const KinetoEvent& event) {
  // Old versions record Optimizer.step as an operation, new ones as an annotation.
  if (event.name.starts_with("Optimizer.step")) return KinetoMarkKind::optimizer;
  if (event.category == KinetoCategory::annotation) return annotation_kind(event.name);
  if (event.name.starts_with("autograd::engine::")) return KinetoMarkKind::backward;
  if (!event.autograd_sequence || *event.autograd_sequence < 0) return std::nullopt;
  return event.forward_thread.value_or(0) == 0 ? KinetoMarkKind::recorded_op : KinetoMarkKind::backward;
}

std::vector<KinetoContext> kineto_contexts(const std::vector<KinetoLaunch>& launches,
                                           std::vector<KinetoMark> marks) {
  std::sort(marks.begin(), marks.end(), [](const KinetoMark& a, const KinetoMark& b) {
    return std::tie(a.thread, a.start, b.end) < std::tie(b.thread, b.start, a.end);  // outer ranges first
  });
  const auto only_backward = backward_threads(marks);
  std::vector<std::size_t> order(launches.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(launches[a].thread, launches[a].start, a) <
           std::tie(launches[b].thread, launches[b].start, b);
  });

  std::vector<KinetoContext> contexts(launches.size());
  struct Open {
    const KinetoMark* mark;
    Nested nested;
  };
  std::vector<Open> open;
  std::size_t next = 0;
  for (const std::size_t i : order) {
    const KinetoLaunch& launch = launches[i];
    const auto close_ended = [&](Nanoseconds now, std::int64_t thread) {
      while (!open.empty() && (open.back().mark->thread != thread || open.back().mark->end <= now)) {
        open.pop_back();
      }
    };
    for (; next < marks.size() &&
           std::tie(marks[next].thread, marks[next].start) <= std::tie(launch.thread, launch.start);
         ++next) {
      close_ended(marks[next].start, marks[next].thread);
      open.push_back({&marks[next], enter(open.empty() ? Nested{} : open.back().nested, marks[next])});
    }
    close_ended(launch.start, launch.thread);
    const Nested nested = open.empty() ? Nested{} : open.back().nested;
    const auto thread = only_backward.find(launch.thread);
    const bool engine = thread != only_backward.end() && thread->second;
    contexts[i].phase = nested.phase.value_or(engine ? KinetoPhase::backward : KinetoPhase::other);
    contexts[i].collective = nested.collective;
  }
  return contexts;
}

}  // namespace dflop
