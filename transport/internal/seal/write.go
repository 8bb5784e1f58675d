package seal

import "errors"

// errEnded reports a connection that was closed on this side.
var errEnded = errors.New("seal: closed on this side")

// lengthy is the size, in bytes, from which a part is encrypted from where it is.
// Shorter parts are gathered first.
const lengthy = 8 << 10

// Write waits until the kernel has accepted all of p, as net.Conn does.
//
// Errors: those of the underlying connection, after which nothing more is
// written.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.WriteParts([][]byte{p})
	return int(n), err
}

// WriteParts writes the bytes of several parts, one after another.
func (c *Conn) WriteParts(parts [][]byte) (int64, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.flushLocked(); err != nil {
		return 0, err
	}
	var done int64
	for at := (place{}); ; {
		n, more, err := c.sealLocked(parts, &at)
		if err == nil && len(c.records) > 0 {
			_, err = c.Conn.Write(c.records)
		}
		if err != nil {
			c.writeError = err
			return done, err
		}
		done += n
		if !more {
			return done, nil
		}
	}
}

// Try accepts as much of p as fits now, often nothing.
//
// Errors: those of Write.
func (c *Conn) Try(p []byte) (int, error) { return c.TryParts([][]byte{p}) }

// TryParts is Try with the bytes of several parts.
//
// +checklocksignore: the checker does not know TryLock.
func (c *Conn) TryParts(parts [][]byte) (int, error) {
	if c.now == nil || !c.writing.TryLock() {
		return 0, nil
	}
	defer c.writing.Unlock()
	if c.writeError != nil || len(c.left) > 0 {
		return 0, c.writeError
	}
	n, _, err := c.sealLocked(parts, &place{})
	if err != nil {
		c.writeError = err
		return 0, err
	}
	return int(n), c.pushLocked()
}

// pushLocked writes as many of the records as the kernel accepts now, and leaves
// the rest to a goroutine that waits.
//
// +checklocks:c.writing
func (c *Conn) pushLocked() error {
	if len(c.records) == 0 {
		return nil
	}
	n, err := c.now.Write(c.records)
	if err != nil {
		c.writeError = err
		return err
	}
	if c.left = c.records[n:]; len(c.left) > 0 {
		c.flushes.Go(func() {
			c.writing.Lock()
			defer c.writing.Unlock()
			_ = c.flushLocked() // the next write returns the error
		})
	}
	return nil
}

// flushLocked writes what the kernel has not accepted before.
//
// +checklocks:c.writing
func (c *Conn) flushLocked() error {
	if c.writeError == nil && len(c.left) > 0 {
		_, c.writeError = c.Conn.Write(c.left)
		c.left = nil
	}
	return c.writeError
}

// place is the position up to which the parts of a write have been consumed.
type place struct{ part, off int }

// sealLocked makes records of parts, starting at a place, as many as there is
// room for. It returns the number of bytes that they carry, and whether more
// remain.
//
// +checklocks:c.writing
func (c *Conn) sealLocked(parts [][]byte, at *place) (n int64, more bool, err error) {
	c.growLocked(rest(parts, *at))
	c.records = c.records[:0]
	for {
		for at.part < len(parts) && at.off == len(parts[at.part]) {
			*at = place{part: at.part + 1}
		}
		if at.part == len(parts) {
			return n, false, nil
		}
		room := cap(c.records) - len(c.records) - Overhead
		if left := len(parts[at.part]) - at.off; room < min(left, MaxRecord) && n > 0 {
			return n, true, nil
		}
		var p []byte
		if room = min(room, MaxRecord); len(parts[at.part])-at.off >= lengthy {
			p = parts[at.part][at.off:]
			p = p[:min(len(p), room)]
			at.off += len(p)
		} else {
			p = c.gatherLocked(parts, at, room)
		}
		if c.records, err = c.out.seal(c.records, kindData, p); err != nil {
			return n, false, err
		}
		n += int64(len(p))
	}
}

// gatherLocked copies short parts together, to the place of the next record's
// payload.
//
// +checklocks:c.writing
func (c *Conn) gatherLocked(parts [][]byte, at *place, room int) []byte {
	from := len(c.records) + headSize
	p := c.records[from:from]
	for at.part < len(parts) && len(parts[at.part])-at.off < lengthy {
		left := parts[at.part][at.off:]
		if len(left) > room-len(p) {
			break
		}
		p = append(p, left...)
		*at = place{part: at.part + 1}
	}
	return p
}

// rest counts the bytes of parts after a place, as far as it matters.
func rest(parts [][]byte, at place) int {
	n := -at.off
	for i := at.part; i < len(parts) && n < largeBuffer; i++ {
		n += len(parts[i])
	}
	return n
}

// growLocked makes room for records of n bytes.
//
// +checklocks:c.writing
func (c *Conn) growLocked(n int) {
	switch {
	case cap(c.records) == 0 && n+4*Overhead <= smallBuffer:
		c.records = make([]byte, 0, smallBuffer)
	case cap(c.records) < largeBuffer && n+4*Overhead > smallBuffer:
		c.records = make([]byte, 0, largeBuffer)
	}
}
