#include "core/support/background_thread.hpp"

#ifdef __linux__
#include <sched.h>
#endif

namespace dflop {

void yield_to_training() {
#ifdef __linux__
  const sched_param none{};
  static_cast<void>(::sched_setscheduler(0, SCHED_BATCH, &none));  // 0: the calling thread
#endif
}

}  // namespace dflop
