package holder

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/owner"
)

// op is the kind of a request.
type op string

const (
	opOwn    op = "own"
	opKeep   op = "keep"
	opKept   op = "kept"
	opDrop   op = "drop"
	opWrite  op = "write"
	opReady  op = "ready"
	opNext   op = "next"
	opEnd    op = "end"
	opStatus op = "status"
)

// message is a request or an answer: one packet, with at most one descriptor.
type message struct {
	// Op is set in requests.
	Op op `json:"op,omitempty"`
	// Name is the name of a descriptor, or the beginning of names.
	Name string `json:"name,omitempty"`
	// Data has the bytes for opWrite.
	Data []byte `json:"data,omitempty"`
	// Start starts the daemon again; with opReady and opNext.
	Start *Start `json:"start,omitempty"`

	// Error is the reason of a refusal, in an answer.
	Error string `json:"error,omitempty"`
	// More is set in the answers to opKept that carry a descriptor. The last has none.
	More bool `json:"more,omitempty"`
	// Status answers opStatus.
	Status *Status `json:"status,omitempty"`
}

// Start describes how a daemon is started; the zero value says that another process does, such as a
// service manager.
type Start struct {
	// Path is the program, and Args its arguments, the first of which is its name.
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// Program is the name of the descriptor of the program that serves, which is started again even if
// its file has been replaced.
const Program = "program"

// RevivedEnv is the variable that is set for a daemon that a holder starts.
const RevivedEnv = "HMCFS_REVIVED"

// Protocol is the version of the messages.
const Protocol = 1

// maxMessage bounds a message, in bytes. The environment is the largest part; execve permits
// 128 KiB for one of its strings, and a packet is bounded by the buffer of the socket.
const maxMessage = 128 << 10

// maxName bounds the name of a descriptor, in bytes.
const maxName = 256

// send sends a message, with a descriptor unless f is nil.
func send(c *net.UnixConn, m *message, f *os.File) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	if len(data) > maxMessage {
		return fmt.Errorf("a message of %d bytes is too long; at most %d are possible", len(data), maxMessage)
	}
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err = c.WriteMsgUnix(data, rights, nil)
	return err
}

// receive returns the next message, with its descriptor or nil. Descriptors that do not belong to
// the protocol are closed.
func receive(c *net.UnixConn, buf []byte) (m message, f *os.File, err error) {
	got, err := (*owner.Guard)(nil).Receive(c, 0, buf) // in this process
	switch {
	case err != nil:
	case got.N == 0:
		err = errEnd
	case got.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a message is too long")
	case len(got.Files) > 1:
		err = fmt.Errorf("a message has %d descriptors, at most one is possible", len(got.Files))
	default:
		err = json.Unmarshal(buf[:got.N], &m)
	}
	if err == nil && len(got.Files) == 1 {
		return m, got.Files[0], nil
	}
	if err == nil {
		return m, nil, nil
	}
	for _, f := range got.Files {
		err = errors.Join(err, f.Close())
	}
	return message{}, nil, err
}

// errEnd is the end of a connection.
var errEnd = errors.New("the other side has closed the connection")
