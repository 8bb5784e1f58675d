package client_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// Map a file of the host tier, and change it in place.
func ExampleMap() {
	m, err := client.Map(context.Background(), "/mnt/hmc/host/weights.bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = m.Close() }()
	for i := range m.Bytes {
		m.Bytes[i] ^= 0xff // cat sees it at once
	}
}

// Export device memory for a library that opens a CUDA IPC handle.
func ExampleOpenExport() {
	e, err := client.OpenExport(context.Background(), "/mnt/hmc/cuda0/kv", devices.HandleIPC)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = e.Close() }() // the file can't be truncated until then
	p := e.Memory.Pieces[0]
	fmt.Println("cuIpcOpenMemHandle", p.Handle, "then", p.Offset, p.Size)
}

// Make memory of this process a file: a memfd, all of it.
func ExampleBind() {
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	ring := os.NewFile(uintptr(fd), "ring")
	defer func() { _ = ring.Close() }()
	const size = 1 << 20
	if err = ring.Truncate(size); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	// The file is made first, and closed: an open one can't be bound.
	const path = "/mnt/hmc/host/ring"
	if err = os.WriteFile(path, nil, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	first := 0 // the index of the descriptor among those passed
	bound, err := client.Bind(context.Background(), path, share.Memory{
		Family: "host", PID: os.Getpid(), Size: size,
		Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: size}},
	}, ring)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(bound.Path, "is", bound.State, "until this process ends")
}

// Keep a value under a key for a minute, and read it, as any other process can.
func ExampleSession_Set() {
	c, dir, err := client.Find("/mnt/hmc")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = dir.Close() }()
	ctx := context.Background()
	s, err := client.OpenSession(ctx, c.Socket())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = s.Close() }()
	if err = s.Set(ctx, "greeting", []byte("hello"), hetero.SetOptions{TTL: time.Minute}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	value, err := s.Get(ctx, "greeting")
	fmt.Println(string(value), err)
}
