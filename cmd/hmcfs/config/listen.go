package config

import (
	"fmt"
	"net"
	"strconv"
)

// ListenAddress returns the address at which to listen for an option that is HOST:PORT: without a
// host it is one of this machine alone.
func ListenAddress(text string) string {
	if host, port, err := net.SplitHostPort(text); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return text
}

// checkListen checks the address of an option at which to listen; empty is none. Port 0 lets the
// kernel choose a port, which the status shows.
func checkListen(name, text string) error {
	if text == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s: %q is not HOST:PORT, such as 127.0.0.1:9464, or :9464 for this machine alone", name, text)
	}
	return nil
}
