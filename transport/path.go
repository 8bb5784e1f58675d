package transport

// Path is the way in which bytes were moved. user.hmc.path and the counters show
// its text.
type Path string

// Paths within one machine.
const (
	// PathH2D copies host bytes into a device.
	PathH2D Path = "h2d"
	// PathD2H copies device bytes to the host, or maps them for it.
	PathD2H Path = "d2h"
	// PathD2D is a copy inside one device, performed by the device.
	PathD2D Path = "d2d"
	// PathPeer is a copy between two devices that does not pass through the host.
	PathPeer Path = "d2d-peer"
	// PathMapped is a copy between two devices' memories by the host's
	// processor, straight from one map to the other.
	PathMapped Path = "mapped"
	// PathStaged is a copy between two devices through pinned host slots.
	PathStaged Path = "staged"
	// PathFill is a device, or the host for a file, setting bytes to one value.
	// It moves nothing between host and device.
	PathFill Path = "fill"
	// PathPassthrough is a transfer between the kernel and a file of the host
	// tier; hmcfs does not see it and can't count it.
	PathPassthrough Path = "passthrough"
)

// Paths between processes and machines, by the transport that carries the bytes.
// UCX adds detail: "ucx:" and the transport that it uses.
const (
	PathTCP  Path = "tcp"
	PathSHM  Path = "shm"
	PathRDMA Path = "rdma"
)
