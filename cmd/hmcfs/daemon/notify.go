package daemon

import (
	"net"
	"strings"

	"go.uber.org/zap"
)

// tell sends assignments to the service manager, as sd_notify does; see systemd's man page. The
// name of an abstract socket begins with @, as it does for package net.
func (d *Daemon) tell(assignments ...string) {
	path := d.opts.NotifySocket
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(strings.Join(assignments, "\n")))
		_ = conn.Close() // the message has been sent, or not
	}
	if err != nil {
		d.log.Warn("the service manager can't be told; with Type=notify it ends the daemon after its timeout", zap.Strings("message", assignments), zap.Error(err))
	}
}
