// `dflop serve` limits client requests, reports the limit, and answers the next request.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/support/random.hpp"
#include "experiments/serve/server.hpp"
#include "tests/cli/run.hpp"

namespace dflop::testing {
namespace serve_limits_test {

using nlohmann::json;

std::string request(int id, const std::string& method, const json& params) {
  return json{{"id", id}, {"method", method}, {"params", params}}.dump() + '\n';
}

/// Returns the answers to the sent text by id, and answers without an id under -1.
std::map<int, json> answers(const Sandbox& sandbox, const std::string& sent) {
  write_all(sandbox.path("requests"), sent);
  const RunResult result = sandbox.run("serve", "requests");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::map<int, json> by_id;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) {
    const json answer = json::parse(line);
    if (!answer.contains("protocol")) by_id[answer["id"].is_number() ? answer["id"].get<int>() : -1] = answer;
  }
  return by_id;
}

void expect_refused(const json& answer, const std::string& part) {
  ASSERT_TRUE(answer.contains("error")) << answer;
  EXPECT_EQ(answer["error"]["kind"], "input") << answer;
  EXPECT_NE(answer["error"]["message"].get<std::string>().find(part), std::string::npos) << answer;
}

const json kOpen = {{"bins", 2}, {"method", "lpt"}};
const json kPush = {{"session", 1}, {"batch", {{"llm", {1, 2, 3}}}}};

TEST(ServeLimits, OpenSessions) {
  const int most = static_cast<int>(kMaxOpenSessions);
  std::string sent;
  for (int i = 1; i <= most + 1; ++i) sent += request(i, "open", kOpen);
  sent += request(100, "close", {{"session", 1}});
  sent += request(101, "open", kOpen);
  const auto all = answers(Sandbox(), sent);
  EXPECT_TRUE(all.at(most).contains("result")) << all.at(most);
  expect_refused(all.at(most + 1), "expected at most 64 open sessions");
  EXPECT_EQ(all.at(101)["result"]["session"], most + 1);
}

TEST(ServeLimits, WaitingBatches) {
  const int most = static_cast<int>(kMaxWaitingBatches);
  std::string sent = request(0, "open", kOpen);
  for (int i = 1; i <= most + 1; ++i) sent += request(i, "push", kPush);
  sent += request(5000, "open", kOpen);
  json other = kPush;
  other["session"] = 2;
  sent += request(5001, "push", other);
  for (int i = 0; i < most; ++i) sent += request(10000 + i, "next", {{"session", 1}});
  const auto all = answers(Sandbox(), sent);
  EXPECT_EQ(all.at(most)["result"]["iteration"], most - 1);
  expect_refused(all.at(most + 1), "expected at most 2048 batches of a session");
  EXPECT_TRUE(all.at(5001).contains("result")) << "it has room of its own: " << all.at(5001);
  EXPECT_EQ(all.at(10000 + most - 1)["result"]["iteration"], most - 1);
}

/// Returns a push of `count` items, each of cost 1.
std::string items(int id, std::size_t count) {
  std::string list(2 * count - 1, ',');
  for (std::size_t i = 0; i < list.size(); i += 2) list[i] = '1';
  return R"({"id": )" + std::to_string(id) +
         R"(, "method": "push", "params": {"session": 1, "batch": {"llm": [)" + list + "]}}}\n";
}

TEST(ServeLimits, ItemsOfABatchAndOfAllWaitingBatches) {
  constexpr std::size_t kMax = 65'536;  // 64 of these are 4,194,304
  std::string sent = request(0, "open", {{"bins", 4096}, {"method", "random"}}) + items(1, kMax + 1);
  for (int i = 2; i < 2 + 64; ++i) sent += items(i, kMax);
  const auto all = answers(Sandbox(), sent + items(66, 4096) + request(67, "ping", json::object()));
  expect_refused(all.at(1), "expected at most 65536 items, found 65537");
  EXPECT_EQ(all.at(65)["result"]["iteration"], 63);
  expect_refused(all.at(66), "4194304 items");
  EXPECT_TRUE(all.at(67).contains("result"));
}

TEST(ServeLimits, LengthOfALine) {
  const std::string ping = request(2, "ping", json::object());
  const std::string longest = std::string(kMaxLineBytes - ping.size() + 1, ' ') + ping;
  const auto all = answers(Sandbox(), std::string(kMaxLineBytes + 70'000, 'x') + '\n' + longest +
                                          request(3, "ping", json::object()));
  expect_refused(all.at(-1), "expected a line of at most 67108864 bytes");
  EXPECT_TRUE(all.at(2).contains("result")) << "of as many bytes as a line may have";
  EXPECT_TRUE(all.at(3).contains("result"));
}

/// Nobody writes to the pipe, so opening it would block forever.
TEST(ServeLimits, PipesAndDevicesAsFiles) {
  const Sandbox sandbox;
  ASSERT_EQ(::mkfifo(sandbox.path("fifo").c_str(), 0600), 0);
  json plan = json::parse(read_all(sandbox.path("traces/plans/llava-ov-llama3-8b-disaggregated.json")));
  json of_pipe = plan;
  of_pipe["model"] = "./fifo";
  json on_pipe = plan;
  on_pipe["cluster"] = "./fifo";
  const auto all =
      answers(sandbox, request(1, "open", {{"plan", "fifo"}}) + request(2, "open", {{"plan", "/dev/zero"}}) +
                           request(3, "open", {{"plan", "/dev/null"}}) +
                           request(4, "open", {{"plan", plan}, {"profile", "fifo"}}) +
                           request(5, "open", {{"plan", of_pipe}}) + request(6, "open", {{"plan", on_pipe}}) +
                           request(7, "open", {{"plan", "."}}) + request(8, "ping", json::object()));
  for (int id = 1; id <= 6; ++id) expect_refused(all.at(id), "expected a file, found a pipe or device");
  expect_refused(all.at(7), "found a directory");
  EXPECT_TRUE(all.at(8).contains("result"));
}

/// Whatever a line holds, it gets one answer, and the next line is served.
TEST(ServeLimits, EachLineHasOneAnswer) {
  Random random(29);
  const std::vector<std::string> good = {
      request(1, "open", kOpen), request(2, "push", kPush), request(3, "next", {{"session", 1}}),
      request(4, "close", {{"session", 1}}), request(5, "partition", {{"llm", {3, 2, 1}}, {"bins", 2}})};
  std::string sent;
  constexpr int kLines = 400;
  for (int i = 0; i < kLines; ++i) {
    std::string line = good[random.below(good.size())];
    line.pop_back();
    for (auto n = random.below(4); n > 0; --n) {
      const std::size_t at = random.below(line.size());
      if (random.below(2) == 0) {
        line[at] = static_cast<char>(random.below(256));
      } else {
        line.insert(at, line.substr(random.below(line.size()), random.below(12)));
      }
    }
    for (char& c : line) {
      if (c == '\n') c = ' ';
    }
    sent += line + '\n';
  }
  const Sandbox sandbox;
  write_all(sandbox.path("requests"), sent + request(1000, "ping", json::object()));
  const RunResult result = sandbox.run("serve", "requests");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1 + kLines + 1);  // greeting, ping
  EXPECT_NE(result.out.find(R"({"id":1000,"result":{}})"), std::string::npos);
  EXPECT_EQ(result.out.find("\"internal\""), std::string::npos) << result.out;
}

}  // namespace serve_limits_test
}  // namespace dflop::testing
