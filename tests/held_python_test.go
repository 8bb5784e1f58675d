package tests

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// heldProgram uses a session in Python until its standard input ends.
const heldProgram = `
import hmcfs, itertools, numpy as np, random, sys, threading
rng = np.random.default_rng(int(sys.argv[1]))
fs, other = hmcfs.connect(), hmcfs.connect()
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
size = 200_000
mine, step = fs.empty(size), fs.empty(size)
theirs = other.empty(size)
standing = fs.empty(1000)
fs.mset({"py-standing": standing})
bound = fs.bind("host/py-bound", fs.empty(4096))
events = other.watch("py-seen*")
def fresh(x):
    x[:] = np.frombuffer(rng.bytes(x.nbytes), "u1")
    return x.tobytes()
for round in itertools.count():
    if stop.is_set():
        break
    n = int(rng.integers(1, size))
    want = fresh(mine[:n])
    key = f"py-{round}"
    fs.mset({key: mine[:n]})
    assert other.exists(key)
    other.mget([key], out=[theirs[:n]])
    assert theirs[:n].tobytes() == want, f"round {round}: other bytes"
    back = np.empty(n, "u1")
    other.mget([key], out=[back])
    assert back.tobytes() == want
    random.choice((fs, other)).delete(key)
    assert not fs.exists(key)
    want = fresh(standing)
    other.mget(["py-standing"], out=[theirs[:1000]])
    assert theirs[:1000].tobytes() == want
    want = fresh(step[:n])
    def offer():
        return fs.publish("py-step", step[:n])
    def take():
        return other.subscribe("py-step", out=theirs[:n], timeout=180)
    first, second = (offer, take) if round % 2 else (take, offer)
    for coming in (first(), second()):
        coming.result(timeout=180)
    assert theirs[:n].tobytes() == want, f"round {round}: other bytes were published"
    fs.set("py-copy", want)
    assert other.get("py-copy") == want
    want = fresh(bound.array)
    assert open(bound.path, "rb").read() == want
    fs.mset({f"py-seen-{round}": standing})
    for event in events:
        if event["event"] == "dropped" or event["key"] == f"py-seen-{round}" and event["event"] == "created":
            break
    fs.delete(f"py-seen-{round}")
fs.delete("py-standing")
bound.close()
fs.close()
other.close()
print(round, "rounds")
`

// python runs a program in Python until the users stop, and for a few minutes then.
func (w *heldUser) python() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, kit.Python(), "-B", "-c", heldProgram, fmt.Sprint(w.rng.Uint32()))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+w.python3+":"+os.Getenv("PYTHONPATH"), "HMCFS_MOUNT="+w.mount)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err = cmd.Start(); err != nil {
		return err
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	select {
	case err = <-over:
	case <-w.stop:
		_ = stdin.Close() // which ends the program
		defer time.AfterFunc(5*time.Minute, cancel).Stop()
		err = <-over
	}
	if err != nil {
		return fmt.Errorf("python: %w\n%s", err, said.String())
	}
	lines := bufio.NewScanner(strings.NewReader(said.String()))
	for lines.Scan() {
		w.t.Logf("python: %s", lines.Text())
	}
	return lines.Err()
}
