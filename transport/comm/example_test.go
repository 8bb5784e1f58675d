package comm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Example puts bytes into the memory of another rank, which is notified by a tag
// and does no work for it. Here both ranks are in one process; two processes
// would differ only in that they share a secret beforehand.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 1 by shm
	// tag 7: 64 bytes, the last is 63
}

func example(ctx context.Context) (err error) {
	engine, err := transport.New(transport.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	secret := []byte("known to both, 16 bytes or more")
	giver, err := comm.New(comm.Options{Rank: 0, Secret: secret, Engine: engine})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, giver.Close()) }()
	taker, err := comm.New(comm.Options{Rank: 1, Secret: secret, Engine: engine})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, taker.Close()) }()

	at, err := taker.Listen(ctx, control.Address{Network: control.Unix, Addr: filepath.Join(dir, "rank-1")})
	if err != nil {
		return err
	}
	if err = giver.Connect(ctx, 1, at); err != nil {
		return err
	}
	peer := giver.Peers()[0]
	fmt.Println(peer.Rank, "by", peer.Transport)
	return errors.Join(give(ctx, giver, taker))
}

// give performs the work of the two ranks once they are connected.
func give(ctx context.Context, giver, taker *comm.Communicator) error {
	// The taker registers memory, and grants the other a key to write there.
	target, err := taker.Table().Alloc(64)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close(ctx) }() // its memory goes with the process at the latest
	key, err := taker.Share(ctx, 0, target, wire.Writable)
	if err != nil {
		return err
	}
	if err = taker.SendMessage(ctx, 0, key.Append(nil)); err != nil {
		return err
	}

	// The giver puts, and sends a tag after it.
	source, err := giver.Table().Alloc(64)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close(ctx) }()
	for i := range source.Host(0, 64) {
		source.Host(0, 64)[i] = byte(i)
	}
	message, err := giver.RecvMessage(ctx, 1)
	if err != nil {
		return err
	}
	remote, err := wire.ParseDescriptor(message)
	if err != nil {
		return err
	}
	if err = giver.PutNotify(ctx, 1, comm.Op{Local: source, Remote: remote, Size: 64}, 7); err != nil {
		return err
	}

	tag, err := taker.RecvTag(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Printf("tag %d: %d bytes, the last is %d\n", tag, target.Size(), target.Host(0, 64)[63])
	return nil
}
