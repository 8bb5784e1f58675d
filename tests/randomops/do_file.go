package randomops

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// openFlags parses the flags of open.
func openFlags(word string) int {
	flags := unix.O_CLOEXEC
	for w := range strings.SplitSeq(word, ",") {
		flags |= map[string]int{
			"w": unix.O_WRONLY, "rw": unix.O_RDWR, "creat": unix.O_CREAT, "excl": unix.O_EXCL,
			"trunc": unix.O_TRUNC, "append": unix.O_APPEND, "direct": unix.O_DIRECT,
		}[w]
	}
	return flags
}

func doOpen(r *runner, o Op) Step {
	h := o.slot(0)
	if r.files[h] != none {
		return Step{Text: "slot in use"}
	}
	fd, err := again(func() (int, error) { return unix.Open(r.path(o.Args[1]), openFlags(o.Args[2]), o.mode(3)) })
	if err == nil {
		r.files[h] = fd
	}
	return answer(err, "opened")
}

func doClose(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		r.files[o.slot(0)] = none
		return answer(unix.Close(fd), "closed")
	})
}

// with calls do with the handle of a slot; an empty slot yields an empty step.
func (r *runner) with(slot int, do func(fd int) Step) Step {
	if r.files[slot] == none {
		return empty()
	}
	return do(r.files[slot])
}

// moved returns the step of an operation that moves bytes.
func moved(n int, err error) Step { return answer(err, "%d bytes", n) }

func doWrite(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		return moved(again(func() (int, error) {
			return unix.Pwrite(fd, kit.Bytes(o.seed(3), o.number(1), int(o.number(2))), o.number(1))
		}))
	})
}

func doPut(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		return moved(again(func() (int, error) {
			return unix.Write(fd, kit.Bytes(o.seed(2), 0, int(o.number(1))))
		}))
	})
}

// received returns the step of an operation that reads.
func received(buf []byte, n int, err error) Step {
	s := moved(n, err)
	if err == nil {
		s.Data = buf[:n]
	}
	return s
}

func doRead(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		buf := make([]byte, o.number(2))
		n, err := again(func() (int, error) { return unix.Pread(fd, buf, o.number(1)) })
		return received(buf, n, err)
	})
}

func doGet(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		buf := make([]byte, o.number(1))
		n, err := again(func() (int, error) { return unix.Read(fd, buf) })
		return received(buf, n, err)
	})
}

func doSeek(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step {
		at, err := unix.Seek(fd, o.number(1), unix.SEEK_SET)
		return answer(err, "at %d", at)
	})
}

func doTruncate(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step { return answer(unix.Ftruncate(fd, o.number(1)), "cut") })
}

func doCut(r *runner, o Op) Step {
	return answer(unix.Truncate(r.path(o.Args[0]), o.number(1)), "cut")
}

func doFsync(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step { return answer(unix.Fsync(fd), "synced") })
}

func fallocate(fd int, mode uint32, off, n int64) error {
	return devices.Fallocate(fd, mode, devices.Offset(off), devices.Size(n))
}

// fallocate returns the step of fallocate in some mode, with the arguments handle, offset
// and length.
func (r *runner) fallocate(o Op, mode uint32) Step {
	return r.with(o.slot(0), func(fd int) Step {
		return answer(fallocate(fd, mode, o.number(1), o.number(2)), "done")
	})
}

func doAlloc(r *runner, o Op) Step   { return r.fallocate(o, 0) }
func doReserve(r *runner, o Op) Step { return r.fallocate(o, unix.FALLOC_FL_KEEP_SIZE) }
func doPunch(r *runner, o Op) Step {
	return r.fallocate(o, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE)
}
func doZero(r *runner, o Op) Step     { return r.zero(o, false) }
func doZeroKeep(r *runner, o Op) Step { return r.zero(o, true) }

// zero zeroes a range. tmpfs does not support that; there the range is punched, which reads
// the same.
func (r *runner) zero(o Op, keep bool) Step {
	mode := uint32(unix.FALLOC_FL_ZERO_RANGE)
	if keep {
		mode |= unix.FALLOC_FL_KEEP_SIZE
	}
	return r.with(o.slot(0), func(fd int) Step {
		err := fallocate(fd, mode, o.number(1), o.number(2))
		if errors.Is(err, unix.EOPNOTSUPP) && isTmpfs(fd) {
			err = fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, o.number(1), o.number(2))
			if err == nil && !keep {
				err = growTo(fd, o.number(1)+o.number(2))
			}
		}
		return answer(err, "done")
	})
}

func isTmpfs(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && int64(st.Type) == unix.TMPFS_MAGIC
}

// growTo extends a file to at least the given size.
func growTo(fd int, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size >= size {
		return err
	}
	return unix.Ftruncate(fd, size)
}

// doCopy copies the whole range, in as many calls as needed.
func doCopy(r *runner, o Op) Step {
	return r.with(o.slot(0), func(from int) Step {
		return r.with(o.slot(2), func(to int) Step {
			src, dst, left := o.number(1), o.number(3), int(o.number(4))
			for left > 0 {
				n, err := again(func() (int, error) { return unix.CopyFileRange(from, &src, to, &dst, left, 0) })
				if err != nil {
					return answer(err, "")
				}
				if n == 0 {
					break
				}
				left -= n
			}
			return moved(int(o.number(4))-left, nil)
		})
	})
}
