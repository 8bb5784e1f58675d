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
	"slices"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

const (
	// handshake bounds the time until the daemon is ready for descriptors.
	handshake = 10 * time.Second
	// answerTimeout bounds the time until the answer if the context sets no deadline: content in
	// several pieces is first moved into one.
	answerTimeout = 2 * time.Minute
)

// exchange is one request with descriptors, and its answer.
type exchange struct {
	conn    *net.UnixConn
	session string
	reply   adminapi.Reply
	// accepted is true if the daemon has accepted the upgrade.
	accepted bool
	// files are the descriptors that came with the reply.
	files []*os.File
}

// close closes the connection and the reply's descriptors.
func (x *exchange) close() error {
	adminapi.CloseAll(x.files)
	return x.conn.Close()
}

// ask sends a request with descriptors, which remain the caller's. The caller must close the
// exchange. session is the session that it belongs to, or empty.
func (c *Client) ask(ctx context.Context, path, session string, question any, files []*os.File) (*exchange, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, c.explainShare(err)
	}
	x := &exchange{conn: conn, session: session}
	// The end of the context interrupts any wait, by setting a deadline in the past.
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

// partOf closes the exchange of a request, and returns the part of its reply that of selects. err is
// the error of the request.
func partOf[T any](x *exchange, err error, of func(*adminapi.Reply) *T) (part T, _ error) {
	if err != nil {
		return part, err
	}
	_ = x.close() // the answer has been read
	found := of(&x.reply)
	if found == nil {
		return part, errAnswer
	}
	return *found, nil
}

// run requests the upgrade, sends the request and reads the answer.
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
	// The daemon sends nothing after its 101 before the request, so no data with descriptors
	// is read here.
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
	if err = x.limit(ctx, answerTimeout); err != nil {
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
		return fmt.Errorf("%d of %d descriptors received; this process's limit of open files may be too low", len(got), r.Descriptors)
	}
	return nil
}

// limit sets a deadline for the next steps. The end of the context still takes effect.
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
	closed := []error{syscall.EPIPE, syscall.ECONNRESET, io.ErrUnexpectedEOF, io.EOF}
	return slices.ContainsFunc(closed, func(one error) bool { return errors.Is(err, one) })
}

// explainShare returns an error text for a failure to reach the daemon.
func (c *Client) explainShare(err error) error {
	switch {
	case errors.Is(err, syscall.EACCES):
		return &Error{
			Status: http.StatusForbidden, Code: adminapi.CodeForbidden,
			Text: fmt.Sprintf("%s can't be reached by this user; give others access with hmcfs mount --allow-other, or use the attributes user.hmc.bind and user.hmc.handle", c.socket),
		}
	case isClosed(err):
		return fmt.Errorf("request to the daemon at %s: it closed the connection; this user may have too many connections open: %w", c.socket, err)
	}
	if _, said := errors.AsType[*Error](err); said {
		return err
	}
	return c.explain(err)
}
