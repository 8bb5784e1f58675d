package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// wire is a connection on which one request after the other is answered. That
// of net/http takes a request to its end with its context; this one leaves: it
// closes its own direction alone, and reads what became of every key.
type wire struct {
	conn *net.UnixConn
	in   *bufio.Reader
	// rested is the time of its last use.
	rested time.Time
}

// leaveLimit bounds the time that the daemon takes to end a call whose caller does
// not want it any more: copies under way come to their end.
const leaveLimit = 30 * time.Second

func (c *Client) dial(ctx context.Context) (*wire, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReader(conn)}, nil
}

// leave tells the daemon that nobody wants the answer to a call any more. What
// it says to that can be read for a while.
func (w *wire) leave() {
	_ = w.conn.CloseWrite() // where it is closed there is nothing to tell
	_ = w.conn.SetDeadline(time.Now().Add(leaveLimit))
}

// cut ends all that waits for the connection.
func (w *wire) cut() { _ = w.conn.SetDeadline(time.Unix(1, 0)) }

// request sends a request and reads the head of its answer, whose body the
// caller closes. session may be empty, and so may the body.
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
	// Who refuses a request may not have read it whole, and says why.
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

// stream asks for an answer that lasts as long as the connection.
func (w *wire) stream(method, path string) (*json.Decoder, error) {
	resp, err := w.request(method, path, "", nil)
	if err != nil {
		return nil, err
	}
	return json.NewDecoder(resp.Body), nil
}
