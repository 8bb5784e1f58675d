package keyworld

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// RankName is the program name with which a test binary acts as a rank.
const RankName = "hmcfs-test-rank"

// Order is a command to a rank. The blobs of its call refer to memory by its number among
// the rank's memories, from 1.
type Order struct {
	Verb adminapi.Verb `json:"verb"`
	Call adminapi.Call `json:"call"`
}

// Said is an answer of a rank: that it is ready, or the result for one key of an order. For
// publish and subscribe these are sent when the futures complete.
type Said struct {
	Ready bool   `json:"ready,omitempty"`
	Verb  string `json:"verb,omitempty"`
	// Begun is set when publish or subscribe has returned.
	Begun bool   `json:"begun,omitempty"`
	Key   string `json:"key,omitempty"`
	// Code is the code of the error, and Error its text.
	Code  string `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
}

// Rank runs a process with a session and memory of its own: the program named RankName. Its
// arguments are the socket and, for each descriptor from 3 on, its meaning: shared memory
// by device and size, such as "sim0:4096", or a file of the mount, such as "sim0:file". It
// executes the orders on its input, one per line, and ends at the end of the input.
func Rank() {
	if err := rank(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func rank(ctx context.Context, args []string) error {
	s, err := client.OpenSession(ctx, args[0])
	if err != nil {
		return err
	}
	r := &rankRun{session: s, out: json.NewEncoder(os.Stdout)}
	for i, arg := range args[1:] {
		if err := r.register(ctx, 3+i, arg); err != nil {
			return err
		}
	}
	r.say(Said{Ready: true})
	for orders := json.NewDecoder(os.Stdin); ; {
		var o Order
		if orders.Decode(&o) != nil {
			return s.Close()
		}
		r.do(ctx, o)
	}
}

type rankRun struct {
	session *client.Session
	ids     []hetero.MemoryID

	mu  sync.Mutex
	out *json.Encoder
}

func (r *rankRun) say(s Said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(s) // if it fails, the parent sees the end of the output
}

func (r *rankRun) register(ctx context.Context, fd int, arg string) error {
	device, text, _ := strings.Cut(arg, ":")
	file, memory := os.NewFile(uintptr(fd), "memory"), hetero.Memory{Device: devices.Name(device)}
	if text == "file" {
		memory.File = file
	} else {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return err
		}
		memory.Share, memory.Files = Shared(memory.Device, devices.Size(n), file)
	}
	id, err := r.session.PreRegister(ctx, memory)
	_ = file.Close() // nothing was written
	r.ids = append(r.ids, id)
	return err
}

// do executes an order.
func (r *rankRun) do(ctx context.Context, o Order) {
	q := &o.Call
	for i := range q.Lists {
		for k := range q.Lists[i].Blobs {
			b := &q.Lists[i].Blobs[k]
			if at := int(b.Memory) - 1; at >= 0 && at < len(r.ids) {
				b.Memory = r.ids[at] // other IDs belong to other processes
			}
		}
	}
	var results hetero.Results
	var err error
	switch o.Verb {
	case adminapi.VerbPublish:
		r.follow(o, func() ([]*hetero.Future, error) { return r.session.DevPublish(ctx, q.Keys, q.Lists) })
		return
	case adminapi.VerbSubscribe:
		r.follow(o, func() ([]*hetero.Future, error) {
			return r.session.DevSubscribe(ctx, q.Keys, q.Lists, hetero.SubscribeOptions{Timeout: time.Duration(q.Timeout)})
		})
		return
	case adminapi.VerbMSet:
		results, err = r.session.DevMSet(ctx, q.Keys, q.Lists)
	case adminapi.VerbMGet:
		results, err = r.session.DevMGet(ctx, q.Keys, q.Lists, hetero.GetOptions{Timeout: time.Duration(q.Timeout), Replica: q.Replica})
	case adminapi.VerbMSetD2H:
		results, err = r.session.MSetD2H(ctx, q.Keys, q.Lists, hetero.SetOptions{Existing: q.Existing})
	case adminapi.VerbDelete:
		results, err = r.session.DevDelete(ctx, q.Keys)
	case adminapi.VerbExpire:
		results, err = r.session.Expire(ctx, q.Keys, time.Duration(q.TTL))
	case adminapi.VerbInfo:
		var infos []hetero.MetaInfo
		infos, err = r.session.GetMetaInfo(ctx, q.Keys, q.Published)
		for _, i := range infos {
			results = append(results, hetero.Result{Key: i.Key, Err: i.Err})
		}
	default:
		err = hetero.ErrUnsupported
	}
	if results == nil {
		r.tell(o, "", err)
	}
	for _, one := range results {
		r.tell(o, one.Key, one.Err)
	}
}

// follow reports the results of futures as they complete.
func (r *rankRun) follow(o Order, begin func() ([]*hetero.Future, error)) {
	futures, err := begin()
	said := saidOf(o, "", err)
	said.Begun = true
	r.say(said)
	for _, f := range futures {
		f.Then(func() { r.tell(o, f.Key(), f.Err()) })
	}
}

func (r *rankRun) tell(o Order, key string, err error) { r.say(saidOf(o, key, err)) }

func saidOf(o Order, key string, err error) Said {
	s := Said{Verb: string(o.Verb), Key: key}
	if err != nil {
		s.Code, s.Error = hetero.StatusOf(err).Name, err.Error()
	}
	return s
}
