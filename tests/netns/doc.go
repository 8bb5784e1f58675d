// Package netns creates two network namespaces with a cable between them: a program in one
// sees the other as a separate machine, with an IPv4 and an IPv6 address and a host name. The
// cable can be unplugged.
//
//	cable, err := netns.New(ctx)
//	defer cable.Close()
//	cable.Left.Command(ctx, "hmcfs", "perf", "serve", …)
//
// NewNet creates several of them at one switch: any two can be cut off from each other, and
// each can be slowed down. NewRelayed replaces the kernel's switch by one in this process,
// which drops and delays frames in each direction on request, even if the kernel has neither
// netem nor a packet filter. It needs /dev/net/tun.
//
// A namespace lives as long as an idle process in it, which ends with the process that created
// it, however that ends: nothing has a name on the machine that could be left behind. The
// package needs root, ip and tc (iproute2), and nsenter (util-linux).
package netns
