// A run's processes meet at this server, a thread of rank 0's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/process/frame_socket.hpp"
#include "core/units.hpp"

namespace dflop {

/// This text says, behind a rank's name, that its connection has ended without a goodbye.
inline constexpr const char* kGone =
    " is gone: its connection was closed without a reason; its process was ended, or its machine or "
    "network was lost";

/// RendezvousOptions say where the processes of a run meet, and as whom this one comes.
struct RendezvousOptions {
  std::string host;     ///< of rank 0
  int port = 0;         ///< there
  int rank = 0;         ///< of this process
  int ranks = 1;        ///< one of which each process has
  Seconds meeting{60};  ///< until all have come
  Seconds timeout{60};  ///< that a rank waits for another after that
};

/// A RendezvousServer brings values from one rank to others, and what ends the run of one to all. Connections
/// that do not say hello as a rank of this run does are closed, and change nothing.
class RendezvousServer {
 public:
  /// Begins to listen. @throws Error (internal) where it cannot.
  explicit RendezvousServer(const RendezvousOptions& options);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

 private:
  struct Peer {
    Descriptor connection;
    FrameBuffer received;
    Deadline hello_by;
    int rank = -1;  ///< none before its hello
  };
  struct Value {
    std::string value;
    std::uint32_t readers = 0;  ///< that still will get it
  };
  /// A Report has what each rank waits for, as far as it has said.
  struct Report {
    int origin = 0;  ///< that has waited for too long
    Deadline deadline;
    std::map<int, std::string> states;
  };

  void run(const std::stop_token& stop);
  void wait();
  void accept();
  void read(Peer& peer);
  void handle(Peer& peer, Frame frame);
  void greet(Peer& peer, const Frame& hello);
  void put(Frame frame);
  void get(Peer& peer, const std::string& key);
  void leave(int rank);
  void lose(Peer& peer);
  void ask_all(int origin);
  void add_state(int rank, const std::string& state);
  void finish_report();
  void check_times();
  void end_run(const std::string& reason, const std::string& origin = "");
  void send(Peer& peer, const Frame& frame);
  void send_all(const Frame& frame);
  Peer* peer_of(int rank);
  std::string missing() const;

  const RendezvousOptions options_;
  const Deadline meeting_ends_;
  Descriptor listener_;
  Descriptor wake_read_;
  Descriptor wake_write_;
  std::vector<std::unique_ptr<Peer>> peers_;
  bool met_ = false;
  std::set<int> left_;  ///< ranks that have come to their end, whether connected or not
  std::map<std::string, Value> values_;
  std::map<std::string, std::vector<int>> wanted_;  // by key, the ranks that wait for it
  std::optional<Report> report_;
  std::optional<Frame> ended_;
  std::jthread thread_;  // the last: what it uses is there before and after
};

}  // namespace dflop
