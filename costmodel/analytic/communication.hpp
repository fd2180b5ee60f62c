// Messages and collectives take a time by latency and bandwidth: alpha + bytes / beta (Hockney 1994),
// uncontended.
#pragma once

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// Returns the time of a ring all-reduce of `bytes` on each of `ranks`: 2 (n - 1) steps of bytes / n (Thakur
/// et al. 2005; Patarasuk and Yuan 2009). An all-gather and a reduce-scatter, as under sequence parallelism,
/// together move the same. One rank: zero.
Seconds ring_all_reduce(const Link& link, int ranks, double bytes);

/// Returns the time of an all-reduce of one tensor over a tp group: a ring in its node; where tp is more than
/// a node's GPUs, rings in each node and between the nodes, a part of the tensor between each GPU and its
/// likes. NCCL sends in chunks, the rings work at the same time on different ones, and the slower link
/// decides.
Seconds tensor_all_reduce_time(const ClusterSpec& cluster, int tp, double bytes);

/// Tells whether all ranks of both groups of a message are on one node.
bool inside_node(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns what each link that a message uses carries of its exchange: port_bytes, split as message_time()
/// says.
double bytes_on_link(const Message& message, const Program& program);

/// Returns what a message takes beside its bytes on the link: the link's latency, the cluster's
/// message_overhead and, without sequence parallelism, where every rank needs a whole copy, the all-gather
/// inside the node that makes it of the parts (Narayanan et al. 2021, section 4.1: scatter/gather). The link
/// is that inside a node if all ranks of both groups are on one, else that between nodes.
Seconds message_latency(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the time from send to arrival. The message is split over min(source ranks, destination ranks)
/// pairs of ranks. The link carries port_bytes, not bytes: what the busier end moves in the same exchange
/// shares that end's NIC, so several messages of one reshard do not each get all of it.
Seconds message_time(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the time of a gradient reduction: the sum over the phases of costmodel/analytic/collectives.hpp.
///
/// Where the cluster says so (node_ring_bandwidth_bytes_per_s), groups with several ranks in a node do not
/// get a card for each: the rings of all tp indices share that bandwidth. So it was measured on A100 nodes of
/// 2022; see docs/calibration.md.
///
/// Under ZeRO-1 the reduction is a reduce-scatter of fp32 gradients and, after the optimizer step, an
/// all-gather of bf16 parameters (Rajbhandari et al. 2020). Both are charged here, as the all-reduce, which
/// is an upper bound: 8 bytes a parameter instead of 6.
Seconds all_reduce_time(const ClusterSpec& cluster, const Collective& collective, const Program& program);

}  // namespace dflop
