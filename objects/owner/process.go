package owner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrGone reports that a process has ended, or that its number now belongs to another process.
var ErrGone = errors.New("owner: process has ended")

// ID identifies one process uniquely.
type ID struct {
	PID int `json:"pid"`
	// Start is its start time, in clock ticks since the boot.
	Start uint64 `json:"start"`
	// Boot is the kernel's id of the boot that Start counts from.
	Boot string `json:"boot"`
}

// Process is a process that is held by a pidfd, so that it cannot be confused with a later
// process of the same number.
type Process struct {
	id   ID
	file *os.File // pidfd
}

// Find returns the process that has the number now.
//
// Errors: ErrGone.
func Find(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
		}
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	_ = unix.SetNonblock(fd, true) // a Watcher, which requires it, reports a failure
	p := &Process{id: ID{PID: pid}, file: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid))}
	if err := p.identify(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Find returns the process that the id identifies.
//
// Errors: ErrGone, also if the number now belongs to another process.
func (id ID) Find() (*Process, error) {
	p, err := Find(id.PID)
	if err != nil {
		return nil, err
	}
	if p.id != id {
		return nil, errors.Join(fmt.Errorf("process ID %d now belongs to another process: %w", id.PID, ErrGone), p.Close())
	}
	return p, nil
}

// identify reads the data that make the number unique. The content of /proc is that of this
// process, provided that the process is still alive afterwards.
func (p *Process) identify() error {
	boot, err := Boot()
	if err != nil {
		return err
	}
	p.id.Boot = boot
	stat, err := os.ReadFile(p.dir("stat"))
	if err != nil {
		return fmt.Errorf("process %d: %w: %w", p.id.PID, ErrGone, err)
	}
	if p.id.Start, err = startOf(stat); err != nil {
		return fmt.Errorf("process %d: %w", p.id.PID, err)
	}
	return p.alive()
}

// Boot returns the kernel's id of this boot. Numbers of processes, and of files in memory, are
// not valid across boots.
func Boot() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(boot)), nil
}

// startOf returns field 22 of /proc/PID/stat. The second field, the program's name, may contain
// any character, so fields are counted from its last parenthesis.
func startOf(stat []byte) (uint64, error) {
	const behindName = 22 - 3
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= behindName {
		return 0, fmt.Errorf("start time not found in %q", stat)
	}
	return strconv.ParseUint(string(fields[behindName]), 10, 64)
}

// ID returns the identity of the process.
func (p *Process) ID() ID { return p.id }

// Close releases the process.
func (p *Process) Close() error { return p.file.Close() }

func (p *Process) dir(name string) string { return fmt.Sprintf("/proc/%d/%s", p.id.PID, name) }

// alive returns ErrGone if the process has ended.
func (p *Process) alive() error {
	fds := []unix.PollFd{{Fd: int32(p.file.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("poll process %d: %w", p.id.PID, err)
		case n > 0:
			return fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
		}
		return nil
	}
}

// BelongsTo reports whether the process is a user's: its real, effective and saved ids are the
// user's, and the kernel does not deny the user access to it. All processes belong to root.
func (p *Process) BelongsTo(uid uint32) (bool, error) {
	if uid == 0 {
		return true, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(p.dir(""), &st); err != nil {
		return false, fmt.Errorf("process %d: %w: %w", p.id.PID, ErrGone, err)
	}
	status, err := readStatus(p.id.PID)
	if err != nil {
		return false, err
	}
	if err := p.alive(); err != nil {
		return false, err
	}
	mine := st.Uid == uid && len(status.uids) > 0
	for _, id := range status.uids {
		mine = mine && id == uid
	}
	return mine, nil
}

// status holds the credentials in /proc/PID/status.
type status struct {
	leader int
	uids   []uint32
	groups []uint32
}

func readStatus(pid int) (status, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return status{}, fmt.Errorf("process %d: %w: %w", pid, ErrGone, err)
	}
	var s status
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		switch name {
		case "Tgid":
			s.leader, err = strconv.Atoi(strings.TrimSpace(rest))
		case "Uid":
			s.uids, err = parseIDs(rest)
		case "Groups":
			s.groups, err = parseIDs(rest)
		}
		if err != nil {
			return status{}, fmt.Errorf("process %d: %s: %w", pid, name, err)
		}
	}
	return s, nil
}

func parseIDs(text string) ([]uint32, error) {
	var ids []uint32
	for word := range strings.FieldsSeq(text) {
		id, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, err
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}

// Leader returns the number of the process that a thread belongs to; or tid if there is none.
func Leader(tid int) int {
	s, err := readStatus(tid)
	if err != nil || s.leader == 0 {
		return tid
	}
	return s.leader
}

// Groups returns the supplementary groups of a process, provided that the process acts for the
// user; none if they cannot be determined.
func Groups(pid int, uid uint32) []uint32 {
	if pid <= 0 {
		return nil
	}
	s, err := readStatus(pid)
	if err != nil || !slices.Contains(s.uids, uid) {
		return nil
	}
	return s.groups
}
