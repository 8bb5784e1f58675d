package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// wire is a connection for consecutive requests. One of net/http ends a request with its
// context; this one instead closes only its own direction, and reads the result of every key.
type wire struct {
	conn *net.UnixConn
	in   *bufio.Reader
	// rested is the time of its last use.
	rested time.Time
}

// leaveLimit bounds the time that the daemon takes to end a call that the caller has
// cancelled: copies in progress are completed.
const leaveLimit = 30 * time.Second

func (c *Client) dial(ctx context.Context) (*wire, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReader(conn)}, nil
}

// leave notifies the daemon that the answer to a call is no longer needed. The response to
// that can be read for a while.
func (w *wire) leave() {
	_ = w.conn.CloseWrite() // an error means that it is closed already
	_ = w.conn.SetDeadline(time.Now().Add(leaveLimit))
}

// cut interrupts everything that waits for the connection.
func (w *wire) cut() { _ = w.conn.SetDeadline(time.Unix(1, 0)) }

// request sends a request and reads the head of its answer; the caller must close the answer's
// body. session and body may be empty.
func (w *wire) request(method, path, session string, body []byte) (*http.Response, error) {
	head := make([]byte, 0, 256)
	head = append(head, method...)
	head = append(head, ' ')
	head = append(head, path...)
	head = append(head, " HTTP/1.1\r\nHost: hmcfs\r\n"...)
	if session != "" {
		head = append(head, adminapi.SessionHeader+": "...)
		head = append(head, session...)
		head = append(head, "\r\n"...)
	}
	head = append(head, "Content-Length: "...)
	head = strconv.AppendInt(head, int64(len(body)), 10)
	head = append(head, "\r\n\r\n"...)
	parts := net.Buffers{head, body}
	_, werr := parts.WriteTo(w.conn)
	// A daemon that refuses a request may not have read all of it, and reports the reason.
	resp, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return nil, errors.Join(werr, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	_ = resp.Body.Close() // it has been read
	return nil, errors.Join(err, failure(resp.StatusCode, data))
}
