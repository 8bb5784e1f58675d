package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects"
)

// Mount mounts the filesystem and returns once it answers. On an error nothing stays
// mounted. The caller must have set the process's umask to 0: the kernel applies the umasks
// of the processes that create files.
//
// Errors: ErrMountPoint and ErrNoFUSE with the cause and the remedy, the faults of the
// options, and the kernel's.
func Mount(ctx context.Context, o Options) (*Server, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	path, err := checkMountPoint(o.MountPoint)
	if err != nil {
		return nil, err
	}
	if err = checkFUSE(o.AllowOther); err != nil {
		return nil, err
	}
	o.MountPoint = path
	o.MaxWrite = min(o.MaxWrite, kernelMaxWrite())
	o.MountOptions = slices.Clone(o.MountOptions)

	s := &Server{fs: newFilesystem(o), path: path, gone: make(chan struct{})}
	if err = s.connect(&o); err != nil {
		return nil, err
	}
	go s.serve() //nolint:contextcheck // the mount outlives this call
	if err := s.answer(ctx); err != nil {
		s.abort()
		return nil, fmt.Errorf("mount at %s does not answer: %w", path, err)
	}
	s.fs.log.Info("mounted", zap.String("mount_point", path), zap.Bool("passthrough", s.fs.backings.reason.Load() == nil))
	return s, nil
}

// Resume continues the mount that the options' keeper has, with the options that it was made with.
// Its files are open as before, and the requests that a dead process has not answered are carried
// out.
//
// Errors: ErrNotResumable; the mount then stays there.
func Resume(ctx context.Context, o Options) (*Server, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{fs: newFilesystem(o), path: o.MountPoint, gone: make(chan struct{})}
	h := &holding{filesystem: s.fs}
	if err := s.resume(ctx, &o, h); err != nil {
		s.fs.fleeting.end()
		return nil, err
	}
	go s.serve() //nolint:contextcheck // the mount outlives this call
	go h.dropPages()
	return s, nil
}

// connect mounts, and has the keeper keep the mount, if there is one.
func (s *Server) connect(o *Options) (err error) {
	if o.Keeper == nil {
		s.fuse, err = fuse.NewServer(s.fs, s.path, fuseOptions(o, s.fs))
		return s.connected(o, err)
	}
	before, err := devicesOfFUSE()
	if err != nil {
		return err
	}
	h := &holding{filesystem: s.fs}
	s.fuse, err = fuse.NewServer(h, s.path, fuseOptions(o, s.fs))
	if err = s.connected(o, err); err != nil {
		return err
	}
	if err = s.hold(o, h, before); err != nil {
		return errors.Join(err, s.unmount(unix.MNT_DETACH))
	}
	return nil
}

// connected explains the error of a new mount, and removes what is left of it.
func (s *Server) connected(o *Options, err error) error {
	if err == nil {
		return nil
	}
	// A mount whose INIT failed is still in the kernel's mount table.
	if isDead(s.path) {
		_ = unix.Unmount(s.path, unix.MNT_DETACH) // there is no better remedy
	}
	return mountError(s.path, o, err)
}

// Init is called before the first request, once the kernel and the daemon have negotiated
// the protocol.
func (f *filesystem) Init(server *fuse.Server) {
	f.kernel = fuseKernel{server}
	if f.opts.Keeper != nil {
		f.kernel = heldKernel{fuseKernel{server}, f.opts.Keeper}
		if !keepBuffers(server) {
			f.log.Warn("a kill of the daemon may make a request fail: this version of go-fuse has other buffers")
		}
	}
	(&Files{f}).begin()
	r := fuseRegistrar{server}
	f.backings.kernel = r
	var reason string
	f.backings.first, reason = probePassthrough(f.opts.Passthrough, server.KernelSettings(), r)
	switch {
	case reason == "":
	case f.opts.Passthrough == PassthroughOff || !hasHostTier(f.store):
		f.backings.reason.Store(&reason) // no file would use it
	default:
		f.backings.disable(reason)
	}
}

// hasHostTier reports whether any device has files for the kernel to serve.
func hasHostTier(s *objects.Store) bool {
	all, err := s.Devices(background())
	return err != nil || slices.ContainsFunc(all, func(d objects.DeviceStatus) bool { return d.Passthrough })
}

// mountError explains for the user why the kernel, or fusermount3, refused.
func mountError(path string, o *Options, err error) error {
	options := strings.Join(o.MountOptions, ",")
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: the kernel does not let this process mount at %s, because it lacks CAP_SYS_ADMIN; run as a user with fusermount3, or start the container with: --cap-add SYS_ADMIN", ErrNoFUSE, path)
	case errors.Is(err, syscall.EINVAL) && options != "":
		return fmt.Errorf("mount at %s: the kernel rejects the options %q; remove those that are not FUSE or mount options", path, options)
	case errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("%w: the kernel has no FUSE support; load it with: modprobe fuse", ErrNoFUSE)
	case os.Geteuid() != 0:
		return fmt.Errorf("mount at %s with fusermount3, which prints the reason above: %w", path, err)
	}
	return fmt.Errorf("mount at %s: %w", path, err)
}
