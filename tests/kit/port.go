package kit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a port of a host at which no process listens, for a server that must be told one.
// It may stop and listen again, and clients dial it meanwhile; so the port is below 32768, from where
// on the kernel assigns ports itself: otherwise another server could take the port, or a client could
// connect to itself.
func FreePort(host string) (int, error) {
	const lowest, above = 20_000, 32_000
	var err error
	for range 100 {
		port := lowest + rand.IntN(above-lowest)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a port: %w", err)
}
