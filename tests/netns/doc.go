// Package netns makes two network namespaces with a cable between them: what
// runs in one sees the other as a machine of its own, with an IPv4 and an
// IPv6 address and a host name, and the cable can be pulled.
//
//	cable, err := netns.New(ctx)
//	defer cable.Close()
//	cable.Left.Command(ctx, "hmcfs", "perf", "serve", …)
//
// NewNet makes more of them, at one switch: any two can be cut off from each
// other, and each can be made slow. NewRelayed has a switch in this process in
// place of the kernel's: it loses and holds up frames in each direction as it
// is told, also where the kernel has no netem and no packet filter. It needs
// /dev/net/tun.
//
// A namespace lives as long as a process that does nothing in it, which ends
// with the process that made it, however that ends: nothing has a name on the
// machine that could be left behind. It needs root, ip and tc (iproute2), and
// nsenter (util-linux).
package netns
