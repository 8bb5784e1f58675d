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
	"time"
)

// wire is a connection for one request, whose answer may last as long as it does.
type wire struct {
	conn *net.UnixConn
	// continues is the time within which the request is made again if the daemon dies; 0 if it is not.
	continues time.Duration
}

func (c *Client) dial(ctx context.Context) (*wire, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn}, nil
}

// cut interrupts everything that waits for the connection.
func (w *wire) cut() { _ = w.conn.SetDeadline(time.Unix(1, 0)) }

// stream requests lines of JSON.
func (w *wire) stream(path string) (*json.Decoder, error) {
	_, werr := fmt.Fprintf(w.conn, "GET %s HTTP/1.1\r\nHost: hmcfs\r\n\r\n", path)
	// A daemon that refuses a request may not have read all of it, and reports the reason.
	resp, err := http.ReadResponse(bufio.NewReader(w.conn), nil)
	if err != nil {
		return nil, errors.Join(werr, err)
	}
	if resp.StatusCode == http.StatusOK {
		w.continues = continuesOf(resp.Header)
		return json.NewDecoder(resp.Body), nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	_ = resp.Body.Close() // it has been read
	return nil, errors.Join(err, failure(resp.StatusCode, data))
}
