package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestDuplicateName checks that a second node of the same name is refused, whichever it is,
// and that the node itself gets its name back immediately after a crash.
func TestDuplicateName(t *testing.T) {
	w, nodes := newNodes(t, worldOptions{etcd: plainEtcd(), machines: 2, extra: []string{"--lease", "60s"}})
	a, b := nodes[0], nodes[1]
	out, err := w.net.Spaces[0].Command(t.Context(), "hmcfs", w.mountArgs(t, "b")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "name taken") || !strings.Contains(string(out), w.at[1]) {
		t.Fatalf("a second b: %v %s", err, out)
	}
	a.lists("b")
	verifyAlive(t, a, b)
	// Its lease lasts for another minute.
	before := a.epochOfB()
	b.Kill()
	b.restart()
	kit.Eventually(t, patience, func() error { return a.reaches("b") })
	if now := a.epochOfB(); now <= before {
		t.Errorf("b's epoch was %d, and now it is %d", before, now)
	}
	verifyAlive(t, a, b)
	// A node that leaves in order is removed immediately, and its name is free.
	b.Umount()
	a.lists()
	w.mount("b", 1)
	a.lists("b")
}

// verifyAlive writes on one node and reads on the other.
func verifyAlive(t *testing.T, a, b *node) {
	t.Helper()
	write(t, a.at(b.name, "host", "alive"), 77, mib)
	verify(t, b.Path("host", "alive"), 77, mib)
}

// mountArgs returns the arguments of a mount on the first machine that leaves nothing behind
// when it is refused.
func (w *world) mountArgs(t *testing.T, name string) []string {
	t.Helper()
	dir := mnt.TempDir(t)
	at := filepath.Join(dir, "mnt")
	must(t, os.Mkdir(at, 0o755))
	args := []string{"mount", "-f", "--state-dir", filepath.Join(dir, "s"), "--runtime-dir", filepath.Join(dir, "r"), "--device", "host,size=1MiB"}
	return append(append(args, w.flags(name, 0)...), "--", at)
}

// TestWrongSecret checks that a node with another secret neither sees the others nor is seen.
func TestWrongSecret(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong")
	must(t, os.WriteFile(wrong, []byte("another secret altogether\n"), 0o600))
	w := newWorld(t, worldOptions{flags: func(name string) []string {
		if name == "c" {
			return []string{"--secret-file", wrong}
		}
		return nil
	}})
	a, b, c := w.mount("a", 0), w.mount("b", 1), w.mount("c", 2)
	strangers(t, a, b, c)
}

// strangers checks that two nodes see each other, and that the third neither sees them nor is
// seen.
func strangers(t *testing.T, a, b, c *node) {
	t.Helper()
	write(t, b.Path("host", "x"), 1, mib)
	kit.Eventually(t, patience, func() error { return check(a.at("b", "host", "x"), 1, mib) })
	for _, p := range [][2]string{
		{c.at("a"), "the stranger lists a"},
		{c.at("b", "host", "x"), "the stranger reads from b"},
		{a.at("c"), "a lists the stranger"},
		{a.at("c", "host"), "a lists the stranger's memory"},
	} {
		err := soon(t, p[1], func() error {
			out, err := try(context.WithoutCancel(t.Context()), "cat", p[0])
			if err == nil || strings.Contains(err.Error(), "Is a directory") {
				out, err = try(context.WithoutCancel(t.Context()), "ls", p[0])
			}
			if err == nil {
				t.Errorf("%s: %q", p[1], out)
			}
			return err
		})
		t.Logf("%s: %v", p[1], err)
	}
	if c.cluster().Nodes[0].Connected {
		t.Error("the stranger is connected")
	}
	if problemOf(a, "c") == "" {
		t.Error("a does not tell why it has not c")
	}
	verify(t, a.at("b", "host", "x"), 1, mib)
}

// authority signs certificates of nodes.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.sign("ca", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	return a
}

// sign writes NAME.pem and NAME.key.
func (a *authority) sign(name string, change func(*x509.Certificate)) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	a.next++
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	change(cert)
	if a.cert == nil {
		a.cert, a.key = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	must(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	for file, block := range map[string]*pem.Block{
		a.file(name, ".pem"): {Type: "CERTIFICATE", Bytes: der}, a.file(name, ".key"): {Type: "PRIVATE KEY", Bytes: private},
	} {
		must(a.t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
}

func (a *authority) file(name, suffix string) string { return filepath.Join(a.dir, name+suffix) }

// flags returns the flags of a node that presents a certificate.
func (a *authority) flags(certificate string) []string {
	return []string{
		"--tls-cert", a.file(certificate, ".pem"), "--tls-key", a.file(certificate, ".key"), "--tls-ca", a.file("ca", ".pem"),
	}
}

// TestTLSNames lets nodes prove their names by certificates: a node with a certificate of the
// same authority for another name is rejected.
func TestTLSNames(t *testing.T) {
	ca := newAuthority(t)
	for certificate, name := range map[string]string{"a": "a", "b": "b", "c": "x"} {
		ca.sign(certificate, func(c *x509.Certificate) { c.DNSNames = []string{name} })
	}
	w := newWorld(t, worldOptions{flags: ca.flags})
	w.secret = ""
	a, b, c := w.mount("a", 0), w.mount("b", 1), w.mount("c", 2)
	strangers(t, a, b, c)
	// With its own certificate it is accepted.
	ca.sign("c", func(cert *x509.Certificate) { cert.DNSNames = []string{"elsewhere.example", "c"} })
	c.Umount()
	c.Start()
	kit.Eventually(t, patience, func() error { return a.reaches("c") })
	kit.Eventually(t, patience, func() error { return check(c.at("b", "host", "x"), 1, mib) })
}

// TestSquash accesses nodes with every policy as root and as other users.
func TestSquash(t *testing.T) {
	policies := map[string]string{"a": "none", "b": "root", "c": "all=4321:4322"}
	w := newWorld(t, worldOptions{flags: func(name string) []string { return []string{"--squash", policies[name]} }})
	a, b, c := w.mount("a", 0), w.mount("b", 1), w.mount("c", 2)
	w.meet()
	owner := func(path string) (out [2]uint32) {
		t.Helper()
		var st unix.Stat_t
		must(t, unix.Stat(path, &st))
		return [2]uint32{st.Uid, st.Gid}
	}
	for _, tc := range []struct {
		name       string
		asks, owns *node
		user       mnt.User
		want       [2]uint32
	}{
		{"root is root", b, a, mnt.User{}, [2]uint32{0, 0}},
		{"root is nobody", a, b, mnt.User{}, [2]uint32{65534, 65534}},
		{"a user is himself", a, b, mnt.User{UID: 1000, GID: 1001}, [2]uint32{1000, 1001}},
		{"root is somebody", a, c, mnt.User{}, [2]uint32{4321, 4322}},
		{"a user is somebody", a, c, mnt.User{UID: 1000, GID: 1001}, [2]uint32{4321, 4322}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			there := tc.asks.at(tc.owns.name, "host", tc.name)
			mnt.AsUser(t, tc.user, func() {
				if err := os.WriteFile(there, []byte("x"), 0o600); err != nil {
					t.Error(err)
				}
			})
			if got := owner(tc.owns.Path("host", tc.name)); got != tc.want {
				t.Errorf("it is %v's, want %v", got, tc.want)
			}
		})
	}
	// A directory that root has closed is closed to root of other nodes, but open to root of
	// its own.
	must(t, os.Mkdir(b.Path("host", "closed"), 0o700))
	write(t, b.Path("host", "closed", "x"), 1, 100)
	if _, err := os.ReadFile(a.at("b", "host", "closed", "x")); !errors.Is(err, syscall.EACCES) {
		t.Errorf("squashed root reads what is root's alone: %v", err)
	}
	if err := os.WriteFile(a.at("b", "host", "closed", "y"), nil, 0o600); !errors.Is(err, syscall.EACCES) {
		t.Errorf("squashed root writes into what is root's alone: %v", err)
	}
	must(t, os.WriteFile(b.Path("host", "public"), []byte("x"), 0o644))
	if err := os.Chmod(a.at("b", "host", "public"), 0o777); !among(err, syscall.EPERM, syscall.EACCES) {
		t.Errorf("squashed root changes a mode: %v", err)
	}
	if err := os.Remove(a.at("b", "host", "public")); !among(err, syscall.EPERM, syscall.EACCES) {
		t.Errorf("squashed root removes root's file: %v", err)
	}
	// Groups count, too.
	must(t, os.Mkdir(b.Path("host", "team"), 0o750))
	must(t, os.Chown(b.Path("host", "team"), 0, 7000))
	must(t, os.Chmod(b.Path("host", "team"), 0o750))
	write(t, b.Path("host", "team", "x"), 2, 100)
	mnt.AsUser(t, mnt.User{UID: 1000, GID: 1000, Groups: []int{7000}}, func() { verify(t, a.at("b", "host", "team", "x"), 2, 100) })
	mnt.AsUser(t, mnt.User{UID: 1000, GID: 1000}, func() {
		if _, err := os.ReadFile(a.at("b", "host", "team", "x")); !errors.Is(err, syscall.EACCES) {
			t.Errorf("who is not of the group: %v", err)
		}
	})
}

// TestOnlyTheOwner checks that a mount without --allow-other admits only the user that mounted
// it, also from other nodes.
func TestOnlyTheOwner(t *testing.T) {
	w := newWorld(t, worldOptions{machines: 2})
	a := w.mount("a", 0)
	b := w.prepare("b", 1, "--allow-other=false")
	b.Start()
	kit.Eventually(t, patience, func() error { return a.reaches("b") })
	verifyAlive(t, a, b)
	mnt.AsUser(t, mnt.User{UID: 1000, GID: 1000}, func() {
		if _, err := os.ReadFile(a.at("b", "host", "alive")); !among(err, syscall.EACCES, syscall.EPERM) {
			t.Errorf("another user reads: %v", err)
		}
		if err := os.WriteFile(a.at("b", "host", "mine"), nil, 0o644); !among(err, syscall.EACCES, syscall.EPERM) {
			t.Errorf("another user writes: %v", err)
		}
	})
}
