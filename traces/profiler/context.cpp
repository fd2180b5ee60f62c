#include "traces/profiler/context.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace dflop {
namespace {

struct ElementSize {
  std::string_view name;
  std::int64_t bytes;
};

constexpr ElementSize kElementSizes[] = {
    {"Char", 1},
    {"char", 1},
    {"signed char", 1},
    {"Byte", 1},
    {"unsigned char", 1},
    {"Bool", 1},
    {"bool", 1},
    {"Float8_e4m3fn", 1},
    {"Float8_e5m2", 1},
    {"Float8_e4m3fnuz", 1},
    {"Float8_e5m2fnuz", 1},
    {"c10::Float8_e4m3fn", 1},
    {"c10::Float8_e5m2", 1},
    {"Float8_e8m0fnu", 1},
    {"Half", 2},
    {"c10::Half", 2},
    {"BFloat16", 2},
    {"c10::BFloat16", 2},
    {"Short", 2},
    {"short", 2},
    {"short int", 2},
    {"UInt16", 2},
    {"Float", 4},
    {"float", 4},
    {"Int", 4},
    {"int", 4},
    {"UInt32", 4},
    {"Double", 8},
    {"double", 8},
    {"Long", 8},
    {"long", 8},
    {"long int", 8},
    {"ComplexFloat", 8},
    {"c10::complex<float>", 8},
    {"UInt64", 8},
    {"ComplexDouble", 16},
    {"c10::complex<double>", 16},
};

std::string until(std::string_view text, std::string_view stops) {
  return std::string(text.substr(0, std::min(text.find_first_of(stops), text.size())));
}

bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

bool ends_with(std::string_view text, std::string_view ending) {
  return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

/// Finds the kind by words in the name, in any case; or by the endings (F), (B) and, for weight gradients,
/// (W).
std::optional<KinetoMarkKind> annotation_kind(const std::string& name) {
  if (starts_with(name, "nccl:")) return KinetoMarkKind::collective;
  if (starts_with(name, "ProfilerStep#")) return std::nullopt;
  std::string lower = name;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool forward = lower.find("forward") != std::string::npos || ends_with(name, "(F)");
  const bool backward =
      lower.find("backward") != std::string::npos || ends_with(name, "(B)") || ends_with(name, "(W)");
  if (forward != backward) return forward ? KinetoMarkKind::forward : KinetoMarkKind::backward;
  if (!forward && lower.find("optimizer") != std::string::npos) return KinetoMarkKind::optimizer;
  return std::nullopt;
}

/// Nested is what a range and those around it say together.
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

/// Returns the threads with backward ranges and no others: those of the autograd engine.
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
    if (kernel.substr(0, prefix.size()) == prefix) return until(kernel.substr(prefix.size()), "_(");
  }
  if (kernel.substr(0, 4) == "nccl") return until(kernel, "<(");
  for (const std::string_view space : {"ep::internode::", "ep::intranode::", "ep::internode_ll::"}) {
    const std::size_t at = kernel.find(space);
    if (at != std::string_view::npos) return until(kernel.substr(at + space.size()), "<(");
  }
  return std::nullopt;
}

std::optional<Bytes> kineto_element_size(std::string_view dtype) {
  for (const ElementSize& size : kElementSizes) {
    if (size.name == dtype) return Bytes{size.bytes};
  }
  return std::nullopt;
}

std::optional<Bytes> kineto_input_bytes(const KinetoEvent& event) {
  if (event.input_types.empty()) return std::nullopt;
  constexpr std::int64_t most = std::int64_t{1} << 56;  // far beyond any memory; keeps sums inside 64 bits
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
  if (starts_with(event.name, "Optimizer.step")) return KinetoMarkKind::optimizer;
  if (event.category == KinetoCategory::annotation) return annotation_kind(event.name);
  if (starts_with(event.name, "autograd::engine::")) return KinetoMarkKind::backward;
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
