package badgerkv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// crowdDir marks a test binary as the process of TestKilledCrowd.
const crowdDir = "HMCFS_BADGERKV_CROWD_DIR"

const crowdSize = 24

var errCrowd = errors.New("changed its mind")

// crowd repeatedly opens and closes a store while many goroutines commit, and records in a
// file how far each has come.
func crowd(ctx context.Context, dir string) error {
	said, err := os.OpenFile(dir+".said", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for {
		kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: dir, Witness: dir + ".witness"})
		if err != nil {
			return err
		}
		until := time.Now().Add(time.Duration(rand.Int64N(int64(4 * time.Second))))
		errs := make(chan error, crowdSize)
		for g := range crowdSize {
			go func() { errs <- member(ctx, kv, said, g, until) }()
		}
		for range crowdSize {
			err = errors.Join(err, <-errs)
		}
		if err = errors.Join(err, kv.Close()); err != nil {
			return err
		}
	}
}

// member commits its next numbers, some of them without success.
func member(ctx context.Context, kv *badgerkv.KV, said *os.File, g int, until time.Time) error {
	own := fmt.Appendf(nil, "own%d", g)
	for time.Now().Before(until) {
		var n uint64
		kind := rand.IntN(8)
		err := kv.Update(ctx, func(tx metadata.KVTxn) error {
			data, err := tx.Get(own)
			if err != nil && !errors.Is(err, metadata.ErrNoKey) {
				return err
			}
			n = 1
			if err == nil {
				n += binary.LittleEndian.Uint64(data)
			}
			return change(tx, own, n, kind)
		})
		switch {
		case errors.Is(err, errCrowd), errors.Is(err, metadata.ErrTooLarge):
			continue
		case err != nil:
			return err
		}
		if kind < 5 {
			if _, err := said.WriteAt(binary.LittleEndian.AppendUint64(nil, n), int64(8*g)); err != nil {
				return err
			}
		}
	}
	return nil
}

// change is one transaction of a kind.
func change(tx metadata.KVTxn, own []byte, n uint64, kind int) error {
	shared := fmt.Appendf(nil, "shared%d", rand.IntN(4))
	body := fmt.Appendf(nil, "body%d", rand.IntN(200))
	size := rand.IntN(200)
	if rand.IntN(4) == 0 {
		size = rand.IntN(300_000)
	}
	value := kit.Bytes(n, 0, size)
	number := func() error { return tx.Set(own, append(binary.LittleEndian.AppendUint64(nil, n), value...)) }
	switch kind {
	case 0, 1:
		return number()
	case 2: // conflicts with others
		if _, err := tx.Get(shared); err != nil && !errors.Is(err, metadata.ErrNoKey) {
			return err
		}
		return errors.Join(number(), tx.Set(shared, value))
	case 3:
		return errors.Join(number(), tx.Set(body, value), tx.Delete(body))
	case 4:
		return errors.Join(tx.Set(body, value), number(), tx.Delete(shared))
	case 5: // deletes only
		return errors.Join(tx.Delete(body), tx.Delete(shared))
	case 6:
		return errors.Join(tx.Set(body, value), errCrowd)
	default: // near the maximum size of a transaction
		for i := range 3 {
			if err := tx.Set(fmt.Appendf(nil, "body%d", 1000+i), kit.Bytes(n, 0, 838_000+rand.IntN(800))); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestKilledCrowd kills a process with many committing goroutines at arbitrary moments: the
// next start must never be refused, and must have everything that was acknowledged.
func TestKilledCrowd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for round := range kit.Rounds(1, 3, 60) {
		cmd := exec.Command(os.Args[0], "-test.run", "^$")
		cmd.Env = append(os.Environ(), crowdDir+"="+dir)
		var said bytes.Buffer
		cmd.Stdout = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		moment := time.NewTimer(time.Duration(rand.IntN(kit.Rounds(1000, 1500, 4000))) * time.Millisecond)
		<-moment.C
		_ = cmd.Process.Kill() // it may have ended
		if err := cmd.Wait(); err == nil || said.Len() > 0 {
			t.Fatalf("round %d: %v, %s", round, err, said.String())
		}
		if rand.IntN(3) > 0 {
			continue
		}
		kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Witness: dir + ".witness"})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		crowdIsThere(t, kv, dir+".said")
		if err := kv.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func crowdIsThere(t *testing.T, kv *badgerkv.KV, said string) {
	t.Helper()
	data, err := os.ReadFile(said)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if kv.Cut() {
		t.Error("something is said to be cut")
	}
	err = kv.View(t.Context(), func(tx metadata.KVTxn) error {
		for g := range len(data) / 8 {
			want := binary.LittleEndian.Uint64(data[8*g:])
			if want == 0 {
				continue
			}
			value, failure := tx.Get(fmt.Appendf(nil, "own%d", g))
			if failure != nil {
				return fmt.Errorf("member %d said %d: %w", g, want, failure)
			}
			// There may be more: the process was killed before it could report it.
			if n := binary.LittleEndian.Uint64(value); n < want {
				return fmt.Errorf("member %d said %d, and %d is there", g, want, n)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
