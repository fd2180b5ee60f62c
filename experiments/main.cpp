#include <string_view>

#include "experiments/cli/command.hpp"
#include "traces/text/text_file.hpp"

int main(int argc, char** argv) {
  // The programs that start a server end it with a signal.
  const bool is_server = argc > 1 && std::string_view(argv[1]) == "serve";
  dflop::remove_temporaries_on_signals(!is_server);
  return dflop::run_dflop(std::vector<std::string>(argv + 1, argv + argc));
}
