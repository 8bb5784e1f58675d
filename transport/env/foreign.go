package env

import (
	"net/netip"
	"strings"
)

// nothing returns a reader that only checks a text, which has no meaning here.
func nothing(right check) func(*values, string, bool) bool {
	return func(_ *values, text string, _ bool) bool { return right(text) }
}

// rdma returns the knobs of HCOMM's queue pairs.
func rdma() []Knob {
	const why = "hmcfs has no queue pairs of its own; UCX has variables for those that it creates"
	return []Knob{
		{
			Name: "HMCFS_RDMA_TC", Alias: "HCCL_RDMA_TC", Default: "132", Expected: "a multiple of 4 from 0 to 255",
			Meaning: "Traffic class.", Ignored: why,
			read: nothing(func(s string) bool { return within(0, 255)(s) && number(s)%4 == 0 }),
		},
		{
			Name: "HMCFS_RDMA_SL", Alias: "HCCL_RDMA_SL", Default: "4", Expected: "an integer from 0 to 7",
			Meaning: "Service level.", Ignored: why, read: nothing(within(0, 7)),
		},
		{
			Name: "HMCFS_RDMA_TIMEOUT", Alias: "HCCL_RDMA_TIMEOUT", Default: "20", Expected: "an integer from 5 to 24",
			Meaning: "Exponent of the time before a packet is retransmitted.", Ignored: why, read: nothing(within(5, 24)),
		},
		{
			Name: "HMCFS_RDMA_RETRY_CNT", Alias: "HCCL_RDMA_RETRY_CNT", Default: "7", Expected: "an integer from 1 to 7",
			Meaning: "How often a packet is retransmitted.", Ignored: why, read: nothing(within(1, 7)),
		},
		{
			Name: "HMCFS_RDMA_QPS_PER_CONNECTION", Alias: "HCCL_RDMA_QPS_PER_CONNECTION", Default: "1",
			Expected: "an integer from 1 to 32", Meaning: "Queue pairs for each connection.", Ignored: why, read: nothing(within(1, 32)),
		},
		{
			Name: "HMCFS_MULTI_QP_THRESHOLD", Alias: "HCCL_MULTI_QP_THRESHOLD", Default: "512",
			Expected: "an integer from 1 to 8192", Meaning: "Data size in KiB from which several queue pairs are used.", Ignored: why,
			read: nothing(within(1, 8192)),
		},
	}
}

// sockets returns the knobs for the addresses at which HCOMM listens and
// connects.
func sockets() []Knob {
	const why = "addresses come from HMCFS_BOOK, which `hmcfs run` sets, or from a mount's --listen"
	return []Knob{
		{
			Name: "HMCFS_IF_IP", Alias: "HCCL_IF_IP", Expected: "an IP address", Meaning: "IP address of this process.", Ignored: why,
			read: nothing(func(s string) bool { _, err := netip.ParseAddr(s); return err == nil }),
		},
		{
			Name: "HMCFS_SOCKET_IFNAME", Alias: "HCCL_SOCKET_IFNAME",
			Expected: "names of interfaces, separated by commas, after an optional ^ (all but these) or = (exactly these)",
			Meaning:  "The network interfaces to use.", Ignored: why, read: nothing(isInterfaces),
		},
		{
			Name: "HMCFS_SOCKET_FAMILY", Alias: "HCCL_SOCKET_FAMILY", Expected: "AF_INET or AF_INET6",
			Meaning: "IP version, IPv4 or IPv6.", Ignored: why, read: nothing(oneOf("AF_INET", "AF_INET6")),
		},
		{
			Name: "HMCFS_IF_BASE_PORT", Alias: "HCCL_IF_BASE_PORT", Expected: "an integer from 1024 to 65520",
			Meaning: "The first port to use.", Ignored: why, read: nothing(within(1024, 65520)),
		},
		{
			Name: "HMCFS_HOST_SOCKET_PORT_RANGE", Alias: "HCCL_HOST_SOCKET_PORT_RANGE", Expected: portsExpected,
			Meaning: "Ports for the host.", Ignored: why, read: nothing(isPorts),
		},
		{
			Name: "HMCFS_NPU_SOCKET_PORT_RANGE", Alias: "HCCL_NPU_SOCKET_PORT_RANGE", Expected: portsExpected,
			Meaning: "Ports for the devices.", Ignored: why, read: nothing(isPorts),
		},
	}
}

// others returns the remaining knobs.
func others() []Knob {
	return []Knob{
		{
			Name: "HMCFS_WHITELIST_DISABLE", Alias: "HCCL_WHITELIST_DISABLE", Default: "1",
			Expected: "1: there is no list of permitted addresses; ranks prove that they know the secret, or present a certificate",
			Meaning:  "Whether the check of addresses is disabled.", read: nothing(oneOf("1")),
		},
		{
			Name: "HMCFS_WHITELIST_FILE", Alias: "HCCL_WHITELIST_FILE", Expected: "the path of a file",
			Meaning: "The list of permitted addresses.", Ignored: "hmcfs has no such list", read: nothing(isPath),
		},
		{
			Name: "HMCFS_OP_EXPANSION_MODE", Alias: "HCCL_OP_EXPANSION_MODE",
			Expected: "AI_CPU, AIV, HOST, HOST_TS, CCU_MS or CCU_SCHED", Meaning: "Which engine executes a collective.",
			Ignored: "collectives always run on the host", read: nothing(oneOf("AI_CPU", "AIV", "HOST", "HOST_TS", "CCU_MS", "CCU_SCHED")),
		},
		{
			Name: "HMCFS_DEBUG_CONFIG", Alias: "HCCL_DEBUG_CONFIG",
			Expected: "ALG, TASK and RESOURCE, separated by commas, after an optional ^ (all but these)",
			Meaning:  "What is logged in detail.", Ignored: "use --log-level, which applies to everything",
			read: nothing(func(s string) bool { return each(strings.TrimPrefix(s, "^"), oneOf("ALG", "TASK", "RESOURCE")) }),
		},
		{
			Name: "HMCFS_DIAGNOSE_ENABLE", Alias: "HCCL_DIAGNOSE_ENABLE", Default: "0", Expected: "0 or 1",
			Meaning: "Collect information for diagnosis.", Ignored: "use `hmcfs doctor`", read: nothing(isBit),
		},
		{
			Name: "HMCFS_DETOUR", Alias: "HCCL_DETOUR", Default: "0", Expected: "0 or 1",
			Meaning: "Use a route through a third device where there is no direct link.", Ignored: "the topology determines the routes", read: nothing(isBit),
		},
		{
			Name: "HMCFS_NIC_PLUGIN_SO", Alias: "HCOMM_NIC_PLUGIN_SO", Expected: "nothing: plugins are not supported",
			Meaning: "A library that provides a transport.", read: nothing(func(string) bool { return false }),
		},
	}
}
