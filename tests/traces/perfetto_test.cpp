#include "traces/files/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/timeline_fixtures.hpp"

namespace dflop {
namespace perfetto_test {

using Json = nlohmann::json;

/// Converts microseconds, as text with three decimals, back to whole nanoseconds.
std::int64_t nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

struct Slice {
  std::string name;
  std::int64_t start;
  std::int64_t end;
};

/// A trace, sorted by what the tests need.
struct Trace {
  explicit Trace(const std::string& text) : events(Json::parse(text).at("traceEvents")) {
    for (const Json& event : events) {
      const std::string phase = event.at("ph");
      if (phase == "M" && event.at("name") == "thread_name")
        tracks[event.at("tid")] = event.at("args").at("name");
      if (phase == "M" && event.at("name") == "process_name") processes.insert(event.at("args").at("name"));
      if (phase == "X") {
        const std::int64_t start = nanoseconds(event.at("ts"));
        slices[event.at("tid")].push_back({event.at("name"), start, start + nanoseconds(event.at("dur"))});
      }
      if (phase == "s") flow_begins[event.at("id")].push_back(event);
      if (phase == "f") flow_ends[event.at("id")].push_back(event);
      if (phase == "C") counters.insert(event.at("name"));
    }
  }

  /// Returns the slices of the track with this name.
  std::vector<Slice> on(const std::string& track) const {
    for (const auto& [tid, name] : tracks) {
      if (name == track) return slices.at(tid);
    }
    ADD_FAILURE() << "no track " << track;
    return {};
  }

  const Slice* enclosing(const Json& event) const {
    const std::int64_t time = nanoseconds(event.at("ts"));
    for (const Slice& slice : slices.at(event.at("tid"))) {
      if (slice.start <= time && time < slice.end) return &slice;
    }
    return nullptr;
  }

  Json events;
  std::map<int, std::string> tracks;
  std::set<std::string> processes;
  std::map<int, std::vector<Slice>> slices;  ///< by track
  std::map<std::int64_t, std::vector<Json>> flow_begins;
  std::map<std::int64_t, std::vector<Json>> flow_ends;
  std::set<std::string> counters;
};

Trace trace_of(const std::vector<Timeline>& iterations) {
  return Trace(to_perfetto(iterations));
}

std::set<std::string> track_names(const Trace& trace) {
  std::set<std::string> names;
  for (const auto& [tid, name] : trace.tracks) names.insert(name);
  return names;
}

TEST(Perfetto, OneTrackPerRankAndStream) {
  const Trace trace = trace_of({small_timeline()});
  EXPECT_EQ(track_names(trace),
            (std::set<std::string>{"rank 0 compute", "rank 0 send", "rank 1 compute", "rank 1 receive",
                                   "rank 2 compute", "rank 2 receive"}));
  EXPECT_EQ(trace.processes, (std::set<std::string>{"encoder 0", "llm 0"}));
  EXPECT_EQ(trace.counters, (std::set<std::string>{"rank 0 memory", "rank 1 memory", "rank 2 memory"}));
}

/// In this timeline the second of two shared GPUs has only rank 1, and the first has ranks 0 and 2. The
/// tracks of both ranks are in one process.
TEST(Perfetto, SharedGpusAreProcessesWithTheListsOfBothModules) {
  Timeline timeline = small_timeline();
  timeline.shared_gpus = 2;
  const Trace trace = trace_of({timeline});
  EXPECT_EQ(trace.processes, (std::set<std::string>{"GPU 0", "GPU 1"}));
  EXPECT_EQ(track_names(trace), (std::set<std::string>{"encoder 0 rank 0 compute", "encoder 0 rank 0 send",
                                                       "llm 0 rank 1 compute", "llm 0 rank 1 receive",
                                                       "llm 0 rank 2 compute", "llm 0 rank 2 receive"}));
  std::map<std::string, int> process_of;
  for (const Json& event : trace.events) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name")
      process_of[event.at("args").at("name")] = event.at("pid");
  }
  EXPECT_EQ(process_of.at("encoder 0 rank 0 compute"), process_of.at("llm 0 rank 2 compute"));
  EXPECT_NE(process_of.at("encoder 0 rank 0 compute"), process_of.at("llm 0 rank 1 compute"));
}

TEST(Perfetto, SpansAreNamedAndExactToTheNanosecond) {
  const std::string text = to_perfetto(std::vector{small_timeline()});
  // 1500 ns is 1.500 us, 3000 ns is 3.000 us; stage 1 is process 2.
  EXPECT_NE(text.find("\"name\":\"forward mb 3\",\"cat\":\"compute\",\"pid\":2"), std::string::npos) << text;
  EXPECT_NE(text.find("\"ts\":1.500,\"dur\":3.000,"
                      "\"args\":{\"iteration\":0,\"stage\":1,\"microbatch\":3,\"bytes\":0}"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"name\":\"reshard mb 3\""), std::string::npos);
  EXPECT_NE(text.find("\"bytes\":64}"), std::string::npos);
}

TEST(Perfetto, IterationsFollowEachOther) {
  const Trace trace = trace_of({small_timeline(), small_timeline()});
  const std::vector<Slice> slices = trace.on("rank 2 compute");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[1].start - slices[0].start, small_timeline().makespan.count());
}

// Of 4500 ns, 500 belong to the previous step: one group ends it while the other begins the next.
TEST(Perfetto, IterationsThatOverlapAreDrawnOverEachOther) {
  Timeline timeline = small_timeline();
  timeline.groups[1].begin = Nanoseconds(500);
  timeline.makespan = Nanoseconds(4000);
  const std::vector<Slice> slices = trace_of({timeline, timeline}).on("rank 2 compute");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[1].start - slices[0].start, 4000);
}

TEST(Perfetto, ArrowsLeadFromEverySendToItsReceive) {
  const Trace trace = trace_of({small_timeline(), small_timeline()});
  // One message to the two ranks of the second group, in each of two iterations: four arrows.
  EXPECT_EQ(trace.flow_begins.size(), 4U);
  std::multiset<std::string> ends;
  for (const auto& [id, event] : trace.flow_ends) ends.insert(trace.tracks.at(event[0].at("tid")));
  EXPECT_EQ(ends, (std::multiset<std::string>{"rank 1 receive", "rank 1 receive", "rank 2 receive",
                                              "rank 2 receive"}));
}

/// What Perfetto requires of any trace: the slices of a track do not overlap, and each arrow has a unique id,
/// begins and ends inside slices and leads forward in time.
void expect_drawable(const Trace& trace) {
  for (const auto& [tid, unsorted] : trace.slices) {
    std::vector<Slice> slices = unsorted;
    std::stable_sort(slices.begin(), slices.end(),
                     [](const Slice& a, const Slice& b) { return a.start < b.start; });
    for (std::size_t i = 1; i < slices.size(); ++i) {
      ASSERT_LE(slices[i - 1].end, slices[i].start) << trace.tracks.at(tid);
    }
  }
  ASSERT_EQ(trace.flow_begins.size(), trace.flow_ends.size());
  for (const auto& [id, begins] : trace.flow_begins) {
    ASSERT_EQ(begins.size(), 1U);
    ASSERT_EQ(trace.flow_ends.count(id), 1U);
    ASSERT_EQ(trace.flow_ends.at(id).size(), 1U);
    const Json& end = trace.flow_ends.at(id)[0];
    ASSERT_LE(nanoseconds(begins[0].at("ts")), nanoseconds(end.at("ts")));
    const Slice* send = trace.enclosing(begins[0]);
    const Slice* receive = trace.enclosing(end);
    ASSERT_NE(send, nullptr);
    ASSERT_NE(receive, nullptr);
    // The name contains the microbatch, as in "send mb 7" and "receive mb 7".
    ASSERT_EQ(send->name.substr(send->name.find("mb")), receive->name.substr(receive->name.find("mb")));
  }
}

TEST(Perfetto, RandomTimelinesAreDrawable) {
  Random random(21);
  for (int round = 0; round < 30; ++round) {
    const std::vector<Timeline> iterations = {random_timeline(random), random_timeline(random)};
    const Trace trace = trace_of(iterations);
    expect_drawable(trace);
    std::size_t expected_slices = 0;
    for (const Timeline& timeline : iterations) {
      std::map<std::int32_t, std::size_t> ranks;
      for (const GroupUsage& group : timeline.groups)
        ranks[group.first_rank] = static_cast<std::size_t>(group.ranks);
      for (const Span& span : timeline.spans) expected_slices += ranks.at(span.rank);
    }
    std::size_t slices = 0;
    for (const auto& [tid, on_track] : trace.slices) slices += on_track.size();
    EXPECT_EQ(slices, expected_slices);
  }
}

TEST(Perfetto, MessagesInFlightTogetherGetLanesOfTheirOwn) {
  Timeline timeline = small_timeline();
  Span second = timeline.spans[1];
  second.start += Nanoseconds(1);
  second.message = 1;
  timeline.spans.push_back(second);
  const Trace trace = trace_of({timeline});
  EXPECT_EQ(trace.on("rank 0 send").size(), 1U);
  EXPECT_EQ(trace.on("rank 0 send 2").size(), 1U);
}

TEST(Perfetto, BeyondTheLimitOnlyFirstRanksAreDrawn) {
  // All ranks: 1 + 2 x 1 (send) + 2 x 2 x 1 (receive) + 2 slices and ends, 1 + 2 memory points: 12 events.
  const std::vector<Timeline> iterations = {small_timeline()};
  EXPECT_EQ(track_names(Trace(to_perfetto(iterations, 12))).count("rank 2 compute"), 1U);
  const Trace first_only(to_perfetto(iterations, 11));
  EXPECT_EQ(track_names(first_only).count("rank 2 compute"), 0U);
  EXPECT_EQ(track_names(first_only).count("rank 1 compute"), 1U);
  EXPECT_EQ(first_only.processes.count("llm 0 (first rank of each tp group only)"), 1U);
  expect_drawable(first_only);
}

// The second iteration begins at 4500 ns.
TEST(Perfetto, TheCriticalPathIsATrackOfItsOwn) {
  const std::vector<Timeline> iterations = {small_timeline(), small_timeline()};
  const std::vector<PathSlice> path = {{1, "stage 0 \"x\"", Nanoseconds(0), Nanoseconds(1000)},
                                       {1, "message 0->1 mb 3", Nanoseconds(1000), Nanoseconds(500)}};
  const Trace trace(to_perfetto(iterations, kMaxTraceEvents, path));
  EXPECT_EQ(trace.processes, (std::set<std::string>{"encoder 0", "llm 0", "critical path"}));
  const std::vector<Slice> slices = trace.on("critical path");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0].name, "stage 0 \"x\"");
  EXPECT_EQ(slices[0].start, 4500);
  EXPECT_EQ(slices[0].end, 5500);
  EXPECT_EQ(slices[1].name, "message 0->1 mb 3");
  EXPECT_EQ(slices[1].start, 5500);
  EXPECT_EQ(slices[1].end, 6000);
}

TEST(Perfetto, NothingIsAnEmptyTrace) {
  EXPECT_TRUE(trace_of({}).events.empty());
  EXPECT_TRUE(trace_of({Timeline{}}).events.empty());
}

TEST(Perfetto, ARankWithoutGroupIsAnInternalError) {
  Timeline timeline = small_timeline();
  timeline.spans[0].rank = 9;
  EXPECT_EQ(error_of([&] { to_perfetto(std::vector{timeline}); }).kind(), ErrorKind::internal);
}

}  // namespace perfetto_test
}  // namespace dflop
