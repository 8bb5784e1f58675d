package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

const (
	// handshake bounds the way to the daemon's readiness for descriptors.
	handshake = 10 * time.Second
	// patience bounds the answer where the context sets no deadline: content
	// in several pieces is moved into one first.
	patience = 2 * time.Minute
)

// exchange is one question with descriptors, answered.
type exchange struct {
	conn    *net.UnixConn
	session string
	reply   adminapi.Reply
	// accepted says that the daemon takes the question.
	accepted bool
	// files came with the reply.
	files []*os.File
}

// close gives everything back.
func (x *exchange) close() error {
	adminapi.CloseAll(x.files)
	return x.conn.Close()
}

// ask sends a question with descriptors, which stay the caller's. The exchange
// is the caller's to close. session is the one that it belongs to, or empty.
func (c *Client) ask(ctx context.Context, path, session string, question any, files []*os.File) (*exchange, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, c.explainShare(err)
	}
	x := &exchange{conn: conn, session: session}
	// A context that ends stops whatever waits, by a deadline in the past.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = x.run(ctx, path, question, files)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = x.close() // the exchange has failed already
		if x.accepted && isClosed(err) {
			return nil, fmt.Errorf("the daemon at %s ended before it answered: %w: %w", c.socket, ErrNoDaemon, err)
		}
		return nil, c.explainShare(err)
	}
	return x, conn.SetDeadline(time.Time{})
}

// run asks for the upgrade, sends the question and reads the answer.
func (x *exchange) run(ctx context.Context, path string, question any, files []*os.File) error {
	if err := x.limit(ctx, handshake); err != nil {
		return err
	}
	const request = "POST %s HTTP/1.1\r\nHost: hmcfs\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%sContent-Length: 0\r\n\r\n"
	header := ""
	if x.session != "" {
		header = adminapi.SessionHeader + ": " + x.session + "\r\n"
	}
	if _, err := fmt.Fprintf(x.conn, request, path, adminapi.DescriptorProtocol, header); err != nil {
		return err
	}
	// The daemon says nothing behind its 101 before it is asked, so nothing
	// that carries descriptors is read here.
	resp, err := http.ReadResponse(bufio.NewReader(x.conn), nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		data, rerr := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		_ = resp.Body.Close() // it has been read
		if rerr != nil {
			return rerr
		}
		return failure(resp.StatusCode, data)
	}
	x.accepted = true
	if err = adminapi.WriteFrame(x.conn, question, files); err != nil {
		return err
	}
	if err = x.limit(ctx, patience); err != nil {
		return err
	}
	data, got, err := adminapi.ReadFrame(x.conn)
	if x.files = got; err != nil {
		return err
	}
	if err := json.Unmarshal(data, &x.reply); err != nil {
		return err
	}
	switch r := x.reply; {
	case r.Failure != nil:
		return &Error{Status: r.Status, Text: r.Failure.Text, Code: r.Failure.Code}
	case r.Descriptors != len(got):
		return fmt.Errorf("%d descriptors have come of %d; the limit of open files of this process may be too low", len(got), r.Descriptors)
	}
	return nil
}

// limit sets how long the next steps may take, in which the context's end is
// heeded all the same.
func (x *exchange) limit(ctx context.Context, most time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok {
		most = time.Until(deadline)
	}
	if err := x.conn.SetDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	return ctx.Err()
}

// isClosed reports whether a connection was closed by the other side.
func isClosed(err error) bool {
	for _, closed := range []error{syscall.EPIPE, syscall.ECONNRESET, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}

// explainShare words what went wrong on the way to the daemon.
func (c *Client) explainShare(err error) error {
	switch {
	case errors.Is(err, syscall.EACCES):
		return &Error{
			Status: http.StatusForbidden, Code: adminapi.CodeForbidden,
			Text: fmt.Sprintf("%s can't be reached by this user; let others in with hmcfs mount --allow-other, or use the attributes user.hmc.bind and user.hmc.handle", c.socket),
		}
	case isClosed(err):
		return fmt.Errorf("ask the daemon at %s: it closed the connection; this user may have too many open: %w", c.socket, err)
	}
	if _, said := errors.AsType[*Error](err); said {
		return err
	}
	return c.explain(err)
}
