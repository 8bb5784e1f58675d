package shm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// facts identify the proposing process and its host.
type facts struct {
	boot [16]byte
	// space is the pid namespace, and pid the process id in it.
	space uint64
	pid   uint32
}

// version is the version of the facts, of the ring and of the offers.
const version = 2

const factsSize = 4 + 16 + 8 + 4

func (f *facts) append(p []byte) []byte {
	p = append(p, version, 0, 0, 0)
	p = append(p, f.boot[:]...)
	p = binary.LittleEndian.AppendUint64(p, f.space)
	return binary.LittleEndian.AppendUint32(p, f.pid)
}

func parseFacts(p []byte) (facts, error) {
	if len(p) != factsSize || !bytes.Equal(p[:4], []byte{version, 0, 0, 0}) {
		return facts{}, errors.New("the peer uses a different version of the shared memory protocol")
	}
	return facts{
		boot:  [16]byte(p[4:]),
		space: binary.LittleEndian.Uint64(p[20:]),
		pid:   binary.LittleEndian.Uint32(p[28:]),
	}, nil
}

// ownFacts returns the facts of this process.
func ownFacts() (facts, error) {
	f := facts{pid: uint32(os.Getpid())}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return facts{}, fmt.Errorf("read the boot ID of this host: %w", err)
	}
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(id) != len(f.boot) {
		return facts{}, fmt.Errorf("invalid boot ID of this host: %q", text)
	}
	copy(f.boot[:], id)
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return facts{}, fmt.Errorf("read the PID namespace: %w", err)
	}
	f.space = st.Ino
	return f, nil
}

// sameUser asks the kernel for the process at the other end of a connection, and
// returns the reason if the peer must not be trusted with our memory.
func sameUser(c net.Conn) (*unix.Ucred, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("the ranks are connected by %s, but only a Unix socket can pass memory", c.LocalAddr().Network())
	}
	var cred *unix.Ucred
	err := descriptor.Use(u, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get the peer's credentials from the kernel: %w", err)
	}
	if int64(cred.Uid) != int64(os.Geteuid()) {
		return nil, fmt.Errorf("the peer runs as user %d, but this process as user %d", cred.Uid, os.Geteuid())
	}
	return cred, nil
}

// evaluate returns the reason why the process of the facts can't share memory with
// us over the connection, or nil.
func evaluate(c net.Conn, peer facts) error {
	cred, err := sameUser(c)
	if err != nil {
		return err
	}
	own, err := ownFacts()
	if err != nil {
		return err
	}
	switch {
	case own.boot != peer.boot:
		return errors.New("the ranks are on different hosts")
	case own.space == peer.space && int64(cred.Pid) != int64(peer.pid):
		return fmt.Errorf("the connected process %d only relays for process %d", cred.Pid, peer.pid)
	}
	return nil
}
