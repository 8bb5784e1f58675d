package tests

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

const keyName = "user.hmc.key"

// saved is one tensor of bytes of a safetensors file.
type saved struct {
	name string
	data []byte
}

// saveTensors writes a safetensors file, over an existing one.
func saveTensors(t *testing.T, path string, all ...saved) {
	t.Helper()
	head, off := map[string]any{}, 0
	var data []byte
	for _, s := range all {
		head[s.name] = map[string]any{"dtype": "U8", "shape": []int{len(s.data)}, "data_offsets": []int{off, off + len(s.data)}}
		data, off = append(data, s.data...), off+len(s.data)
	}
	text, err := json.Marshal(head)
	must(t, err)
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	must(t, os.WriteFile(path, append(append(file, text...), data...), 0o600))
}

// tensorKeys is a mount whose keys name tensors.
type tensorKeys struct {
	*mnt.M
	t *testing.T
}

func (k *tensorKeys) run(args ...string) string {
	k.t.Helper()
	out, err := k.Run(args...)
	if err != nil {
		k.t.Errorf("hmcfs %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// names checks that a key names bytes: for a session, and behind a header in keys/.
func (k *tensorKeys) names(key string, want []byte) {
	k.t.Helper()
	out := k.t.TempDir()
	k.run("mget", "--mount", k.Dir, "--dir", out, key)
	got, err := os.ReadFile(filepath.Join(out, key))
	must(k.t, err)
	if at := kit.FirstDiff(got, want); at >= 0 {
		k.t.Errorf("mget %s: byte %d of %d is wrong (%d)", key, at, len(want), len(got))
	}
	seen, err := os.ReadFile(k.Path("keys", key))
	must(k.t, err)
	if !bytes.HasPrefix(seen, []byte("\x93NUMPY")) || !bytes.HasSuffix(seen, want) {
		k.t.Errorf("keys/%s is not the tensor: %d bytes", key, len(seen))
	}
}

// missing checks that a key names nothing that exists.
func (k *tensorKeys) missing(key string) {
	k.t.Helper()
	if out, err := k.Run("exist", "--mount", k.Dir, key); err == nil {
		k.t.Errorf("%s exists: %s", key, out)
	}
}

// gone checks that a key is not there at all.
func (k *tensorKeys) gone(key string) {
	k.t.Helper()
	k.missing(key)
	if _, err := os.Lstat(k.Path("keys", key)); !errors.Is(err, unix.ENOENT) {
		k.t.Errorf("keys/%s: %v", key, err)
	}
}

// TestTensorKeys gives keys to tensors and follows them through what happens to their files.
func TestTensorKeys(t *testing.T) {
	kit.Check(t)
	k := &tensorKeys{mnt.Mount(t, mnt.Options{Extra: []string{"--list-views"}}), t}
	odd, deep := kit.Bytes(1, 0, 70_001), kit.Bytes(2, 0, 9_000)
	for _, device := range []string{"host", "sim0"} {
		file := k.Path(device, "m.safetensors")
		saveTensors(t, file, saved{"odd", odd}, saved{"h/0/deep", deep})
		view := file + ".tensors/"
		must(t, unix.Setxattr(view+"odd.npy", keyName, []byte(device+".odd"), 0))
		k.run("mset", device+".deep="+view+"h/0/deep.npy", device+"="+file)
		k.names(device+".odd", odd)
		k.names(device+".deep", deep)
		k.throughFileKey(device, deep)
	}
	k.refusals()
	k.replaced(odd)
	k.moved(odd, deep)
	k.exported(odd)

	k.Kill()
	k.Start()
	k.names("host.odd", odd)
	k.names("host.deep", deep)
	k.missing("sim0.odd") // lost with its device, so the key is free
	must(t, unix.Setxattr(k.Path("host", "m.safetensors.tensors", "h/0/deep.npy"), keyName, []byte("sim0.odd"), 0))
	k.names("sim0.odd", deep)
	k.gone("host.deep") // a tensor has one key
	k.removed()
	if out, _ := k.Run("fsck", k.Dir); !strings.Contains(out, " 0 problems, 0 repaired") {
		t.Error(out) // it fails because of the lost files
	}
}

// throughFileKey reads a tensor below the key of its file.
func (k *tensorKeys) throughFileKey(key string, want []byte) {
	k.t.Helper()
	got, err := os.ReadFile(k.Path("keys", key+".tensors", "h/0/deep.npy"))
	must(k.t, err)
	if !bytes.HasSuffix(got, want) {
		k.t.Errorf("keys/%s.tensors has other bytes", key)
	}
}

// refusals tries what keys of tensors do not allow.
func (k *tensorKeys) refusals() {
	k.t.Helper()
	view := k.Path("host", "m.safetensors.tensors")
	tensor := filepath.Join(view, "odd.npy")
	for what, c := range map[string]struct {
		err  error
		want error
	}{
		"a key that is taken":   {unix.Setxattr(tensor, keyName, []byte("sim0.odd"), 0), unix.EEXIST},
		"a key of a whole file": {unix.Setxattr(tensor, keyName, []byte("host"), 0), unix.EEXIST},
		"the key for a file":    {unix.Setxattr(k.Path("host", "m.safetensors"), keyName, []byte("host.odd"), 0), unix.EEXIST},
		"an invalid key":        {unix.Setxattr(tensor, keyName, []byte("a/b"), 0), unix.EINVAL},
		"create of an old key":  {unix.Setxattr(tensor, keyName, []byte("x"), unix.XATTR_CREATE), unix.EEXIST},
		"replace of no key":     {unix.Setxattr(k.Path("host", "m.safetensors.tensors", "h"), keyName, []byte("x"), 0), unix.EROFS},
		"another attribute":     {unix.Setxattr(tensor, "user.note", []byte("x"), 0), unix.EROFS},
		"writing":               {openFor(tensor, os.O_RDWR), unix.EROFS},
		"truncating":            {os.Truncate(tensor, 0), unix.EROFS},
		"a time to live":        {unix.Setxattr(tensor, "user.hmc.ttl", []byte("9"), 0), unix.EROFS},
	} {
		if !errors.Is(c.err, c.want) {
			k.t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	if !strings.Contains(k.Log(), `invalid key \"a/b\": a key has no directories; write : instead of /, as in \"a:b\"`) {
		k.t.Error("the log does not say why the key is invalid")
	}
	if out, err := k.Run("expire", "--mount", k.Dir, "--ttl", "60s", "host.odd"); err == nil || !strings.Contains(err.Error(), "names a tensor of m.safetensors") {
		k.t.Errorf("time to live of a tensor: %v\n%s", err, out)
	}
}

func openFor(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0)
	if err == nil {
		err = errors.Join(errors.New("opened"), f.Close())
	}
	return err
}

// replaced rewrites a file, in which a key names the tensor of the same name, and gives a key to
// another object.
func (k *tensorKeys) replaced(odd []byte) {
	k.t.Helper()
	file, other, longer := k.Path("sim0", "r.safetensors"), kit.Bytes(3, 0, 500), kit.Bytes(4, 0, 90_000)
	saveTensors(k.t, file, saved{"a", odd}, saved{"b", other})
	must(k.t, unix.Setxattr(file+".tensors/a.npy", keyName, []byte("r"), 0))
	k.names("r", odd)
	saveTensors(k.t, file, saved{"b", other}, saved{"a", longer})
	k.names("r", longer)
	saveTensors(k.t, file, saved{"b", other})
	k.missing("r")
	must(k.t, os.WriteFile(file, []byte("no tensors at all"), 0o600))
	k.missing("r")
	saveTensors(k.t, file, saved{"a", odd})
	k.names("r", odd)

	must(k.t, os.WriteFile(k.Path("sim0", "plain"), other, 0o600))
	k.run("d2h", "--existing", "replace", "r="+k.Path("sim0", "plain"))
	got, err := os.ReadFile(k.Path("keys", "r"))
	if must(k.t, err); !bytes.Equal(got, other) {
		k.t.Error("the key was not replaced")
	}
	if _, err := getxattr(file+".tensors/a.npy", keyName); !errors.Is(err, unix.ENODATA) {
		k.t.Errorf("key of the tensor that lost it: %v", err)
	}
}

// moved renames and moves files, and reads their tensors into others.
func (k *tensorKeys) moved(odd, deep []byte) {
	k.t.Helper()
	must(k.t, os.Rename(k.Path("sim0", "m.safetensors"), k.Path("sim0", "n.safetensors")))
	k.names("sim0.odd", odd)
	must(k.t, os.Rename(k.Path("sim0", "n.safetensors"), k.Path("sim1", "n.safetensors")))
	k.names("sim0.odd", odd)
	if to, err := os.Readlink(k.Path("keys", "sim0.odd")); err != nil || to != "../sim1/n.safetensors.tensors/odd.npy" {
		k.t.Errorf("keys/sim0.odd leads to %s (%v)", to, err)
	}
	must(k.t, os.Rename(k.Path("sim1", "n.safetensors"), k.Path("sim1", "n.bin")))
	k.missing("sim0.odd")
	must(k.t, os.Rename(k.Path("sim1", "n.bin"), k.Path("sim0", "m.safetensors")))
	k.run("h2d", "sim0.deep="+k.Path("sim1", "copy"))
	got, err := os.ReadFile(k.Path("sim1", "copy"))
	if must(k.t, err); !bytes.Equal(got, deep) {
		k.t.Error("h2d copied other bytes")
	}
	listed, err := os.ReadDir(k.Path("keys"))
	must(k.t, err)
	var names []string
	for _, e := range listed {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "host host.deep host.odd host.tensors r sim0 sim0.deep sim0.odd sim0.tensors" {
		k.t.Errorf("keys/ lists %s", got)
	}
}

// exported maps the memory of one tensor by the handle of its view.
func (k *tensorKeys) exported(want []byte) {
	k.t.Helper()
	for _, device := range []string{"host", "sim0"} {
		tensor := k.Path(device, "m.safetensors.tensors", "odd.npy")
		text, err := getxattr(tensor, handleXattr)
		must(k.t, err)
		m, err := share.Parse([]byte(text))
		must(k.t, err)
		if m.Dtype != "uint8" || m.Shape != fmt.Sprint(len(want)) || int(m.Size) != len(want) || m.Pieces[0].Offset == 0 {
			k.t.Errorf("the handle says %s", m)
		}
		f, err := os.Open(m.Pieces[0].Path)
		must(k.t, err)
		got := make([]byte, m.Pieces[0].Size)
		_, err = f.ReadAt(got, int64(m.Pieces[0].Offset))
		must(k.t, errors.Join(err, f.Close()))
		if at := kit.FirstDiff(got, want); at >= 0 {
			k.t.Errorf("byte %d of the exported memory is wrong", at)
		}
		out := k.run("export", tensor, "--", "sh", "-c", `tail -c +$(($(echo "$HMCFS_EXPORT" | sed 's/.*"offset":\([0-9]*\).*/\1/') + 1)) <&3 | head -c 5 | od -An -tx1 | tr -d ' '`)
		if strings.TrimSpace(out) != fmt.Sprintf("%x", want[:5]) {
			k.t.Errorf("a command got %s, want %x", out, want[:5])
		}
		k.run("export", "--end", tensor)
	}
}

// removed takes keys away in each way.
func (k *tensorKeys) removed() {
	k.t.Helper()
	file := k.Path("host", "x.npy")
	head := "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}\n"
	must(k.t, os.WriteFile(file, []byte("\x93NUMPY\x01\x00"+string(rune(len(head)))+"\x00"+head+"abcd"), 0o600))
	set := func(key string) {
		k.t.Helper()
		must(k.t, unix.Setxattr(file+".tensors/"+filepath.Base(file), keyName, []byte(key), 0))
		k.names(key, []byte("abcd"))
	}
	set("x1")
	set("x2")
	k.gone("x1")
	must(k.t, os.Rename(file, k.Path("host", "y.npy")))
	file = k.Path("host", "y.npy")
	k.names("x2", []byte("abcd")) // the only tensor of a .npy file, whatever its name
	must(k.t, unix.Removexattr(file+".tensors/y.npy", keyName))
	k.gone("x2")
	set("x3")
	k.run("del", "--mount", k.Dir, "x3")
	k.gone("x3")
	set("x4")
	must(k.t, os.Rename(file, k.Path("publish", "x")))
	k.gone("x4")
	must(k.t, os.Rename(k.Path("publish", "x"), file))
	set("x5")
	must(k.t, os.Remove(file))
	k.gone("x5")
}
