package transport

import (
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// CopyInfo describes a finished copy, view or fill.
type CopyInfo struct {
	// Path is the path of the bytes, or the one that they would have taken.
	Path Path
	// Device is the device that the copy is counted for: the accelerator of
	// an H2D or D2H transfer, the destination of one between two devices.
	// It is empty for a copy between two slices of host bytes.
	Device devices.Name
	// Peer is the other end; empty for host bytes of the caller.
	Peer devices.Name
	// Bytes is the length of the copy. After an error, some of them may
	// have been moved.
	Bytes devices.Size
	// Duration is the time from the call to its end.
	Duration time.Duration
	// Err is the copy's error, nil when every byte was moved.
	Err error
}

// Listener is notified of the engine's work. Its functions run on the goroutine
// of the copy, concurrently with others, and must not block.
type Listener struct {
	// Copied is called once for each ended Copy, View and Fill.
	Copied func(CopyInfo)
}

func (l *Listener) copied(info *CopyInfo) {
	if l.Copied != nil {
		l.Copied(*info)
	}
}
