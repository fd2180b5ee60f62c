#include "experiments/serve/server.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "core/refuse.hpp"
#include "experiments/serve/item_batches.hpp"
#include "experiments/serve/session.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPlace = "request";
constexpr std::int64_t kMaxPartitionSteps = std::int64_t{1} << 40;
constexpr double kLongestPartition = 86'400;

std::string_view kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::input:
    case ErrorKind::output:
      return "input";
    case ErrorKind::infeasible:
      return "infeasible";
    case ErrorKind::no_device:
    case ErrorKind::internal:
      break;
  }
  return "internal";
}

constexpr std::array<std::string_view, 6> kMethods = {"partition", "open", "push", "next", "close", "ping"};

Json partition(const JsonValue& params) {
  params.require_keys({"llm", "bins"}, {"encoder", "tokens", "dp", "encoder_dp", "objective", "token_cap",
                                        "allow_empty", "method", "seed", "stream", "steps", "time_limit_s"});
  const ItemCosts costs = read_item_costs(params);
  const ItemBins bins = read_item_bins(params);
  SolveLimits limits;
  limits.seed = params.has("seed") ? params.at("seed").unsigned_integer() : 1;
  limits.stream = costs.stream.value_or(0);
  if (params.has("steps")) limits.steps = params.at("steps").integer<std::int64_t>(1, kMaxPartitionSteps);
  if (params.has("time_limit_s"))
    limits.time = Seconds(params.at("time_limit_s").number_in(1e-6, kLongestPartition));
  const std::string method = params.has("method") ? params.at("method").string() : "local-search";
  return schedule_json(schedule_items(costs, bins, method, limits));
}

/// A WorkQueue runs tasks one after the other in its own thread. Its destructor runs the remaining tasks.
/// Each task has a size: add() waits while the waiting tasks exceed `most` in total.
class WorkQueue {
 public:
  explicit WorkQueue(std::size_t most) : most_(most), thread_([this] { work(); }) {}
  ~WorkQueue() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void add(std::size_t size, std::function<void()> task) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty() || size_ + size <= most_; });
    tasks_.push_back({size, std::move(task)});
    size_ += size;
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front().work);
      size_ -= tasks_.front().size;
      tasks_.pop_front();
      changed_.notify_all();
      lock.unlock();
      task();
      task = nullptr;  // also releases everything that the task holds
      lock.lock();
    }
  }

  struct Task {
    std::size_t size = 0;
    std::function<void()> work;
  };

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::size_t size_ = 0;  // total of all waiting tasks
  bool ended_ = false;
  std::jthread thread_;  // declared last, so that it ends before the other members are destroyed
};

/// A Request is one line. The document owns the data behind `params`.
struct Request {
  std::string line;
  JsonDocument document;
  Json id;

  explicit Request(std::string text) : line(std::move(text)), document(line, std::string(kPlace)) {}

  JsonValue params() const { return document.root().at("params"); }
};

/// Reads an id, which must be returned unchanged. A number that is not whole, or is too large, could not be.
Json read_id(const JsonValue& json) {
  Json id = Json::parse(json.text());
  if (id.is_null() || id.is_string() || id.is_number_integer()) return id;
  json.refuse_type("a string or a whole number from -2^63 to 2^64 - 1");
}

class Server {
 public:
  explicit Server(const std::function<void(const std::string&)>& write_line) : write_line_(write_line) {}

  /// Answers all pending requests.
  ~Server() = default;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void write(const Json& json) {
    // Invalid UTF-8 in ids and messages is replaced.
    const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    const std::lock_guard lock(write_mutex_);
    write_line_(line);
  }

  void take(std::string line) {
    Json id;
    try {
      if (line.size() > kMaxLineBytes) {
        refuse_input(std::string(kPlace), "expected a line of at most {} bytes, found a longer one",
                     kMaxLineBytes);
      }
      const auto request = std::make_shared<Request>(std::move(line));
      const JsonValue root = request->document.root();
      // Errors in the rest of the request are reported with its id, so that the client can tell which request
      // failed.
      if (root.has("id")) id = request->id = read_id(root.at("id"));
      // Checked before the params, because an unknown method also has unknown params.
      if (root.has("method")) root.at("method").choice_index({kMethods.begin(), kMethods.end()});
      root.require_keys({"id", "method", "params"});
      dispatch(root.at("method").string(), request);
    } catch (...) {
      respond(id, [&]() -> Json { throw; });
    }
  }

 private:
  /// A Waiting is the resources that a pushed batch holds until it is answered.
  struct Waiting {
    std::size_t items = 0;
    std::size_t bytes = 0;
  };

  struct OpenSession {
    std::unique_ptr<Session> session;
    std::mutex mutex;
    std::deque<Waiting> waiting = {};  // in the order of pushes, until they are answered
    WorkQueue nexts{kMaxWaitingBatches};
  };

  template <typename Work>
  static Json answer(const Json& id, const Work& work) {
    const auto failed = [&](std::string_view kind, const std::string& message) -> Json {
      return {{"id", id}, {"error", {{"kind", kind}, {"message", message}}}};
    };
    try {
      return {{"id", id}, {"result", work()}};
    } catch (const Error& error) {
      return failed(kind_name(error.kind()), error.what());
    } catch (const std::bad_alloc&) {
      return failed("input",
                    "the request needs more memory than there is: push smaller batches, or close sessions");
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::resource_unavailable_try_again) return failed("internal", error.what());
      return failed("input", "the system has no thread left for the request: close sessions that are done");
    } catch (const std::exception& error) {
      return failed("internal", error.what());
    }
  }

  /// Writes the answer, or an error if memory is insufficient for it.
  template <typename Work>
  void respond(const Json& id, const Work& work) {
    try {
      write(answer(id, work));
    } catch (const std::bad_alloc&) {
      write(answer(id, []() -> Json { throw std::bad_alloc(); }));
    }
  }

  void dispatch(const std::string& method, const std::shared_ptr<const Request>& request) {
    const auto now = [&](const auto& work) { respond(request->id, work); };
    if (method == "partition") {
      partitions_.add(request->line.size(), [this, request] {
        respond(request->id, [&] { return partition(request->params()); });
      });
    } else if (method == "open") {
      now([&] { return open(request->params()); });
    } else if (method == "push") {
      now([&] { return push(*request); });
    } else if (method == "next") {
      const JsonValue params = request->params();
      params.require_keys({"session"});
      const std::shared_ptr<OpenSession> session = find(params);
      session->session->ask();
      session->nexts.add(
          1, [this, request, kept = session.get()] { respond(request->id, [&] { return next(*kept); }); });
    } else if (method == "close") {
      now([&] { return close(request->params()); });
    } else {  // ping
      now([&] { return Json::object(); });
    }
  }

  Json open(const JsonValue& params) {
    if (sessions_.size() >= kMaxOpenSessions) {
      refuse_input(std::string(kPlace),
                   "expected at most {} open sessions, found one more: close those that are done",
                   kMaxOpenSessions);
    }
    auto opened = std::make_shared<OpenSession>();
    opened->session = open_session(params);
    Json result = {{"session", last_session_ + 1}};
    result.update(opened->session->opened());
    sessions_.emplace(++last_session_, std::move(opened));
    return result;
  }

  std::shared_ptr<OpenSession> find(const JsonValue& params) const {
    const JsonValue number = params.at("session");
    const auto found = sessions_.find(number.integer<std::int64_t>(1));
    if (found == sessions_.end()) number.refuse_type("an open session");
    return found->second;
  }

  Json push(const Request& request) {
    request.params().require_keys({"session", "batch"});
    const std::shared_ptr<OpenSession> session = find(request.params());
    {
      const std::lock_guard lock(session->mutex);
      if (session->waiting.size() >= kMaxWaitingBatches || waiting_items_ >= kMaxWaitingItems ||
          waiting_bytes_ >= kMaxWaitingBytes) {
        refuse_input(
            std::string(kPlace),
            "expected at most {} batches of a session, and {} items and {} bytes over all sessions, waiting "
            "for 'next', found more: call 'next' for batches that were pushed",
            kMaxWaitingBatches, kMaxWaitingItems, kMaxWaitingBytes);
      }
    }
    const Pushed pushed = session->session->push(request.params().at("batch"));
    const Waiting waits{pushed.items, request.line.size()};
    const std::lock_guard lock(session->mutex);
    session->waiting.push_back(waits);
    waiting_items_ += waits.items;
    waiting_bytes_ += waits.bytes;
    return {{"iteration", pushed.iteration}};
  }

  Json next(OpenSession& session) {
    try {
      Json answered = session.session->next();
      forget(session, 1);
      return answered;
    } catch (...) {
      forget(session, 1);
      throw;
    }
  }

  /// Removes the first `batches` waiting batches.
  void forget(OpenSession& session, std::size_t batches) {
    const std::lock_guard lock(session.mutex);
    for (; batches > 0 && !session.waiting.empty(); --batches) {
      waiting_items_ -= session.waiting.front().items;
      waiting_bytes_ -= session.waiting.front().bytes;
      session.waiting.pop_front();
    }
  }

  Json close(const JsonValue& params) {
    params.require_keys({"session"});
    const std::shared_ptr<OpenSession> session = find(params);
    session->session->close();
    sessions_.erase(params.at("session").integer<std::int64_t>(1));
    forget(*session, kMaxWaitingBatches);
    return Json::object();
  }

  const std::function<void(const std::string&)>& write_line_;
  std::mutex write_mutex_;
  std::atomic<std::size_t> waiting_items_ = 0;  // of all sessions
  std::atomic<std::size_t> waiting_bytes_ = 0;
  std::map<std::int64_t, std::shared_ptr<OpenSession>> sessions_;
  std::int64_t last_session_ = 0;
  WorkQueue partitions_{kMaxPartitionBytes};
};

}  // namespace

void serve(const std::function<std::optional<std::string>()>& read_line,
           const std::function<void(const std::string&)>& write_line) {
  refuse_pipes_and_devices();
  Server server(write_line);
  server.write({{"dflop", DFLOP_VERSION}, {"protocol", kServeProtocol}});
  while (std::optional<std::string> line = read_line()) {
    if (!line->empty()) server.take(std::move(*line));
  }
}

}  // namespace dflop
