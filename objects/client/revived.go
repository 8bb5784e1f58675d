package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

const (
	// firstPause and lastPause are the pauses between two attempts to reach the next daemon.
	firstPause, lastPause = 5 * time.Millisecond, 200 * time.Millisecond
	// missingLimit bounds the time for which a daemon that follows may have no socket yet: one that has died leaves
	// it, and one that has ended in order does not.
	missingLimit = 2 * time.Second
	// attemptLimit is the patience of clients.
	attemptLimit = 10 * time.Second
	// revivedLimit bounds the wait of clients that were not promised a daemon.
	revivedLimit = time.Minute
	// mostCut bounds the attempts of such a client that a daemon may cut off: one that dies does so once, but so does one
	// that this user has too many connections with, each time.
	mostCut = 5
	// mostDied bounds the attempts whose daemon dies after it has the request, which may be the cause.
	mostDied = 3
)

// Revived makes attempts to reach a daemon while its holder starts it again: until one succeeds, or fails with another
// error than those of a daemon that has died. It returns the last error.
func (c *Client) Revived(ctx context.Context, attempt func(context.Context) error) error {
	return c.retry(ctx, 0, attempt)
}

// retry is Revived, also for a client that was promised another daemon within a time; 0 is none. That one goes on unless a daemon
// refuses it, or it knows that nobody starts one.
func (c *Client) retry(ctx context.Context, promised time.Duration, attempt func(context.Context) error) error {
	var missing time.Time // the time since which there is no socket
	cut, died, limit := 0, 0, time.Now().Add(cmp.Or(promised, revivedLimit))
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := attempt(ctx)
		if err == nil || ctx.Err() != nil || isFinal(err) || time.Now().After(limit) {
			return err
		}
		if promised == 0 {
			switch {
			case errors.Is(err, hetero.ErrDisconnected):
				died++
			case isClosed(err):
				cut++
			}
			if !IsDeath(err) && !isEnding(err) || cut > mostCut || died >= mostDied {
				return err
			}
		}
		if does, known := c.revives(ctx); !does && (known || promised == 0) {
			return err
		}
		switch {
		case !errors.Is(err, unix.ENOENT):
			missing = time.Time{}
		case missing.IsZero():
			missing = time.Now()
		case time.Since(missing) > missingLimit:
			return err // it has ended in order
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isFinal reports whether another attempt makes no sense: a daemon has refused it, and not for the moment.
func isFinal(err error) bool {
	if _, last := errors.AsType[lastError](err); last {
		return true
	}
	said, ok := errors.AsType[*Error](err)
	return ok && said.Code != adminapi.CodeBusy && !isEnding(err) || errors.Is(err, ErrForeign) || errors.Is(err, frames.ErrFrame)
}

// isEnding reports whether a daemon has refused something because it is ending: another may follow.
func isEnding(err error) bool {
	said, ok := errors.AsType[*Error](err)
	return ok && said.Code == adminapi.CodeEnding
}

// IsDeath reports whether an error can be that of a daemon that has died. The next one replaces its socket, and for a moment there
// is none.
func IsDeath(err error) bool {
	absent := errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
	return absent || errors.Is(err, ErrNoDaemon) || errors.Is(err, hetero.ErrDisconnected) || isClosed(err)
}

// Revives reports whether the daemon has a holder that starts it again. It is false where that can't be known.
func (c *Client) Revives(ctx context.Context) bool {
	does, _ := c.revives(ctx)
	return does
}

// revives asks the holder. known is false for a user who may not ask it, and if there is no socket of one.
func (c *Client) revives(ctx context.Context) (does, known bool) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", filepath.Join(filepath.Dir(c.socket), adminapi.HolderSocket))
	if err != nil {
		return false, errors.Is(err, unix.ECONNREFUSED)
	}
	defer func() { _ = conn.Close() }() // it has been read
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var said struct {
		Status *struct {
			GaveUp bool `json:"gave_up"`
		} `json:"status"`
	}
	packet := make([]byte, sessionBuffer)
	if _, err = conn.Write([]byte(adminapi.HolderStatus)); err != nil {
		return false, false
	}
	n, err := conn.Read(packet)
	if err != nil || json.Unmarshal(packet[:n], &said) != nil || said.Status == nil {
		return false, false
	}
	return !said.Status.GaveUp, true
}
