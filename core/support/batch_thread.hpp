// Threads that do batch work do not interrupt others when they are woken.
#pragma once

namespace dflop {

/// Makes the calling thread one of batch work (Linux: SCHED_BATCH): waking it does not interrupt a thread
/// that is at work. So who hands it work or sends it a message goes on, and it begins on a core that is free.
/// A thread that has another policy than the usual one, SCHED_OTHER, keeps it, as that is the user's choice
/// and none of them interrupts its like. Where the system refuses, nothing but time is lost.
void become_batch_work();

}  // namespace dflop
