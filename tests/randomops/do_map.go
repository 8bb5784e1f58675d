package randomops

import (
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

func doMap(r *runner, o Op) Step {
	m := &r.maps[o.slot(0)]
	if m.fd != none {
		return Step{Text: "slot in use"}
	}
	return r.with(o.slot(1), func(file int) Step {
		data, err := unix.Mmap(file, 0, int(max(o.number(2), 1)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return answer(err, "")
		}
		fd, err := unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return answer(errors.Join(err, unix.Munmap(data)), "")
		}
		*m = mapping{fd: fd, data: data}
		return answer(nil, "mapped")
	})
}

// inside calls do with the part of a map that lies within the file.
func (r *runner) inside(o Op, do func(part []byte, off int64) Step) (s Step) {
	m := &r.maps[o.slot(0)]
	if m.fd == none {
		return empty()
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		return answer(err, "")
	}
	off, end := o.number(1), min(o.number(1)+o.number(2), int64(len(m.data)), st.Size)
	if off >= end {
		return answer(nil, "nothing there")
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			s = Step{Text: fmt.Sprintf("fault: %v", p)}
		}
	}()
	return do(m.data[off:end], off)
}

func doStore(r *runner, o Op) Step {
	return r.inside(o, func(part []byte, off int64) Step {
		kit.FillAt(part, o.seed(3), off)
		return moved(len(part), nil)
	})
}

func doLoad(r *runner, o Op) Step {
	return r.inside(o, func(part []byte, _ int64) Step {
		return received(append([]byte(nil), part...), len(part), nil)
	})
}

func doMsync(r *runner, o Op) Step {
	m := &r.maps[o.slot(0)]
	if m.fd == none {
		return empty()
	}
	return answer(unix.Msync(m.data, unix.MS_SYNC), "synced")
}

func doUnmap(r *runner, o Op) Step {
	if r.maps[o.slot(0)].fd == none {
		return empty()
	}
	s := doMsync(r, o)
	r.unmap(o.slot(0))
	return s
}
