// On which of the machine's processors a thread stays.
#pragma once

#include <functional>
#include <vector>

namespace dflop {

/// One processor of each core, then the others, which share a core with one of them as hyperthreads do.
/// `core_of`: equal for those of one core.
std::vector<int> cores_first(const std::vector<int>& processors, const std::function<int(int)>& core_of);

/// Those that the calling thread may use, in the order of cores_first(); none where the system does not tell.
std::vector<int> usable_processors();

/// The calling thread stays there. Where the system does not allow it, it goes where it likes.
void stay_on_processor(int processor);

}  // namespace dflop
