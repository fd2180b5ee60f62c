#include "traces/profiler/kineto.hpp"

#include <fmt/format.h>

#include "tests/traces/kineto_fixtures.hpp"
#include "traces/profiler/context.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace kineto_test {

using ns = Nanoseconds;

TEST(Kineto, OldTimesAreAbsoluteMicroseconds) {
  KinetoText text;
  text.launch(5, "1682725898079484").kernel(5, "gemm", "1682725898079500", "3");
  const KinetoTrace trace = text.trace();
  EXPECT_EQ(trace.rank, 0);
  EXPECT_EQ(trace.base, ns(1682725898079484000));
  EXPECT_EQ(trace.resolution, ns(1000));
  ASSERT_EQ(trace.activities.size(), 1u);
  EXPECT_EQ(trace.activities[0].start, ns(16000));
  EXPECT_EQ(trace.activities[0].duration, ns(3000));
  EXPECT_EQ(trace.names[trace.activities[0].name], "gemm");
  ASSERT_EQ(trace.activities[0].launch, 0);
  EXPECT_EQ(trace.launches[0].start, ns(0));
}

TEST(Kineto, NewTimesCountFromTheBaseToTheNanosecond) {
  // The base may come after the events. 2413669096090.765 us + 1700000000 s.
  std::string text =
      KinetoText("").launch(5, "2413669096090.765").kernel(5, "gemm", "2413669096091.001", "0.5").text();
  text.insert(text.size() - 1, R"(, "baseTimeNanoseconds": 1700000000000000000)");
  const KinetoTrace trace = parse_kineto(text, "t.json");
  EXPECT_EQ(trace.rank, std::nullopt);
  EXPECT_EQ(trace.base, ns(1700000000000000000 + 2413669096090765));
  EXPECT_EQ(trace.resolution, ns(1));
  EXPECT_EQ(trace.activities[0].start, ns(236));
  EXPECT_EQ(trace.activities[0].duration, ns(500));
}

TEST(Kineto, AbsoluteTimesWithDecimalsKeepTheirNanoseconds) {
  // A double near 1.7e15 resolves only quarters of a microsecond.
  KinetoText text;
  text.launch(5, "1682725898079484.001").kernel(5, "a", "1682725898079484.1239", "1e1");
  EXPECT_EQ(text.trace().activities[0].start, ns(123));  // .1239 is rounded to .124; minus .001
  EXPECT_EQ(text.trace().activities[0].duration, ns(10'000));
}

TEST(Kineto, UnusedKeysMayHoldAnything) {
  KinetoText text(R"("distributedInfo": {"rank": 3, "pg_config": [{"rank": "x", "ranks": [0, {"rank": -1}]}]},
    "deviceProperties": [{"id": 0, "rank": null}], "traceName": "traceEvents",)");
  text.event(R"({"ph": "M", "name": "process_name", "pid": "x", "args": {"name": ["dur", {"ts": 1}]}})")
      .event(R"({"ph": "s", "id": 2, "ts": 1, "cat": "ac2g", "name": "ac2g"})")
      .x("python_function", "f", "1", "2", 1, R"("correlation": "none", "stream": {})")
      .event(R"({"ph": "X", "cat": "Trace", "ts": 5, "dur": 20, "pid": "Spans", "tid": "P", "name": "P"
})")
      .x("cuda_runtime", "cudaLaunchKernel", "10", "1", 1,
         R"("correlation": 4, "x": {"correlation": 9}, "y": [4])")
      .kernel(4, "k", "11", "2", 7, R"(, "grid": [1, [2], {"stream": 8}], "blocks per SM": 0.5, "z": null)");
  const KinetoTrace trace = text.trace();
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.record_end, ns(15'000));  // 25 us; the first event used is at 10 us
  ASSERT_EQ(trace.activities.size(), 1u);
  EXPECT_EQ(trace.activities[0].stream, 7);
  EXPECT_EQ(trace.activities[0].launch, 0);
  EXPECT_EQ(trace.activities[0].event, 5u);
}

TEST(Kineto, TheEventsAloneAreATraceToo) {
  const KinetoTrace trace = parse_kineto(
      R"([{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}])",
      "t.json");
  EXPECT_EQ(trace.activities.size(), 1u);
  EXPECT_EQ(trace.activities[0].launch, -1);
}

TEST(Kineto, ErrorsNameTheEvent) {
  const std::string good = KinetoText().launch(5, "10").kernel(5, "gemm", "20", "3").text();
  const std::string event = "t.json: traceEvents[1] 'gemm'";
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& place,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_kineto(replaced(good, from, to), "t.json"); }, place, words);
  };
  refused("\"dur\": 3", "\"dur\": -3", event + ": key 'dur'", {"at least 0", "found -3"});
  refused("\"dur\": 3", "\"dur\": -0.25", event + ": key 'dur'", {"at least 0", "found -0.25"});
  refused("\"dur\": 3", "\"dur\": \"3\"", event + ": key 'dur'", {"microseconds", "found \"3\""});
  refused("\"dur\": 3", "\"x\": 3", event + ": key 'dur'", {"microseconds", "found none"});
  refused("\"dur\": 3", "\"dur\": null", event + ": key 'dur'", {"found another type"});
  refused("\"ts\": 20", "\"ts\": [20]", event + ": key 'ts'", {"microseconds", "found another type"});
  refused("\"ts\": 20", "\"ts\": 1e300", event + ": key 'ts'", {"found 1e300"});
  refused("\"ts\": 20", "\"tz\": 20", event + ": key 'ts'", {"found none"});
  refused("\"ts\": 20", "\"ts\": nope", "t.json: traceEvents[1]", {"expected JSON", "invalid literal"});
  refused("\"ts\": 20", "\"ts\": 1e999", "t.json: traceEvents[1]", {"overflow", "1e999"});
  refused("\"stream\": 7", "\"stream\": \"7\"", event + ": key 'args.stream'", {"whole number", "\"7\""});
  refused("\"tid\": 7, \"ts\": 20, \"dur\": 3, \"args\": {\"device\": 0, \"stream\": 7, ",
          "\"tid\": \"stream 7\", \"ts\": 20, \"dur\": 3, \"args\": {\"device\": 0, ",
          event + ": key 'args.stream'", {"found none"});
  refused("\"gemm\"", "12", "t.json: traceEvents[1]: key 'name'", {"a text", "found 12"});
  refused("\"ph\": \"X\", \"cat\": \"kernel\"", "\"cat\": \"kernel\"", event + ": key 'ph'", {"found none"});
  refused("[\n{", "[\n7, {", "t.json: traceEvents[0]", {"expected an event"});
}

TEST(Kineto, WithoutDeviceAndStreamTheProcessAndThreadStandForThem) {
  // PyTorch writes kernels with pid = device and tid = stream. The fixture's pid is 1.
  const std::string text = replaced(KinetoText().launch(5, "10").kernel(5, "gemm", "20", "3", 9).text(),
                                    "\"device\": 0, \"stream\": 9, ", "");
  const KinetoTrace trace = parse_kineto(text, "t.json");
  EXPECT_EQ(trace.activities.at(0).device, 1);
  EXPECT_EQ(trace.activities.at(0).stream, 9);
}

/// Returns a trace with a launch, its kernel, and before them the event `json`.
std::string with_event(const std::string& json) {
  return KinetoText().event(json).launch(5, "10").kernel(5, "gemm", "20", "3").text();
}

TEST(Kineto, UnusedValuesNeedNotBeStrictJson) {
  const std::string begin = R"({"ph": "X", "cat": "python_function", "ts": 1, "dur": 1, "name": ")";
  const auto loose = [&](const std::string& name, std::size_t values) {
    const KinetoTrace trace = parse_kineto(with_event(begin + name + "}"), "t.json");
    EXPECT_EQ(trace.loose_values, values) << name;
    EXPECT_EQ(trace.activities.size(), 1u);
    EXPECT_EQ(trace.activities[0].event, 2u);
    EXPECT_EQ(trace.names[static_cast<std::size_t>(trace.activities[0].name)], "gemm");
  };
  loose("config.py(0): f\"", 0);
  loose("config.py(0): \x01\x07\"", 1);
  loose("two\nlines\"", 1);
  loose("x \xd0\xff\xfe\"", 1);
  loose("cut \xe2\x82\", \"args\": {\"x\": \"\xf0\x9f\"}", 2);
  loose("C:\\Users\\x.py(3): f\"", 1);
  loose("C:\\traces\\ends here: \\q\\\"", 1);        // the last backslash does not escape the quote
  loose("C:\\traces\\\", \"args\": {\"x\": 1}", 1);  // all escapes are valid, but the next quote ends nothing
  loose("say \\\"no\\\", \\\"yes\\\"\"", 0);
  loose("half \\ud83d of a pair\"", 1);
  loose("a whole pair \\ud83d\\ude00, \\\\ and \\\"\"", 0);
  loose("k\", \"args\": {\"est. achieved occupancy %\": NaN, \"x\": [Infinity, -Infinity, nan, -inf]}", 5);
  loose("k\", \"y\": -nan(ind), \"z\": [1e5, true, false, null, -2.5E-3]", 1);
}

TEST(Kineto, UsedValuesMustBeStrictJson) {
  const std::string good = KinetoText()
                               .x("user_annotation", "ProfilerStep#1", "5", "50", 1)
                               .launch(5, "10")
                               .kernel(5, "gemm", "20", "3", 7, collective_args(1))
                               .text();
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& place,
                           std::string_view found) {
    expect_refused([&] { parse_kineto(replaced(good, from, to), "t.json"); }, place, {found});
  };
  const std::string event = "t.json: traceEvents[2] 'gemm': key ";
  refused("\"ts\": 20", "\"ts\": NaN", event + "'ts'", "found NaN");
  refused("\"dur\": 3", "\"dur\": -Infinity", event + "'dur'", "found NaN, an infinity");
  refused("\"stream\": 7", "\"stream\": inf", event + "'args.stream'", "found NaN");
  refused("\"Float\"", "\"Flo\x01t\"", event + "'args.dtype'", "found control characters");
  refused("\"[0, 1]\"", "\"[0, \x01 1]\"", event + "'args.Process Group Ranks'", "found control characters");
  refused("\"gemm\"", "\"ge\xffmm\"", "t.json: traceEvents[2] 'ge?mm': key 'name'", "not UTF-8");
  refused("cudaLaunchKernel", "cuda\\Launch", "t.json: traceEvents[1] 'cuda?Launch': key 'name'",
          "backslashes");
  refused("ProfilerStep#1", "ProfilerStep#1\n", "t.json: traceEvents[0] 'ProfilerStep#1?': key 'name'",
          "control");
  refused("\"rank\": 0", "\"rank\": NaN", "t.json: key 'distributedInfo.rank'", "another type");
  // Other errors keep their place: the byte in the file.
  const std::string cut = replaced(good, "\"gemm\"", "\"ge\xffmm\" 12");
  expect_refused([&] { parse_kineto(cut, "t.json"); }, "t.json: traceEvents[2]",
                 {fmt::format("byte {}", cut.find(" 12") + 3)});
  // A list of inputs is used only in messages and reductions.
  const auto op = [](const std::string& name) {
    return with_event(R"({"ph": "X", "cat": "cpu_op", "tid": 1, "ts": 1, "dur": 1, "name": ")" + name +
                      "\", \"args\": {\"Concrete Inputs\": [\"\", \"\\x\", \"1\", \"2\"]}}");
  };
  EXPECT_EQ(parse_kineto(op("aten::einsum"), "t.json").loose_values, 1u);
  expect_refused([&] { parse_kineto(op("c10d::send"), "t.json"); },
                 "t.json: traceEvents[0] 'c10d::send': key 'args.Concrete Inputs'", {"backslashes"});
}

TEST(Kineto, TracesFromWindowsAreRead) {
  std::string text = "\xEF\xBB\xBF";
  for (const char c : KinetoText().launch(5, "10").kernel(5, "gemm", "20", "3").text())
    text += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(parse_kineto(text, "t.json").activities.size(), 1u);
  EXPECT_EQ(parse_kineto(text, "t.json").loose_values, 0u);
  EXPECT_EQ(parse_kineto(replaced(text, "\"ts\": 20", "\"ts\": 20, \"x\": NaN"), "t.json").loose_values, 1u);
}

TEST(Kineto, ErrorsOfTheDocument) {
  const std::string good = KinetoText().launch(5, "10").text();
  const auto refused = [&](const std::string& text, const std::string& place, std::string_view word) {
    expect_refused([&] { parse_kineto(text, "t.json"); }, place, {word});
  };
  refused("{}", "t.json", "traceEvents");
  refused("7", "t.json", "traceEvents");
  refused("", "t.json", "expected JSON");
  refused(R"({"traceEvents": []})", "t.json", "found none");
  refused(R"({"traceEvents": {}})", "t.json: key 'traceEvents'", "an array");
  refused(R"({"traceEvents": "x"})", "t.json: key 'traceEvents'", "an array");
  refused(replaced(good, "\"rank\": 0", "\"rank\": -1"), "t.json: key 'distributedInfo.rank'", "found -1");
  refused(replaced(good, "\"rank\": 0", "\"rank\": \"0\""), "t.json: key 'distributedInfo.rank'",
          "another type");
  refused(R"({"baseTimeNanoseconds": 1.5, "traceEvents": []})", "t.json: key 'baseTimeNanoseconds'", "whole");
  refused(good.substr(0, good.size() - 4), "t.json: traceEvents[0]", "unexpected end of input");
  refused(KinetoText().launch(1, "1").launch(2, "2e12").text(), "t.json", "13 days");
}

TEST(Kineto, GzipIsUnpackedAndATruncatedOneRejected) {
  const std::string text = KinetoText().launch(5, "10").kernel(5, "gemm", "20", "3").text();
  const std::string path = ::testing::TempDir() + "/dflop_kineto_test.json.gz";
  write_file_atomically(path, text);
  EXPECT_EQ(parse_kineto(read_text_file(path), path).activities.size(), 1u);
  std::string packed = gzip(text);
  packed.resize(packed.size() - 10);
  const std::string cut = ::testing::TempDir() + "/dflop_kineto_cut";
  write_file_atomically(cut, packed);
  expect_refused([&] { parse_kineto(read_text_file(cut), cut); }, cut, {"complete gzip", "ends early"});
}

TEST(Kineto, StepsIncludeTheKernelsTheyLaunched) {
  KinetoText text;
  text.launch(1, "5")
      .x("user_annotation", "ProfilerStep#8", "20", "10", 1)
      .x("user_annotation", "ProfilerStep#7", "10", "10", 1)
      .launch(2, "12")
      .launch(3, "29")
      .launch(4, "30")
      .kernel(4, "d", "40", "1")
      .kernel(1, "a", "11", "1")
      .kernel(2, "b", "25", "1")
      .kernel(3, "c", "30", "1");
  const KinetoTrace trace = text.trace();
  ASSERT_EQ(trace.steps.size(), 2u);
  EXPECT_EQ(trace.steps[0].number, 7);
  EXPECT_EQ(trace.steps[1].start, ns(15'000));
  // In the order of their starts: a is outside all steps, b belongs to step 7 although it runs in 8, c to 8,
  // d is after all.
  std::vector<std::int32_t> steps;
  for (const KinetoActivity& activity : trace.activities) steps.push_back(activity.step);
  EXPECT_EQ(steps, (std::vector<std::int32_t>{-1, 0, 1, -1}));
}

TEST(Kineto, CopiesHaveBytesAndGraphsManyKernels) {
  KinetoText text;
  text.x("cuda_runtime", "cudaMemcpyAsync", "1", "1", 1, R"("correlation": 1)")
      .x("gpu_memcpy", "Memcpy HtoD", "3", "1", 7,
         R"("device": 0, "stream": 7, "correlation": 1, "bytes": 4096)")
      .x("cuda_runtime", "cudaGraphLaunch", "4", "1", 1, R"("correlation": 2)")
      .kernel(2, "a", "6", "1")
      .kernel(2, "b", "7", "1");
  const KinetoTrace trace = text.trace();
  ASSERT_EQ(trace.activities.size(), 3u);
  EXPECT_EQ(trace.activities[0].work, KinetoWork::copy);
  EXPECT_EQ(trace.activities[0].bytes, Bytes{4096});
  EXPECT_EQ(trace.activities[1].launch, 1);
  EXPECT_EQ(trace.activities[2].launch, 1);
}

TEST(KinetoCollective, IsDescribedByTheKernel) {
  const auto collective = [](const std::string& more) {
    return KinetoText(R"("distributedInfo": {"rank": 0, "world_size": 64},)")
        .kernel(1, "ncclDevKernel_AllGather_RING_LL(x)", "1", "2", 20, more)
        .trace()
        .collectives.at(0);
  };
  const KinetoCollective c = collective(
      R"(, "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 1000, "Out msg nelems": 4000,
         "Group size": 4, "Process Group Name": "dp", "Process Group Ranks": "[6, 0, 2, 4]", "Seq": 17)");
  EXPECT_EQ(c.name, "_allgather_base");
  EXPECT_EQ(c.in, Bytes{2000});
  EXPECT_EQ(c.out, Bytes{8000});
  EXPECT_EQ(c.bytes(), Bytes{8000});
  EXPECT_EQ(c.group, "dp");
  EXPECT_EQ(c.ranks, (std::vector<std::int32_t>{0, 2, 4, 6}));
  EXPECT_EQ(c.sequence, 17);
  // The cases: a list as JSON, a truncated list, an unknown type, and nothing at all.
  EXPECT_EQ(collective(R"(, "Process Group Ranks": [1, 0])").ranks, (std::vector<std::int32_t>{0, 1}));
  EXPECT_TRUE(collective(R"(, "Group size": 64, "Process Group Ranks": "[0, 1, ...]")").ranks.empty());
  EXPECT_EQ(collective(R"(, "In msg nelems": 5, "dtype": "Float3")").bytes(), std::nullopt);
  EXPECT_EQ(collective("").name, "AllGather");
  EXPECT_EQ(collective("").sequence, std::nullopt);
  expect_refused(
      [&] { collective(R"(, "Process Group Ranks": [1, "x"])"); },
      "t.json: traceEvents[0] 'ncclDevKernel_AllGather_RING_LL(x)': key 'args.Process Group Ranks'",
      {"ranks"});
}

TEST(KinetoCollective, OldTracesDescribeItAroundTheLaunch) {
  KinetoText text;
  text.x("user_annotation", "nccl:all_reduce", "1", "10", 1,
         R"("Input Dims": [[20, 30], [7]], "Input type": ["c10::BFloat16", "float"])")
      .launch(1, "4")
      .kernel(1, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", "20", "5", 20)
      .launch(2, "12")
      .kernel(2, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", "30", "5", 20);
  const KinetoTrace trace = text.trace();
  ASSERT_EQ(trace.collectives.size(), 2u);
  EXPECT_EQ(trace.collectives[0].name, "all_reduce");
  EXPECT_EQ(trace.collectives[0].bytes(), Bytes{20 * 30 * 2 + 7 * 4});
  EXPECT_EQ(trace.collectives[1].name, "SendRecv");
  EXPECT_EQ(trace.collectives[1].bytes(), std::nullopt);
}

TEST(KinetoCollective, KernelsOfCommunicationByName) {
  EXPECT_EQ(communication_name("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(a)"), "AllReduce");
  EXPECT_EQ(communication_name("ncclKernel_Broadcast_RING_LL_Sum_int8_t(a)"), "Broadcast");
  EXPECT_EQ(communication_name("ncclDevKernel_SendRecv(a)"), "SendRecv");
  EXPECT_EQ(communication_name("void deep_ep::internode::dispatch<false, 8>(int4*)"), "dispatch");
  EXPECT_EQ(communication_name("void gemm_nccl_like(int)"), std::nullopt);
}

}  // namespace kineto_test
}  // namespace dflop
