package transport

// Path is the way that bytes took. Its text is what user.hmc.path and the
// counters show.
type Path string

// The ways of one machine.
const (
	// PathH2D is host bytes copied into a device.
	PathH2D Path = "h2d"
	// PathD2H is device bytes copied to the host, or shown to it by a map.
	PathD2H Path = "d2h"
	// PathD2D is a copy inside one device, by the device.
	PathD2D Path = "d2d"
	// PathPeer is a copy between two devices without the host.
	PathPeer Path = "d2d-peer"
	// PathMapped is a copy between two devices' memories by the host's
	// processor, straight from one map to the other.
	PathMapped Path = "mapped"
	// PathStaged is a copy between two devices through pinned host slots.
	PathStaged Path = "staged"
	// PathFill is a device, or the host for a file, setting bytes to one value.
	// It moves nothing between the two.
	PathFill Path = "fill"
	// PathPassthrough is the kernel moving bytes from and to a file of the
	// host tier by itself; hmcfs never sees them and can't count them.
	PathPassthrough Path = "passthrough"
)

// The ways between processes and machines, by the transport that carries the
// bytes. UCX says more: "ucx:" and what it uses.
const (
	PathTCP  Path = "tcp"
	PathSHM  Path = "shm"
	PathRDMA Path = "rdma"
)
