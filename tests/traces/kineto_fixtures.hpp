// Hand-written PyTorch-profiler traces.
#pragma once

#include <string>

#include "tests/traces/file_fixtures.hpp"
#include "traces/profiler/kineto.hpp"

namespace dflop {

/// Builds the text of a trace event by event. Times are microseconds as text; args are JSON members.
class KinetoText {
 public:
  /// `header`: JSON members before the events, each followed by a comma.
  explicit KinetoText(std::string header = R"("distributedInfo": {"rank": 0, "world_size": 2},)")
      : header_(std::move(header)) {}

  KinetoText& event(const std::string& json) {
    events_ += (events_.empty() ? "" : ",\n") + json;
    return *this;
  }

  KinetoText& x(const std::string& cat, const std::string& name, const std::string& ts,
                const std::string& dur, int tid, const std::string& args = "") {
    return event(R"({"ph": "X", "cat": ")" + cat + R"(", "name": ")" + name + R"(", "pid": 1, "tid": )" +
                 std::to_string(tid) + R"(, "ts": )" + ts + R"(, "dur": )" + dur + R"(, "args": {)" + args +
                 "}}");
  }

  KinetoText& launch(int correlation, const std::string& ts, int thread = 1) {
    return x("cuda_runtime", "cudaLaunchKernel", ts, "1", thread,
             R"("correlation": )" + std::to_string(correlation));
  }

  /// `more`: further args, each after a comma.
  KinetoText& kernel(int correlation, const std::string& name, const std::string& ts, const std::string& dur,
                     int stream = 7, const std::string& more = "") {
    const std::string args = R"("device": 0, "stream": )" + std::to_string(stream) + R"(, "correlation": )" +
                             std::to_string(correlation) + more;
    return x("kernel", name, ts, dur, stream, args);
  }

  std::string text() const { return "{" + header_ + "\"traceEvents\": [\n" + events_ + "\n]}"; }

  KinetoTrace trace(const std::string& file = "t.json") const { return parse_kineto(text(), file); }

 private:
  std::string header_;
  std::string events_;
};

/// Further args of a collective's kernel: float, with `elements` inputs and outputs.
inline std::string collective_args(int sequence, const std::string& name = "allreduce", int elements = 1000) {
  const std::string count = std::to_string(elements);
  return R"(, "Collective name": ")" + name + R"(", "dtype": "Float", "In msg nelems": )" + count +
         R"(, "Out msg nelems": )" + count + R"(, "Group size": 2, "Process Group Name": "0",)" +
         R"( "Process Group Ranks": "[0, 1]", "Seq": )" + std::to_string(sequence);
}

}  // namespace dflop
