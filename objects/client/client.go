package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// ErrNoDaemon reports that no daemon answers at the socket.
var ErrNoDaemon = errors.New("no daemon answers at the socket")

// ErrForeign reports that a process of another user listens at the socket.
var ErrForeign = errors.New("a process of another user listens at the socket")

// maxBody bounds the bytes read from an answer.
const maxBody = 256 << 20

// Error is a failure that the daemon has reported.
type Error struct {
	Status int
	Text   string
	Code   string
}

// Error returns the daemon's text.
func (e *Error) Error() string { return e.Text }

// IsBusy reports whether the daemon refused because the mount is in use.
func IsBusy(err error) bool { return hasCode(err, adminapi.CodeBusy) }

// IsForbidden reports whether the daemon serves nothing to this user.
func IsForbidden(err error) bool { return hasCode(err, adminapi.CodeForbidden) }

// IsNotFound reports whether there is no such object, or no cluster.
func IsNotFound(err error) bool { return hasCode(err, adminapi.CodeNotFound) }

func hasCode(err error, code string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// Client is bound to one socket. It may be used from any goroutine. Keys, Watch, and the requests about files and memory wait for a daemon
// that its holder starts again, for a minute at most; what a dead daemon has not answered is asked of the next one once, except Collect.
type Client struct {
	socket string
	// owner is the user that must run the daemon; a negative owner allows any.
	owner int
	http  *http.Client
	// patience bounds the time until a daemon greets, and the question to its holder.
	patience time.Duration
}

// New returns a client; it does not connect before the first call.
func New(socket string) *Client { return NewOf(socket, -1) }

// NewOf returns a client of a daemon that runs as the user owner: calls fail with ErrForeign
// if a process of another user listens at the socket.
func NewOf(socket string, owner int) *Client {
	c := &Client{socket: socket, owner: owner, patience: attemptLimit}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) }
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return c
}

// connect opens a connection to the daemon.
//
// Errors: ErrForeign; those of the operating system.
func (c *Client) connect(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	dialled, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, err
	}
	conn, ok := dialled.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s: unexpected connection type %T", c.socket, dialled), dialled.Close())
	}
	if c.owner < 0 {
		return conn, nil
	}
	uid, err := listenerOf(conn)
	if err == nil && uid != c.owner {
		err = fmt.Errorf("%s: its listener is user %d, but the mount belongs to user %d: %w", c.socket, uid, c.owner, ErrForeign)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// listenerOf returns the user of the process at the other end of a connection.
func listenerOf(conn *net.UnixConn) (uid int, err error) {
	var cred *unix.Ucred
	err = owner.Control(conn, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("find the user of the listening process: %w", err)
	}
	return int(cred.Uid), nil
}

// Socket returns the path at which the daemon listens.
func (c *Client) Socket() string { return c.socket }

// Version returns the version of the program that serves the mount.
func (c *Client) Version(ctx context.Context) (v adminapi.Version, err error) {
	err = c.do(ctx, http.MethodGet, adminapi.PathVersion, nil, &v)
	return v, err
}

// Status returns the state of the mount, including the number of objects if count is set.
func (c *Client) Status(ctx context.Context, count bool) (s adminapi.Status, err error) {
	path := adminapi.PathStatus
	if count {
		path += "?count=1"
	}
	err = c.do(ctx, http.MethodGet, path, nil, &s)
	return s, err
}

// Activity returns what is going on in the mount.
func (c *Client) Activity(ctx context.Context) (a adminapi.Activity, err error) {
	err = c.do(ctx, http.MethodGet, adminapi.PathActivity, nil, &a)
	return a, err
}

// Page returns the address of the page that shows the mount. A mount that serves none has none: see
// IsNotFound.
func (c *Client) Page(ctx context.Context) (p adminapi.Page, err error) {
	err = c.do(ctx, http.MethodGet, adminapi.PathPage, nil, &p)
	return p, err
}

// Cluster returns the other nodes, without sending them requests. A mount without a cluster
// has none: see IsNotFound.
func (c *Client) Cluster(ctx context.Context) (v adminapi.Cluster, err error) {
	err = c.do(ctx, http.MethodGet, adminapi.PathCluster, nil, &v)
	return v, err
}

// Forget removes a node that died, or is cut off, from the cluster, and returns the resulting
// cluster.
func (c *Client) Forget(ctx context.Context, node members.Name) (v adminapi.Cluster, err error) {
	err = c.do(ctx, http.MethodPost, adminapi.PathForget, adminapi.ForgetRequest{Node: node}, &v)
	return v, err
}

// Object returns information about one file's memory.
func (c *Client) Object(ctx context.Context, ino metadata.Ino) (o adminapi.Object, err error) {
	query := url.Values{"ino": {strconv.FormatUint(uint64(ino), 10)}}
	err = c.do(ctx, http.MethodGet, adminapi.PathObject+"?"+query.Encode(), nil, &o)
	return o, err
}

// Config returns the options of the mount.
func (c *Client) Config(ctx context.Context) (s []adminapi.Setting, err error) {
	err = c.do(ctx, http.MethodGet, adminapi.PathConfig, nil, &s)
	return s, err
}

// Fsck requests a check.
func (c *Client) Fsck(ctx context.Context, r adminapi.FsckRequest) (f adminapi.FsckReport, err error) {
	err = c.do(ctx, http.MethodPost, adminapi.PathFsck, r, &f)
	return f, err
}

// Umount makes the daemon exit, and returns once everything is cleaned up.
func (c *Client) Umount(ctx context.Context, r adminapi.UmountRequest) (a adminapi.UmountAnswer, err error) {
	err = c.do(ctx, http.MethodPost, adminapi.PathUmount, r, &a)
	return a, err
}

// Upgrade replaces the daemon by another program. It returns before the daemon ends.
func (c *Client) Upgrade(ctx context.Context, r adminapi.UpgradeRequest) (a adminapi.UpgradeAnswer, err error) {
	err = c.do(ctx, http.MethodPost, adminapi.PathUpgrade, r, &a)
	return a, err
}

// Metrics returns the metrics in Prometheus text format.
func (c *Client) Metrics(ctx context.Context) (text string, err error) {
	var b bytes.Buffer
	err = c.do(ctx, http.MethodGet, adminapi.PathMetrics, nil, &b)
	return b.String(), err
}

// do sends a request and reads the answer: into a buffer unchanged, into anything else as
// JSON.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("request to the daemon: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://hmcfs"+path, body)
	if err != nil {
		return fmt.Errorf("request to the daemon: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("read the answer of the daemon: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return failure(resp.StatusCode, data)
	}
	if text, ok := out.(*bytes.Buffer); ok {
		text.Write(data)
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("read the answer of the daemon: %w", err)
	}
	return nil
}

func (c *Client) explain(err error) error {
	if uerr, ok := errors.AsType[*url.Error](err); ok {
		err = uerr.Err
	}
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s: %w", c.socket, ErrNoDaemon)
	}
	if errors.Is(err, syscall.EACCES) {
		return &Error{
			Status: http.StatusForbidden, Code: adminapi.CodeForbidden,
			Text: "only root and the user who mounted may use the daemon's socket; run this as one of them",
		}
	}
	return fmt.Errorf("request to the daemon: %w", err)
}

func failure(status int, body []byte) error {
	var said adminapi.Error
	if json.Unmarshal(body, &said) != nil || said.Text == "" {
		said = adminapi.Error{Text: fmt.Sprintf("the daemon answered with status %d", status), Code: adminapi.CodeInternal}
	}
	return &Error{Status: status, Text: said.Text, Code: said.Code}
}
