package job

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// secretBytes is the size, in bytes, of a generated secret.
	secretBytes = 32
	// polls is the interval at which a file that another process will write is polled.
	polls = 5 * time.Millisecond
	// worldName is the name of the domain of all ranks.
	worldName = "world"
)

// Init connects to all other ranks, which call it too.
//
// Errors: ErrOptions; ErrBackend; those of comm, domain and fabric.
func Init(ctx context.Context, o Options) (*Job, error) {
	o.ensureDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	j := &Job{opts: o}
	ctx, cancel := j.within(ctx)
	defer cancel()
	if err := j.enter(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("job: rank %d of %d: %w", o.Rank, o.World, err), j.Close()) //nolint:contextcheck // cleanup must not depend on the context
	}
	return j, nil
}

// enter sets up everything, including the domain of all ranks.
func (j *Job) enter(ctx context.Context) (err error) {
	o := &j.opts
	if o.Secret == nil {
		if o.Secret, err = commonSecret(ctx, o.Dir); err != nil {
			return err
		}
	}
	if j.engine, err = transport.New(transport.Options{}); err != nil {
		return err
	}
	co := comm.Options{
		Rank: wire.Rank(o.Rank), Secret: o.Secret, Plain: o.Plain, Engine: j.engine, Devices: o.Devices, Logger: o.Logger,
		Transports: map[Backend][]comm.Transport{Auto: {comm.SHM, comm.TCP}, SHM: {comm.SHM}, TCP: {comm.TCP}}[o.Backend],
	}
	if j.comm, err = comm.New(co); err != nil {
		return err
	}
	book := map[wire.Rank]control.Address{}
	if j.domains, err = domain.New(j.comm, domain.Options{AddressBook: book, Logger: o.Logger}); err != nil {
		return err
	}
	if err = j.listen(ctx, book); err != nil {
		return err
	}
	all := make([]int, o.World)
	for i := range all {
		all[i] = i
	}
	j.world, err = j.newDomain(ctx, worldName, all)
	return err
}

// listen listens on our addresses, and finds those of the ranks below us: the higher of two
// ranks connects.
func (j *Job) listen(ctx context.Context, book map[wire.Rank]control.Address) error {
	o := &j.opts
	for r := range o.World {
		at, err := o.address(r)
		if err != nil {
			return err
		}
		book[wire.Rank(r)] = at
	}
	for _, at := range o.Listen {
		if _, err := j.comm.Listen(ctx, at); err != nil {
			return err
		}
	}
	own := book[wire.Rank(o.Rank)]
	if o.Backend != TCP || own.Network != control.Unix {
		_, err := j.comm.Listen(ctx, own)
		return err
	}
	// A file left by a rank of an earlier job would be mistaken for ours.
	notice := func(r int) string { return filepath.Join(o.Dir, fmt.Sprintf("hmc_address_%d", r)) }
	if err := os.Remove(notice(o.Rank)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	at, err := j.comm.Listen(ctx, control.Address{Network: control.TCP, Addr: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	if err = publish(notice(o.Rank), at.String()); err != nil {
		return err
	}
	j.files = append(j.files, notice(o.Rank))
	for r := range o.Rank {
		if book[wire.Rank(r)].Network == control.Unix {
			if book[wire.Rank(r)], err = lookUp(ctx, notice(r)); err != nil {
				return fmt.Errorf("wait for rank %d to publish its address and listen there: %w", r, err)
			}
		}
	}
	return nil
}

// address returns the address at which a rank listens.
func (o *Options) address(r int) (control.Address, error) {
	if o.AddressBook != nil {
		return o.AddressBook[r], nil
	}
	path, err := control.SocketPath(o.Dir, wire.Rank(r))
	return control.Address{Network: control.Unix, Addr: path}, err
}

// publish writes a small file atomically.
func publish(path, text string) error {
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(part, []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// lookUp reads the address that a rank publishes, and waits until the rank listens there.
func lookUp(ctx context.Context, path string) (control.Address, error) {
	for {
		text, err := os.ReadFile(path) //nolint:gosec // the directory belongs to the job
		if err == nil {
			at, perr := control.ParseAddress(strings.TrimSpace(string(text)))
			if perr != nil {
				return at, perr
			}
			var d net.Dialer
			if c, derr := d.DialContext(ctx, string(at.Network), at.Addr); derr == nil {
				return at, c.Close()
			}
		}
		select {
		case <-time.After(polls):
		case <-ctx.Done():
			return control.Address{}, ctx.Err()
		}
	}
}

// commonSecret returns the secret in a directory. The first process creates it.
func commonSecret(ctx context.Context, dir string) ([]byte, error) {
	path := filepath.Join(dir, "secret")
	fresh := make([]byte, secretBytes)
	// Read never fails: the runtime ends the process if the kernel has no random bytes.
	_, _ = rand.Read(fresh)
	part := fmt.Sprintf("%s.%d.%x", path, os.Getpid(), fresh[:4])
	if err := os.WriteFile(part, []byte(hex.EncodeToString(fresh)+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("create the job's secret: %w", err)
	}
	// Link makes the complete file appear atomically, and never replaces an existing one.
	err := os.Link(part, path)
	if rerr := os.Remove(part); rerr != nil || err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("create the job's secret: %w", errors.Join(err, rerr))
	}
	if err = ctx.Err(); err != nil {
		return nil, err
	}
	return ownSecret(path)
}

// longestSecret bounds the size, in bytes, of a secret file.
const longestSecret = 4096

// ownSecret reads the secret in a job's directory. Another user may have put a file there:
// only a file that belongs to this user alone is accepted.
func ownSecret(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) //nolint:gosec // the file is checked after it is opened
	if err != nil {
		return nil, fmt.Errorf("read the job's secret: %w", err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("read the job's secret: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || st.Size > longestSecret {
		return nil, fmt.Errorf("the job's secret in %s must be a small regular file, owned by user %d and with mode 600: %w", path, os.Geteuid(), ErrOptions)
	}
	text, err := io.ReadAll(io.LimitReader(f, longestSecret))
	if err != nil {
		return nil, fmt.Errorf("read the job's secret: %w", err)
	}
	return parseSecret(path, text)
}
